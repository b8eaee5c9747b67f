"""The chain of an epoch: roles, who follows whom, and what durable sequences mean."""

import pytest

from kayos.errors import InvalidArgument
from kayos.model.chain import ChainView, Member, MemberState, Role


def chain(
    *nodes: str, tails: int = 1, learner: str = "", state: MemberState = MemberState.WAITING, **fields: int
) -> ChainView:
    members = [Member(node) for node in nodes]
    if learner:
        members.append(Member(learner, state=MemberState.WAITING))
    return ChainView(1, tuple(members), tails=tails, **fields)


@pytest.mark.parametrize(
    ("view", "roles", "upstreams"),
    [
        (chain("a"), ["head+tail"], [""]),
        (chain("a", "b"), ["head", "tail"], ["", "a"]),
        (chain("a", "b", "c"), ["head", "middle", "tail"], ["", "a", "b"]),
        (chain("a", "b", "c", tails=2), ["head", "tail", "tail"], ["", "a", "a"]),
        (chain("a", "b", "c", "d", "e", tails=3), ["head", "middle", "tail", "tail", "tail"], ["", "a", "b", "b", "b"]),
        (chain("a", learner="b"), ["head+tail", "learner"], ["", "a"]),
        (chain("a", "b", "c", tails=2, learner="d"), ["head", "tail", "tail", "learner"], ["", "a", "a", "c"]),
    ],
)
def test_roles_and_who_follows_whom(view: ChainView, roles: list[str], upstreams: list[str]) -> None:
    view.check()
    nodes = [member.node for member in view.members]
    assert [view.role_of(node) for node in nodes] == roles
    assert [view.upstream_of(node) for node in nodes] == upstreams
    for node in nodes:
        assert all(view.upstream_of(other) == node for other in view.downstreams_of(node))
    assert view.role_of("stranger") is Role.NONE and view.upstream_of("stranger") == ""


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (ChainView(0, (Member("a"),)), "epoch is 0"),
        (ChainView(1, ()), "begin with its serving members"),
        (ChainView(1, (Member("a"), Member("a"))), "names a node twice"),
        (ChainView(1, (Member("a", state=MemberState.WAITING), Member("b"))), "begin with its serving members"),
        (ChainView(1, (Member("a", state=MemberState.WAITING),)), "begin with its serving members"),
        (
            ChainView(1, (Member("a"), Member("b", state=MemberState.WAITING), Member("c", state=MemberState.SYNCING))),
            "several newcomers",
        ),
        (chain("a", "b", tails=2), "leave one to feed them"),
        (chain("a", tails=0), "tails is 0"),
    ],
)
def test_a_chain_that_cannot_be_is_refused(view: ChainView, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        view.check()


@pytest.mark.parametrize(
    ("view", "durable", "commit_point"),
    [
        (chain("a"), {"a": 7}, 7),
        (chain("a"), {}, 0),
        # M is all: the slowest decides.
        (chain("a", "b", "c", min_durable=3), {"a": 9, "b": 5, "c": 7}, 5),
        # M is 2 of 3, a tail among them.
        (chain("a", "b", "c", min_durable=2), {"a": 9, "b": 8, "c": 7}, 7),
        (chain("a", "b", "c", min_durable=2), {"a": 9, "c": 8}, 8),
        (chain("a", "b", "c", min_durable=2), {"a": 9, "b": 9}, 0),
        # M of 1 still waits for a tail, since consumers read there.
        (chain("a", "b", "c", min_durable=1), {"a": 9, "b": 9, "c": 4}, 4),
        # A short chain cannot ask for more than it has.
        (chain("a", "b", min_durable=3), {"a": 9, "b": 6}, 6),
        # Fan-out: the path has two replicas, and one tail is enough; the slow one holds nobody up.
        (chain("a", "b", "c", tails=2, min_durable=3), {"a": 9, "b": 8, "c": 1}, 8),
        (chain("a", "b", "c", tails=2, min_durable=3), {"b": 8, "c": 8}, 8),
        # A newcomer counts for nothing.
        (chain("a", learner="b", min_durable=2), {"a": 9, "b": 1}, 9),
    ],
)
def test_the_commit_point(view: ChainView, durable: dict[str, int], commit_point: int) -> None:
    assert view.find_commit_point(durable) == commit_point


def test_all_means_every_replica_up_to_a_tail() -> None:
    view = chain("a", "b", "c", "d", tails=2)
    assert view.path_length == 3
    assert view.is_on_all({"a": 5, "b": 5, "d": 5}, 5)
    assert not view.is_on_all({"a": 5, "c": 5, "d": 5}, 5)
    assert not view.is_on_all({"a": 5, "b": 5}, 5)
    assert view.count_copies({"a": 5, "b": 4, "d": 6}, 5) == 2
