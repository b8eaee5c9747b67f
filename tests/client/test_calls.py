"""Calls with retries: how a search for a server ends, and what it says."""

from typing import Any

import pytest

from kayos.client.core import pins
from kayos.client.core.calls import Attempts, Directory, fetch_view
from kayos.client.core.settings import make_settings
from kayos.client.core.steps import Invoke, Pause, Steps
from kayos.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    KayosError,
    Overloaded,
    SnapshotExpired,
    Unavailable,
)
from kayos.wire.v1 import cluster_pb2, log_pb2, types_pb2

REFUSED = Unavailable("UNAVAILABLE: connection refused")
TOO_LATE = DeadlineExceeded("DEADLINE_EXCEEDED: Deadline Exceeded")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def end_of(*failures: KayosError) -> KayosError:
    """What the caller is told when every try fails and the last one at the deadline."""
    clock = Clock()
    attempts = Attempts(Directory(make_settings("a:1,b:2"), clock), 1.0)
    *early, last = failures
    for failure in early:
        assert isinstance(attempts.pause_after(failure), Pause)
    clock.now += 0.9999
    assert 0 < attempts.left_s < 0.01
    with pytest.raises(KayosError) as caught:
        attempts.pause_after(last)
    return caught.value


def test_a_search_in_vain_names_the_servers_and_what_to_do() -> None:
    found = end_of(REFUSED, REFUSED)
    assert type(found) is Unavailable
    assert "no server of a:1,b:2 answered within 1 s" in found.message
    assert "see that a node runs there" in found.message


def test_a_last_try_without_time_does_not_hide_what_the_others_were_told() -> None:
    assert end_of(REFUSED, TOO_LATE).message == end_of(REFUSED, REFUSED).message
    assert type(end_of(Overloaded("full"), TOO_LATE)) is Overloaded


def test_silence_throughout_is_a_deadline() -> None:
    found = end_of(TOO_LATE, TOO_LATE)
    assert type(found) is DeadlineExceeded
    assert "no answer within 1 s" in found.message


class Nodes:
    """Answers one piece of work from a script of replies, in their order; an error is thrown."""

    def __init__(self, *replies: Any) -> None:
        self.directory = Directory(make_settings("a:1,b:2"), Clock())
        self.asked: list[tuple[str, str]] = []
        self._replies = iter(replies)

    def run(self, steps: Steps[Any]) -> Any:
        reply: Any = None
        while True:
            try:
                step = steps.throw(reply) if isinstance(reply, KayosError) else steps.send(reply)
            except StopIteration as done:
                return done.value
            reply = None
            if isinstance(step, Invoke):
                self.asked.append((step.address, step.method.name))
                reply = next(self._replies)


def view_of(epoch: int, topic_id: str = "1") -> cluster_pb2.GetViewResponse:
    shard = cluster_pb2.ShardView(shard=0, epoch=epoch, chain=["h:1"], tails=["t:1"])
    return cluster_pb2.GetViewResponse(topic=cluster_pb2.Topic(name="t", topic_id=topic_id, shards=1), shards=[shard])


def test_a_view_that_is_over_is_not_followed() -> None:
    # b was away, and still tells of epoch 1
    nodes = Nodes(view_of(2), view_of(1), view_of(2), view_of(1, topic_id="2"))
    assert nodes.run(fetch_view(nodes.directory, "t")).routes[0].epoch == 2
    nodes.directory.try_next_server()
    assert nodes.run(fetch_view(nodes.directory, "t")).routes[0].epoch == 2
    assert [address for address, _ in nodes.asked] == ["a:1", "b:2", "a:1"]
    # A topic that was made anew begins anew
    assert nodes.run(fetch_view(nodes.directory, "t")).routes[0].epoch == 1


BROKEN = Unavailable("UNAVAILABLE: the connection was reset")
EXISTS = FailedPrecondition("pin 'p' exists or existed: choose another name")
PIN = types_pb2.Pin(pin_id="p", seq=7)


def test_a_pin_that_a_lost_answer_told_of_is_found() -> None:
    nodes = Nodes(view_of(1), BROKEN, view_of(1), EXISTS, log_pb2.ListPinsResponse(pins=[PIN]))
    (pin,) = nodes.run(pins.create(nodes.directory, "t", pin_id="p", lease_ms=0, shard=None))
    assert (pin.pin_id, pin.seq) == ("p", 7)
    assert [name for _, name in nodes.asked if name != "GetView"] == ["CreatePin", "CreatePin", "ListPins"]


def test_a_pin_that_somebody_else_made_is_refused() -> None:
    nodes = Nodes(view_of(1), EXISTS)
    with pytest.raises(FailedPrecondition):
        nodes.run(pins.create(nodes.directory, "t", pin_id="p", lease_ms=0, shard=None))


def test_releasing_again_what_a_lost_answer_released_succeeds() -> None:
    ended = SnapshotExpired("pin 'p' ended: released")
    nodes = Nodes(view_of(1), BROKEN, view_of(1), ended)
    nodes.run(pins.release(nodes.directory, "t", "p", shard=None))
    nodes = Nodes(view_of(1), ended)
    with pytest.raises(SnapshotExpired):
        nodes.run(pins.release(nodes.directory, "t", "p", shard=None))
