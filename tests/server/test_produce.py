"""Producing: sequences, de-duplication, transactions, conditions, idempotence, streams, Wait and Get."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from kayos.errors import ConditionFailed, ProducerFenced, ProducerUnknown, ResetRequired, WrongMode
from kayos.wire.status import error_from_bytes
from kayos.wire.v1 import log_pb2, types_pb2
from tests.nodes import NodeProcess
from tests.server.calls import TIMEOUT_S, Calls, error_of, shard


async def test_messages_of_a_request_take_consecutive_sequences(calls: Calls, topic: str) -> None:
    first = await calls.put(topic, {b"a": b"1", b"b": b"2"})
    second = await calls.append(topic, b"x", b"y", b"z")
    assert (first.first_seq, first.last_seq, first.copies, len(first.history_id)) == (1, 2, 1, 16)
    assert (second.first_seq, second.last_seq) == (3, 5)


async def test_a_key_keeps_only_its_newest_revision(calls: Calls, topic: str) -> None:
    for revision in range(5):
        await calls.put(topic, {b"a": b"%d" % revision})
    await calls.append(topic, b"unkeyed", b"unkeyed")
    (snapshot,) = await calls.read_all(topic)
    assert [(record.seq, record.key, record.value) for record in snapshot.records] == [
        (5, b"a", b"4"),
        (6, b"", b"unkeyed"),
        (7, b"", b"unkeyed"),
    ]


async def test_a_log_topic_keeps_every_revision(calls: Calls, log_topic: str) -> None:
    for revision in range(3):
        await calls.put(log_topic, {b"a": b"%d" % revision})
    (snapshot,) = await calls.read_all(log_topic)
    assert [record.value for record in snapshot.records] == [b"0", b"1", b"2"]


async def test_headers_arrive_with_their_message(calls: Calls, topic: str) -> None:
    headers = types_pb2.IndexedHeaders(index=1, headers=[types_pb2.Header(name="trace", value=b"\x00\xff")])
    await calls.put(topic, {b"a": b"1", b"b": b"2"}, headers=[headers])
    (snapshot,) = await calls.read_all(topic)
    assert [record.headers for record in snapshot.records] == [(), (("trace", b"\x00\xff"),)]
    found = await calls.Get(log_pb2.GetRequest(shard=shard(topic), key=b"b"), timeout=TIMEOUT_S)
    assert [(header.name, header.value) for header in found.headers] == [("trace", b"\x00\xff")]


async def test_mixed_kinds_in_one_request(calls: Calls, topic: str) -> None:
    await calls.put(topic, {b"a": b"1"})
    request = log_pb2.ProduceRequest(
        shard=shard(topic), keys=[b"b", b"a", b""], values=[b"2", b"", b"x"], kinds=b"\x01\x02\x03"
    )
    await calls.Produce(request, timeout=TIMEOUT_S)
    assert await calls.contents(topic) == {b"b": b"2", b"": b"x"}


async def test_a_retry_is_stored_once(calls: Calls, topic: str) -> None:
    producer = log_pb2.Producer(producer_id=b"p", producer_epoch=0, number=1)
    first = await calls.append(topic, b"x", producer=producer)
    again = await calls.append(topic, b"x", producer=producer)
    assert (again.first_seq, again.last_seq, again.history_id) == (first.first_seq, first.last_seq, first.history_id)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert (await calls.status(topic)).messages == 1


async def test_a_retry_is_stored_once_also_after_kill_and_restart(tmp_path: Path) -> None:
    producer = log_pb2.Producer(producer_id=b"p", producer_epoch=0, number=1)
    with NodeProcess.start(tmp_path / "data") as node:
        async with Calls(node.address) as calls:
            await calls.create_topic("t")
            first = await calls.put("t", {b"a": b"1"}, producer=producer)
        node.kill()
    with NodeProcess.start(tmp_path / "data") as node:
        async with Calls(node.address) as calls:
            again = await calls.put("t", {b"a": b"1"}, producer=producer)
            assert again.duplicate
            assert (again.first_seq, again.history_id) == (first.first_seq, first.history_id)
            (snapshot,) = await calls.read_all("t")
            assert snapshot.values == {b"a": b"1"}
            # A new history began, since the process did.
            later = await calls.put("t", {b"a": b"2"})
            assert later.history_id != first.history_id


async def test_producers_are_fenced_and_unknown_ones_refused(calls: Calls, topic: str) -> None:
    await calls.append(topic, b"x", producer=log_pb2.Producer(producer_id=b"p", producer_epoch=5, number=1))
    _, fenced = await error_of(
        calls.append(topic, b"x", producer=log_pb2.Producer(producer_id=b"p", producer_epoch=4, number=2))
    )
    assert isinstance(fenced, ProducerFenced) and fenced.number("producer_epoch") == 5
    _, unknown = await error_of(calls.append(topic, b"x", producer=log_pb2.Producer(producer_id=b"q", number=7)))
    assert isinstance(unknown, ProducerUnknown)


async def test_one_failed_condition_refuses_the_whole_transaction(calls: Calls, topic: str) -> None:
    await calls.put(topic, {b"a": b"1", b"b": b"1"})
    conditions = [log_pb2.Condition(index=0, expected_seq=1), log_pb2.Condition(index=1, expected_seq=1)]
    code, error = await error_of(calls.put(topic, {b"a": b"2", b"b": b"2"}, conditions=conditions))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert isinstance(error, ConditionFailed)
    assert (error.number("index"), error.number("expected_seq"), error.current_seq) == (1, 1, 2)
    assert await calls.contents(topic) == {b"a": b"1", b"b": b"1"}
    await calls.put(topic, {b"a": b"2"}, conditions=[log_pb2.Condition(index=0, expected_seq=1)])
    _, exists = await error_of(calls.put(topic, {b"a": b"3"}, conditions=[log_pb2.Condition(index=0)]))
    assert isinstance(exists, ConditionFailed) and exists.current_seq == 3
    await calls.delete(topic, b"a")
    await calls.put(topic, {b"a": b"4"}, conditions=[log_pb2.Condition(index=0)])


async def test_only_one_of_many_racing_conditional_writes_wins(calls: Calls, topic: str) -> None:
    async def write(value: bytes) -> bool:
        try:
            await calls.put(topic, {b"lock": value}, conditions=[log_pb2.Condition(index=0)])
        except grpc.RpcError:
            return False
        return True

    won = await asyncio.gather(*(write(b"%d" % number) for number in range(50)))
    assert sum(won) == 1


async def test_what_needs_keys_is_refused_in_a_log_topic(calls: Calls, log_topic: str) -> None:
    condition = [log_pb2.Condition(index=0)]
    for call in (
        calls.delete(log_topic, b"a"),
        calls.put(log_topic, {b"a": b"1"}, conditions=condition),
        calls.Get(log_pb2.GetRequest(shard=shard(log_topic), key=b"a"), timeout=TIMEOUT_S),
    ):
        code, error = await error_of(call)
        assert code is grpc.StatusCode.FAILED_PRECONDITION and isinstance(error, WrongMode)


async def test_a_stream_answers_in_order_and_goes_on_after_an_error(calls: Calls, topic: str) -> None:
    async def requests() -> AsyncIterator[log_pb2.ProduceRequest]:
        for number in range(100):
            values = [] if number == 50 else [b"%d" % number]
            yield log_pb2.ProduceRequest(shard=shard(topic), values=values, correlation=number)

    answers = [answer async for answer in calls.ProduceStream(requests(), timeout=TIMEOUT_S)]
    assert [answer.correlation for answer in answers] == list(range(100))
    assert [answer.correlation for answer in answers if answer.error] == [50]
    assert error_from_bytes(answers[50].error).code == "INVALID_ARGUMENT"
    written = [answer.first_seq for answer in answers if not answer.error]
    assert written == list(range(1, 100))


async def test_pipelined_numbers_of_a_producer_keep_their_order(calls: Calls, topic: str) -> None:
    async def requests() -> AsyncIterator[log_pb2.ProduceRequest]:
        for number in range(1, 201):
            producer = log_pb2.Producer(producer_id=b"p", number=number)
            yield log_pb2.ProduceRequest(shard=shard(topic), values=[b"x"], producer=producer)

    answers = [answer async for answer in calls.ProduceStream(requests(), timeout=TIMEOUT_S)]
    assert [answer.first_seq for answer in answers] == list(range(1, 201))


async def test_a_stream_across_two_shards(calls: Calls) -> None:
    await calls.create_topic("two-shards", shards=2)

    async def requests() -> AsyncIterator[log_pb2.ProduceRequest]:
        for number in range(10):
            yield log_pb2.ProduceRequest(shard=shard("two-shards", number % 2), values=[b"x"])

    answers = [answer async for answer in calls.ProduceStream(requests(), timeout=TIMEOUT_S)]
    assert [answer.first_seq for answer in answers] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


async def test_wait_wants_the_history_of_the_sequence(calls: Calls, topic: str) -> None:
    written = await calls.append(topic, b"x")
    request = log_pb2.WaitRequest(shard=shard(topic), history_id=written.history_id, seq=written.last_seq, until=3)
    assert (await calls.Wait(request, timeout=TIMEOUT_S)).copies == 1
    request.history_id = b"?" * 16
    code, error = await error_of(calls.Wait(request, timeout=TIMEOUT_S))
    assert code is grpc.StatusCode.ABORTED and isinstance(error, ResetRequired)


async def test_wait_for_what_is_not_yet_written(calls: Calls, topic: str) -> None:
    written = await calls.append(topic, b"x")
    request = log_pb2.WaitRequest(shard=shard(topic), history_id=written.history_id, seq=2, until=1)
    waiting = calls.Wait(request, timeout=TIMEOUT_S)
    await calls.append(topic, b"y")
    assert (await waiting).copies == 1
    request.seq = 99
    code, _ = await error_of(calls.Wait(request, timeout=0.2))
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_get_reads_your_own_write_and_no_tombstone(calls: Calls, topic: str) -> None:
    waiting = calls.Get(log_pb2.GetRequest(shard=shard(topic), key=b"a", min_seq=1), timeout=TIMEOUT_S)
    await calls.put(topic, {b"a": b"1"})
    found = await waiting
    assert (found.found, found.seq, found.value) == (True, 1, b"1")
    await calls.delete(topic, b"a")
    gone = await calls.Get(log_pb2.GetRequest(shard=shard(topic), key=b"a"), timeout=TIMEOUT_S)
    assert (gone.found, gone.seq) == (False, 0)


async def test_a_message_past_its_ttl_goes_and_its_consumers_learn_of_it(calls: Calls, topic: str) -> None:
    await calls.put(topic, {b"a": b"1", b"b": b"1"}, ttls=[log_pb2.IndexedTtl(index=0, ttl_ms=300)])
    snapshots = calls.subscribe(topic, after_seq=0)
    state: dict[bytes, bytes] = {}
    kinds = []
    async for snapshot in snapshots:
        kinds += [record.kind for record in snapshot.records]
        for record in snapshot.records:
            if record.kind == 2:
                state.pop(record.key)
            else:
                state[record.key] = record.value
        if 2 in kinds:
            break
    assert state == {b"b": b"1"} and kinds == [1, 1, 2]


@pytest.mark.parametrize("durability", [0, 1])
async def test_durability_up_to_the_number_of_replicas(calls: Calls, topic: str, durability: int) -> None:
    assert (await calls.append(topic, b"x", durability=durability)).copies == 1
