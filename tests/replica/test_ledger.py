"""Who holds what: the points of a wait, the commit point, the news, and those who wait."""

import pytest

from kayos.model.chain import ChainView, Member, MemberState
from kayos.replica.events import Until, Wait
from kayos.replica.ledger import Ledger, Waiters
from kayos.stream.messages import Durable

HISTORY = b"h" * 16


def view(nodes: str, *, tails: int = 1, min_durable: int = 9, learner: str = "") -> ChainView:
    members = [Member(node) for node in nodes]
    members += [Member(node, state=MemberState.SYNCING) for node in learner]
    return ChainView(1, tuple(members), tails=tails, min_durable=min_durable)


def ledger(chain: ChainView, durable: Durable) -> Ledger:
    made = Ledger(chain)
    made.merge(durable, except_node="")
    return made


THREE = view("abc")
# a → b → {c, d, e}
FAN_OUT = view("abcde", tails=3)


@pytest.mark.parametrize(
    ("chain", "durable", "until", "copies", "point"),
    [
        # Copies count wherever they are.
        (THREE, {"a": 9, "b": 5, "c": 2}, Until.COPIES, 1, 9),
        (THREE, {"a": 9, "b": 5, "c": 2}, Until.COPIES, 2, 5),
        (THREE, {"a": 9, "b": 5, "c": 2}, Until.COPIES, 3, 2),
        (THREE, {"c": 9}, Until.COPIES, 1, 9),
        (THREE, {"c": 9}, Until.COPIES, 2, 0),
        # More than there are replicas: never.
        (THREE, {"a": 9, "b": 9, "c": 9}, Until.COPIES, 4, 0),
        # All: every replica up to a tail.
        (THREE, {"a": 9, "b": 5, "c": 2}, Until.ALL, 0, 2),
        (THREE, {"a": 9, "b": 5}, Until.ALL, 0, 0),
        (view("a"), {"a": 9}, Until.ALL, 0, 9),
        (FAN_OUT, {"a": 9, "b": 8, "c": 1, "d": 7, "e": 2}, Until.ALL, 0, 7),
        (FAN_OUT, {"a": 9, "b": 3, "c": 9, "d": 9, "e": 9}, Until.ALL, 0, 3),
        # One tail, each tail.
        (THREE, {"c": 4}, Until.ANY_TAIL, 0, 4),
        (THREE, {"c": 4}, Until.ALL_TAILS, 0, 4),
        (FAN_OUT, {"a": 9, "b": 9, "c": 1, "d": 7, "e": 2}, Until.ANY_TAIL, 0, 7),
        (FAN_OUT, {"a": 9, "b": 9, "c": 1, "d": 7, "e": 2}, Until.ALL_TAILS, 0, 1),
        (FAN_OUT, {"a": 9, "b": 9, "c": 1, "d": 7}, Until.ALL_TAILS, 0, 0),
        # A newcomer is no copy yet.
        (view("ab", learner="c"), {"a": 9, "b": 5, "c": 9}, Until.COPIES, 2, 5),
        (view("ab", learner="c"), {"a": 9, "b": 5, "c": 9}, Until.COPIES, 3, 0),
    ],
)
def test_points(chain: ChainView, durable: Durable, until: Until, copies: int, point: int) -> None:
    assert ledger(chain, durable).find_point(until, copies) == point


def test_durable_sequences_only_rise() -> None:
    held = Ledger(THREE)
    held.note("b", 5)
    held.note("b", 3)
    assert held.durable == {"b": 5}
    assert held.take_news() == {"b"}
    held.note("b", 5)
    assert held.take_news() == set()


def test_of_itself_a_replica_knows_better() -> None:
    held = Ledger(THREE)
    held.merge({"a": 4, "b": 9, "c": 2}, except_node="b")
    assert held.durable == {"a": 4, "c": 2}
    assert held.take_news() == {"a", "c"}


def test_the_commit_point_never_falls_and_has_a_tail_in_it() -> None:
    held = Ledger(view("abc", min_durable=2))
    held.note("a", 9)
    held.note("b", 9)
    assert held.find_commit_point() == 0
    held.note("c", 6)
    assert held.find_commit_point() == held.commit_point == 6
    assert held.count_copies(6) == 3 and held.count_copies(7) == 2


def test_waits_end_in_the_order_of_their_sequences_each_when_its_own_point_reaches_it() -> None:
    held, waiters = Ledger(THREE), Waiters()
    for token, seq, until, copies in (
        (1, 7, Until.ALL, 0),
        (2, 5, Until.ALL, 0),
        (3, 5, Until.COPIES, 2),
        (4, 5, Until.COPIES, 1),
        (5, 6, Until.ANY_TAIL, 0),
    ):
        waiters.add(Wait(token, HISTORY, seq, until, copies))
    assert (len(waiters), list(waiters.take_reached(held))) == (5, [])
    held.note("a", 7)
    assert list(waiters.take_reached(held)) == [(4, 5)]
    held.note("b", 7)
    assert list(waiters.take_reached(held)) == [(3, 5)]
    held.note("c", 6)
    assert sorted(waiters.take_reached(held)) == [(2, 5), (5, 6)]
    assert list(waiters.take_reached(held)) == []
    held.note("c", 7)
    assert (list(waiters.take_reached(held)), len(waiters)) == ([(1, 7)], 0)


def test_waits_for_the_same_sequence_end_together() -> None:
    held, waiters = Ledger(view("a")), Waiters()
    for token in (3, 1, 2):
        waiters.add(Wait(token, HISTORY, 5, Until.ALL))
    held.note("a", 5)
    assert sorted(token for token, _ in waiters.take_reached(held)) == [1, 2, 3]


def test_a_wait_that_was_given_up_is_forgotten() -> None:
    held, waiters = Ledger(view("a")), Waiters()
    waiters.add(Wait(1, HISTORY, 5, Until.ALL))
    waiters.add(Wait(2, HISTORY, 5, Until.ALL))
    waiters.drop(1)
    waiters.drop(1)
    waiters.drop(99)
    held.note("a", 5)
    assert list(waiters.take_reached(held)) == [(2, 5)]


def test_all_waits_are_taken_at_the_end_of_an_epoch() -> None:
    waiters = Waiters()
    waiters.add(Wait(1, HISTORY, 5, Until.ALL))
    waiters.add(Wait(2, HISTORY, 6, Until.COPIES, 2))
    assert sorted(waiters.take_all()) == [1, 2]
    assert (len(waiters), waiters.take_all()) == (0, [])
