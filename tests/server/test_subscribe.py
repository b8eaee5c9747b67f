"""Subscribing: snapshots and their boundaries, long polls, starts, and marks that cannot be continued."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from kayos.errors import OutOfRange, ResetRequired, RollbackRequired
from kayos.wire.v1 import cluster_pb2, log_pb2, types_pb2
from tests.nodes import NodeProcess
from tests.server.calls import TIMEOUT_S, Calls, Snapshot, apply, error_of, shard, snapshots_of


async def test_a_snapshot_holds_the_newest_revision_of_each_key_once(calls: Calls, topic: str) -> None:
    for revision in range(3):
        await calls.put(topic, {b"a": b"%d" % revision, b"b": b"%d" % revision})
    (snapshot,) = await calls.read_all(topic)
    assert [(record.seq, record.key, record.value) for record in snapshot.records] == [(5, b"a", b"2"), (6, b"b", b"2")]
    assert (snapshot.start_seq, snapshot.end_seq, snapshot.mark.seq) == (0, 6, 6)


async def test_snapshots_under_load_meet_at_their_boundaries(calls: Calls, topic: str) -> None:
    async def write() -> int:
        last = 0
        for number in range(300):
            last = (await calls.put(topic, {b"k%d" % (number % 7): b"%d" % number, b"busy": b"%d" % number})).last_seq
        return last

    writing = asyncio.ensure_future(write())
    state: dict[bytes, bytes] = {}
    position = seen = 0
    async for snapshot in calls.subscribe(topic, after_seq=0):
        seen += 1
        assert snapshot.start_seq == position
        assert snapshot.seqs == sorted(set(snapshot.seqs))
        assert position < snapshot.seqs[0] and snapshot.seqs[-1] <= snapshot.end_seq
        keys = [record.key for record in snapshot.records]
        assert len(keys) == len(set(keys))
        apply(state, snapshot)
        position = snapshot.end_seq
        if writing.done() and position >= writing.result():
            break
    assert state == await calls.contents(topic)
    assert seen > 3, "the consumer was to meet several boundaries"


async def test_a_long_poll_wakes_on_a_message(calls: Calls, topic: str) -> None:
    snapshots = calls.subscribe(topic, after_seq=0)
    waiting = asyncio.ensure_future(anext(snapshots))
    await calls.put(topic, {b"a": b"1"})
    assert (await waiting).values == {b"a": b"1"}
    await calls.put(topic, {b"a": b"2"})
    assert (await anext(snapshots)).values == {b"a": b"2"}


async def test_two_idle_consumers_that_commit_marks_do_not_wake_each_other(calls: Calls, topic: str) -> None:
    rounds = 10
    streams = {name: calls.subscribe(topic, consumer=name) for name in ("one", "two")}
    for number in range(rounds):
        await calls.put(topic, {b"a": b"%d" % number})
        for name, stream in streams.items():
            snapshot = await anext(stream)
            # Had a mark woken it, this snapshot would be an empty one, or one too many.
            assert [record.value for record in snapshot.records] == [b"%d" % number]
            request = log_pb2.CommitMarkRequest(shard=shard(topic), consumer=name, mark=snapshot.mark)
            await calls.CommitMark(request, timeout=TIMEOUT_S)
    waiting = [asyncio.ensure_future(anext(stream)) for stream in streams.values()]
    # A third one, at the end of the log, comes and goes: by then a woken one would have spoken.
    for _ in range(20):
        assert await calls.read_all(topic, latest=True) == []
    assert not any(task.done() for task in waiting)
    assert (await calls.status(topic)).high_seq == rounds * 3
    for task in waiting:
        task.cancel()


async def test_tombstones_come_like_other_messages(calls: Calls, topic: str) -> None:
    """From a mark and from the beginning, until they are purged: the newest revision of each key, or its tombstone."""
    await calls.put(topic, {b"a": b"1", b"b": b"1"})
    (first,) = await calls.read_all(topic)
    await calls.delete(topic, b"a")
    (from_zero,) = await calls.read_all(topic)
    (from_mark,) = await calls.read_all(topic, mark=first.mark)
    assert [(record.kind, record.key) for record in from_zero.records] == [(1, b"b"), (2, b"a")]
    assert [(record.kind, record.key) for record in from_mark.records] == [(2, b"a")]


async def test_starts_from_sequence_time_and_latest(calls: Calls, topic: str) -> None:
    first = await calls.append(topic, b"1")
    await clock_passes(first.timestamp_ms, calls)
    second = await calls.append(topic, b"2")
    await clock_passes(second.timestamp_ms, calls)
    await calls.append(topic, b"3")

    async def values(**start: object) -> list[bytes]:
        return [record.value for snapshot in await calls.read_all(topic, **start) for record in snapshot.records]

    assert await values(after_seq=0) == [b"1", b"2", b"3"]
    assert await values(after_seq=1) == [b"2", b"3"]
    assert await values(from_time_ms=0) == [b"1", b"2", b"3"]
    assert await values(from_time_ms=second.timestamp_ms) == [b"2", b"3"]
    assert await values(from_time_ms=second.timestamp_ms + 1) == [b"3"]
    assert await values(from_time_ms=second.timestamp_ms + 3_600_000) == []
    assert await values(latest=True) == []
    assert await values(mark=types_pb2.Mark()) == [b"1", b"2", b"3"]
    code, error = await error_of(calls.read_all(topic, after_seq=99))
    assert code is grpc.StatusCode.OUT_OF_RANGE and isinstance(error, OutOfRange)


async def clock_passes(timestamp_ms: int, calls: Calls) -> None:
    """Until the node's clock shows a later millisecond, so that the next message has a later time."""
    await calls.create_topic("clock", mode=2)
    while (await calls.append("clock", b"tick")).timestamp_ms <= timestamp_ms:
        pass


async def test_latest_gives_what_comes_and_nothing_of_before(calls: Calls, topic: str) -> None:
    await calls.put(topic, {b"old": b"1"})
    stream = calls.Subscribe(log_pb2.SubscribeRequest(shard=shard(topic), latest=True), timeout=TIMEOUT_S)
    reading = asyncio.ensure_future(stream.read())
    number = 0
    while not reading.done():
        number += 1
        await calls.put(topic, {b"new": b"%d" % number})
    begin = (await reading).begin
    assert begin.start_seq >= 1
    stream.cancel()


async def test_a_mark_ahead_of_the_log_waits_for_it(calls: Calls, topic: str) -> None:
    written = await calls.append(topic, b"1")
    ahead = types_pb2.Mark(history_id=written.history_id, seq=2)
    code, _ = await error_of(calls.Subscribe(subscribe_request(topic, ahead), timeout=0.2))
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    waiting = asyncio.ensure_future(anext(calls.subscribe(topic, mark=ahead)))
    await calls.append(topic, b"2")
    await calls.append(topic, b"3")
    assert [record.value for record in (await waiting).records] == [b"3"]


def subscribe_request(topic: str, mark: types_pb2.Mark) -> log_pb2.SubscribeRequest:
    return log_pb2.SubscribeRequest(shard=shard(topic), mark=mark)


async def test_a_foreign_history_means_reset(calls: Calls, topic: str) -> None:
    await calls.append(topic, b"1")
    foreign = types_pb2.Mark(history_id=b"?" * 16, seq=1)
    code, error = await error_of(calls.Subscribe(subscribe_request(topic, foreign), timeout=TIMEOUT_S))
    assert code is grpc.StatusCode.ABORTED and isinstance(error, ResetRequired)


async def test_a_mark_beyond_the_end_of_its_history_means_rollback(tmp_path: Path) -> None:
    with NodeProcess.start(tmp_path / "data") as node:
        async with Calls(node.address) as calls:
            await calls.create_topic("t")
            first = await calls.append("t", b"1", b"2")
        node.kill()
    with NodeProcess.start(tmp_path / "data") as node:
        async with Calls(node.address) as calls:
            later = await calls.append("t", b"3", b"4")
            assert later.history_id != first.history_id
            # Where the old history ended, one goes on; beyond, what was read never came to be.
            (snapshot,) = await calls.read_all("t", mark=types_pb2.Mark(history_id=first.history_id, seq=2))
            assert [record.value for record in snapshot.records] == [b"3", b"4"]
            beyond = types_pb2.Mark(history_id=first.history_id, seq=4)
            code, error = await error_of(calls.Subscribe(subscribe_request("t", beyond), timeout=TIMEOUT_S))
            assert code is grpc.StatusCode.ABORTED
            assert isinstance(error, RollbackRequired) and error.seq == 2


async def test_a_reader_below_the_purge_starts_again(calls: Calls) -> None:
    name = "purged"
    await calls.create_topic(name, retention=cluster_pb2.Retention(tombstone_ms=1))
    early = await calls.put(name, {b"early": b"1"})
    await clock_passes(early.timestamp_ms, calls)
    stays = await calls.put(name, {b"stays": b"1", b"goes": b"1"})
    (before,) = await calls.read_all(name)
    await calls.delete(name, b"goes")
    while (await calls.status(name)).purge_seq < 4:
        pass
    code, error = await error_of(calls.read_all(name, mark=before.mark))
    assert code is grpc.StatusCode.ABORTED
    assert isinstance(error, ResetRequired) and error.number("purge_seq") == 4
    (again,) = await calls.read_all(name)
    assert again.values == {b"early": b"1", b"stays": b"1"} and again.purge_seq == 4
    # Who starts at a time holds nothing yet, so nothing at or after that time is skipped or refused.
    (from_time,) = await calls.read_all(name, from_time_ms=stays.timestamp_ms)
    assert from_time.values == {b"stays": b"1"}


async def test_many_far_behind_subscribers_share_one_pin(calls: Calls, topic: str) -> None:
    value = b"v" * 1_000
    for number in range(0, 2_000, 500):
        await calls.put(topic, {b"k%d" % key: value for key in range(number, number + 500)})

    async def read_one() -> Snapshot:
        return await anext(calls.subscribe(topic, after_seq=0, batch_bytes=64 * 1024))

    snapshots = await asyncio.gather(*(read_one() for _ in range(20)))
    pins = (await calls.ListPins(log_pb2.ListPinsRequest(shard=shard(topic)), timeout=TIMEOUT_S)).pins
    assert all(len(snapshot.records) == 2_000 for snapshot in snapshots)
    assert {snapshot.end_seq for snapshot in snapshots} <= {pin.seq for pin in pins}
    assert 1 <= len(pins) <= 2 and all(pin.pin_id.startswith("shared.") for pin in pins)


async def test_a_large_snapshot_is_one_boundary_while_writes_go_on(calls: Calls, topic: str) -> None:
    value = b"v" * 1_000
    for number in range(0, 1_000, 500):
        await calls.put(topic, {b"k%03d" % key: value for key in range(number, number + 500)})
    stream = calls.Subscribe(
        log_pb2.SubscribeRequest(shard=shard(topic), after_seq=0, batch_bytes=16 * 1024), timeout=TIMEOUT_S
    )
    begin = await stream.read()
    end_seq = begin.begin.end_seq
    for _ in range(5):
        await calls.put(topic, {b"k%03d" % key: b"new" for key in range(0, 1_000, 3)})
    await calls.delete(topic, b"k001")

    async def rest() -> AsyncIterator[log_pb2.SubscribeResponse]:
        yield begin
        while True:
            event = await stream.read()
            yield event
            if event.WhichOneof("event") == "end":
                return

    snapshot = await anext(snapshots_of(rest()))
    assert snapshot.end_seq == end_seq and set(snapshot.values.values()) == {value}
    assert len(snapshot.records) == 1_000
    stream.cancel()
