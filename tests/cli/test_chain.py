"""`kayos chain show`: canned answers of the members of a chain, and what an operator is shown."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kayos.cli.chain import find_next_step, member_row, summarize
from kayos.cli.main import cli
from kayos.cli.options import Connection
from kayos.client.core.calls import Directory
from kayos.client.core.chain import ChainStatus, chain_status
from kayos.client.core.settings import Settings
from kayos.client.core.steps import Invoke
from kayos.errors import ShardNotFound, TopicNotFound, Unavailable
from kayos.model.chain import ChainView, Member, MemberState
from kayos.wire.chain_codec import member_from_wire, shard_view_to_wire
from kayos.wire.v1 import cluster_pb2, types_pb2

ADDRESSES = {name: f"{name}:1" for name in "abcd"}
ROWS = [types_pb2.TakeoverRow(history_id=b"1" * 16, start_seq=0, epoch=1)]
MORE_ROWS = [*ROWS, types_pb2.TakeoverRow(history_id=b"2" * 16, start_seq=5, epoch=3)]
SERVING = (Member("a", b"\x01"), Member("b"), Member("c"))


def status(node: str, role: str, seq: int, **settings: Any) -> cluster_pb2.ShardStatus:
    plain: dict[str, Any] = {
        "topic": "t",
        "shard": 1,
        "epoch": 3,
        "node": node,
        "role": role,
        "high_seq": seq,
        "durable_seq": seq - 1,
        "visible_seq": seq - 2,
        "commit_point": seq - 2,
        "sync": "ready",
        "phase": "streaming",
        "following": {"b": "a", "c": "b", "d": "c"}.get(node, ""),
        "takeover": MORE_ROWS,
        "incarnation": node.encode(),
        "durable": {"a": 99, "b": 98},
    }
    return cluster_pb2.ShardStatus(**plain | settings)


HEALTHY = {
    "a": status("a", "head", 100, phase="serving", accepts_writes=True),
    "b": status("b", "middle", 100),
    "c": status("c", "tail", 97),
}


class Cluster:
    """Nodes that answer from what they were given; the others are down."""

    def __init__(self, members: tuple[Member, ...], answers: dict[str, cluster_pb2.ShardStatus]) -> None:
        topic = cluster_pb2.Topic(name="t", shards=2, replicas=3, min_durable=3, min_replicas=2)
        view = shard_view_to_wire(1, ChainView(3, members), ADDRESSES)
        self.view = cluster_pb2.GetViewResponse(topic=topic, shards=[view])
        self.answers = {ADDRESSES[node]: answer for node, answer in answers.items()}
        self.asked: list[str] = []

    def chain(self, name: str, shard: int) -> ChainStatus:
        steps = chain_status(Directory(Settings(("s:1",), timeout_s=10.0, delivery_timeout_s=60.0)), name, shard)
        reply: Any = None
        failure: Exception | None = None
        while True:
            try:
                step = steps.throw(failure) if failure is not None else steps.send(reply)
            except StopIteration as done:
                found: ChainStatus = done.value
                return found
            assert isinstance(step, Invoke) and step.timeout_s <= 10
            reply, failure = self._answer(step)

    def _answer(self, step: Invoke) -> tuple[Any, Exception | None]:
        if step.method.name == "GetView":
            known = step.request == cluster_pb2.GetViewRequest(topic="t")
            return (self.view, None) if known else (None, TopicNotFound("topic 'x' does not exist"))
        self.asked.append(step.address)
        if step.address not in self.answers:
            return None, Unavailable("UNAVAILABLE: connection refused")
        other = cluster_pb2.ShardStatus(topic="t", shard=0, problem="not asked for")
        return cluster_pb2.DescribeTopicResponse(shards=[other, self.answers[step.address]]), None


def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    class Client:
        topics = cluster

    @contextmanager
    def opened(self: Connection) -> Iterator[Client]:
        yield Client()

    monkeypatch.setattr(Connection, "open", opened)
    return CliRunner().invoke(cli, ["chain", "show", *arguments])


def test_a_healthy_chain_as_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(SERVING, HEALTHY)
    shown = run(cluster, monkeypatch, "t", "1", "-o", "json")
    assert shown.exit_code == 0 and cluster.asked == ["a:1", "b:1", "c:1"]
    document = json.loads(shown.stdout)
    assert [(row["node"], row["role"], row["lag"], row["following"]) for row in document["members"]] == [
        ("a", "head", 0, None),
        ("b", "middle", 0, "a"),
        ("c", "tail", 3, "b"),
    ]
    tail = document["members"][2]
    assert (tail["high_seq"], tail["durable_seq"], tail["visible_seq"]) == (97, 96, 95)
    assert tail["durable"] == {"a": 99, "b": 98} and tail["incarnation"] == "63" and tail["problem"] is None
    del document["members"]
    assert document == {
        "topic": "t",
        "shard": 1,
        "epoch": 3,
        "commit_point": 98,
        "min_durable": 3,
        "min_replicas": 2,
        "accepts_writes": True,
        "tables_agree": True,
        "next_step": None,
        "takeover": [
            {"history_id": (b"1" * 16).hex(), "start_seq": 0, "epoch": 1},
            {"history_id": (b"2" * 16).hex(), "start_seq": 5, "epoch": 3},
        ],
    }


def test_a_healthy_chain_as_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run(Cluster(SERVING, HEALTHY), monkeypatch, "t", "1", "-o", "table")
    blocks = [block.splitlines() for block in shown.stdout.split("\n\n")]
    assert [len(block) for block in blocks] == [4, 9, 3]
    assert blocks[0][0].split() == [
        *("NODE", "ADDRESS", "ROLE", "STATE", "HIGH_SEQ", "DURABLE_SEQ", "VISIBLE_SEQ", "LAG"),
        *("PHASE", "SYNC", "FOLLOWING", "PROBLEM"),
    ]
    assert blocks[0][3].split()[:8] == ["c", "c:1", "tail", "serving", "97", "96", "95", "3"]
    assert blocks[2][2].split() == ["32" * 16, "5", "3"]


def test_members_that_do_not_answer_are_shown_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run(Cluster(SERVING, {"b": HEALTHY["b"]}), monkeypatch, "t", "1", "-o", "json")
    assert shown.exit_code == 1
    assert "2 of 3 members have a problem, the first is a: no answer: UNAVAILABLE" in shown.stderr
    document = json.loads(shown.stdout)
    lost, kept, _ = document["members"]
    assert lost["state"] == "serving" and lost["address"] == "a:1" and lost["high_seq"] is None is lost["role"]
    assert kept["high_seq"] == 100 and kept["lag"] is None and kept["problem"] is None
    assert document["accepts_writes"] is None and document["commit_point"] == 98
    nobody = summarize(Cluster(SERVING, {}).chain("t", 1))
    assert (nobody["commit_point"], nobody["tables_agree"], nobody["takeover"]) == (None, None, [])


def test_what_does_not_fit_together_is_told() -> None:
    answers = {**HEALTHY, "b": status("b", "middle", 90, epoch=2), "c": status("c", "none", 80, problem="wedged")}
    answers["c"].takeover.pop()
    found = Cluster(SERVING, answers).chain("t", 1)
    assert summarize(found)["tables_agree"] is False
    problems = [member_row(found, member)["problem"] for member in found.members]
    assert problems == [None, "it is at epoch 2, the view at 3", "wedged"]
    elsewhere = Cluster(SERVING, {**HEALTHY, "b": cluster_pb2.ShardStatus(topic="t", shard=5)}).chain("t", 1)
    assert member_row(elsewhere, elsewhere.members[1])["problem"] == "the node does not hold the shard"


@pytest.mark.parametrize(
    ("state", "is_close", "is_ready", "step"),
    [
        (MemberState.WAITING, False, False, "d: wait, it catches up"),
        (MemberState.WAITING, True, False, "d: ready to be made syncing"),
        (MemberState.SYNCING, True, False, "d: wait, it syncs"),
        (MemberState.SYNCING, True, True, "d: ready to be made serving"),
        (MemberState.SERVING, True, True, None),
    ],
)
def test_the_next_step_of_a_newcomer(state: MemberState, is_close: bool, is_ready: bool, step: str | None) -> None:
    learner = cluster_pb2.Learner(node="d", is_close=is_close, is_ready=is_ready)
    answers = {**HEALTHY, "c": status("c", "tail", 97, learner=learner), "d": status("d", "learner", 50)}
    found = Cluster((*SERVING, Member("d", state=state)), answers).chain("t", 1)
    assert find_next_step(found) == step
    assert member_row(found, found.members[3])["lag"] == 50


def test_the_next_step_is_not_known_without_the_one_that_feeds() -> None:
    newcomer = Member("d", state=MemberState.WAITING)
    for answers in ({"a": HEALTHY["a"]}, HEALTHY):
        found = Cluster((*SERVING, newcomer), answers).chain("t", 1)
        assert find_next_step(found) == "d: wait until c, which feeds it, tells of it"


def test_unknown_topics_and_shards_are_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(SERVING, HEALTHY)
    with pytest.raises(ShardNotFound, match="'t' has no shard 7: its shards are 0 to 1"):
        cluster.chain("t", 7)
    with pytest.raises(TopicNotFound):
        cluster.chain("x", 0)
    assert isinstance(run(cluster, monkeypatch, "t", "7").exception, ShardNotFound)
    assert run(cluster, monkeypatch, "t", "-1").exit_code == 2


def test_members_survive_the_wire() -> None:
    members = (*SERVING, Member("d", b"\x00" * 16, MemberState.SYNCING))
    wire = shard_view_to_wire(0, ChainView(9, members, tails=2), ADDRESSES)
    assert tuple(map(member_from_wire, wire.members)) == members
    assert (wire.epoch, list(wire.chain), list(wire.tails)) == (9, ["a:1", "b:1", "c:1"], ["b:1", "c:1"])
