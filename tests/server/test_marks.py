"""Marks that the server holds: they rise, survive, and go back only by an operator's act."""

from pathlib import Path

import grpc

from kayos.errors import MarkAhead, MarkBackwards, MarkNotFound, OutOfRange, ResetRequired
from kayos.wire.v1 import log_pb2, types_pb2
from tests.nodes import NodeProcess
from tests.server.calls import TIMEOUT_S, Calls, error_of, shard


async def commit(calls: Calls, topic: str, consumer: str, mark: types_pb2.Mark) -> None:
    request = log_pb2.CommitMarkRequest(shard=shard(topic), consumer=consumer, mark=mark)
    await calls.CommitMark(request, timeout=TIMEOUT_S)


async def get(calls: Calls, topic: str, consumer: str) -> log_pb2.GetMarkResponse:
    return await calls.GetMark(log_pb2.GetMarkRequest(shard=shard(topic), consumer=consumer), timeout=TIMEOUT_S)


async def reset(calls: Calls, topic: str, consumer: str, **to: object) -> log_pb2.ResetMarkResponse:
    request = log_pb2.ResetMarkRequest(shard=shard(topic), consumer=consumer, **to)
    return await calls.ResetMark(request, timeout=TIMEOUT_S)


async def marks_of(calls: Calls, topic: str) -> dict[str, int]:
    response = await calls.ListMarks(log_pb2.ListMarksRequest(shard=shard(topic)), timeout=TIMEOUT_S)
    return {entry.consumer: entry.mark.seq for entry in response.marks}


async def test_a_consumer_goes_on_from_the_mark_it_committed(calls: Calls, topic: str) -> None:
    await calls.put(topic, {b"a": b"1", b"b": b"1"})
    (first,) = await calls.read_all(topic, consumer="c")
    await commit(calls, topic, "c", first.mark)
    await calls.put(topic, {b"b": b"2"})
    (second,) = await calls.read_all(topic, consumer="c")
    assert second.values == {b"b": b"2"} and second.start_seq == first.mark.seq
    found = await get(calls, topic, "c")
    assert found.mark == first.mark and found.high_seq == 4


async def test_a_mark_never_moves_back_nor_ahead_of_the_log(calls: Calls, topic: str) -> None:
    await calls.put(topic, {b"a": b"1"})
    (early,) = await calls.read_all(topic)
    await calls.put(topic, {b"a": b"2"})
    (late,) = await calls.read_all(topic)
    await commit(calls, topic, "c", late.mark)
    await commit(calls, topic, "c", late.mark)  # again the same one: nothing wrong with that
    code, error = await error_of(commit(calls, topic, "c", early.mark))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert isinstance(error, MarkBackwards) and error.number("stored_seq") == late.mark.seq
    ahead = types_pb2.Mark(history_id=late.mark.history_id, seq=1_000)
    code, error = await error_of(commit(calls, topic, "c", ahead))
    assert code is grpc.StatusCode.FAILED_PRECONDITION and isinstance(error, MarkAhead)
    foreign = types_pb2.Mark(history_id=b"?" * 16, seq=late.mark.seq)
    code, error = await error_of(commit(calls, topic, "c", foreign))
    assert code is grpc.StatusCode.ABORTED and isinstance(error, ResetRequired)
    assert (await get(calls, topic, "c")).mark == late.mark


async def test_an_operator_moves_a_mark_anywhere_and_looks_before(calls: Calls, topic: str) -> None:
    first = await calls.append(topic, b"1")
    await calls.append(topic, b"2", b"3")
    assert (await reset(calls, topic, "c", latest=True)).after.seq == 3
    preview = await reset(calls, topic, "c", seq=1, dry_run=True)
    assert (preview.before.seq, preview.after.seq, preview.after.history_id) == (3, 1, first.history_id)
    assert (await get(calls, topic, "c")).mark.seq == 3
    assert (await reset(calls, topic, "c", seq=1)).before.seq == 3
    (snapshot,) = await calls.read_all(topic, consumer="c")
    assert [record.value for record in snapshot.records] == [b"2", b"3"]
    assert (await reset(calls, topic, "c", seq=0)).after.seq == 0
    assert (await reset(calls, topic, "c", time_ms=first.timestamp_ms)).after.seq == 0
    beyond = await reset(calls, topic, "c", time_ms=first.timestamp_ms + 3_600_000)
    assert beyond.after.seq >= 3
    code, error = await error_of(reset(calls, topic, "c", seq=10**6))
    assert code is grpc.StatusCode.OUT_OF_RANGE and isinstance(error, OutOfRange)


async def test_a_dropped_mark_is_forgotten(calls: Calls, topic: str) -> None:
    await calls.append(topic, b"1")
    await reset(calls, topic, "c", latest=True)
    await reset(calls, topic, "d", latest=True)
    await reset(calls, topic, "c", drop=True, dry_run=True)
    assert set(await marks_of(calls, topic)) == {"c", "d"}
    await reset(calls, topic, "c", drop=True)
    assert set(await marks_of(calls, topic)) == {"d"}
    for call in (get(calls, topic, "c"), reset(calls, topic, "c", drop=True)):
        code, error = await error_of(call)
        assert code is grpc.StatusCode.NOT_FOUND and isinstance(error, MarkNotFound)
    # A consumer without a mark begins at the beginning.
    (snapshot,) = await calls.read_all(topic, consumer="c")
    assert snapshot.start_seq == 0


async def test_marks_survive_kill_and_restart(tmp_path: Path) -> None:
    with NodeProcess.start(tmp_path / "data") as node:
        async with Calls(node.address) as calls:
            await calls.create_topic("t")
            await calls.put("t", {b"a": b"1"})
            (snapshot,) = await calls.read_all("t")
            await commit(calls, "t", "c", snapshot.mark)
        node.kill()
    with NodeProcess.start(tmp_path / "data") as node:
        async with Calls(node.address) as calls:
            assert (await get(calls, "t", "c")).mark == snapshot.mark
            assert await calls.read_all("t", consumer="c") == []
            await calls.put("t", {b"b": b"2"})
            (later,) = await calls.read_all("t", consumer="c")
            assert later.values == {b"b": b"2"}
