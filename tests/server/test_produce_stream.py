"""The pipelined stream by itself: bounded ahead of its answers in count and bytes, and clean at every end."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kayos.errors import InvalidArgument, ShuttingDown
from kayos.limits import PRODUCE_STREAM_IN_FLIGHT_MAX
from kayos.server.memory import MemoryBudget
from kayos.server.produce_stream import serve_produce_stream
from kayos.server.rpc import Call, Gate
from kayos.wire.status import error_from_bytes
from kayos.wire.v1 import log_pb2


class Producer:
    """A client that sends without end and a shard that answers when it is told to."""

    def __init__(self, *, value: bytes = b"x", count: int = 10**9) -> None:
        self.taken = 0
        self.answers: list[log_pb2.ProduceResponse] = []
        self.release = asyncio.Semaphore(0)
        self.gate = Gate({})
        self._value = value
        self._count = count

    async def requests(self) -> AsyncIterator[log_pb2.ProduceRequest]:
        for number in range(self._count):
            self.taken += 1
            yield log_pb2.ProduceRequest(values=[self._value], correlation=number)
            await asyncio.sleep(0)

    async def produce(self, request: log_pb2.ProduceRequest) -> log_pb2.ProduceResponse:
        await self.release.acquire()
        if request.correlation % 3 == 2:
            raise InvalidArgument("every third is wrong")
        return log_pb2.ProduceResponse(correlation=request.correlation)

    async def write(self, encoded: bytes) -> None:
        self.answers.append(log_pb2.ProduceResponse.FromString(encoded))

    def serve(self, budget: MemoryBudget) -> "asyncio.Task[None]":
        call = Call(self, self.gate)
        return asyncio.ensure_future(serve_produce_stream(self.requests(), self.produce, call, budget))


async def turns(count: int = 200) -> None:
    """Let everything that can go on go on."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_no_more_than_the_bound_is_taken_ahead_of_its_answers() -> None:
    producer, budget = Producer(), MemoryBudget(1 << 20)
    serving = producer.serve(budget)
    await turns()
    assert producer.taken == PRODUCE_STREAM_IN_FLIGHT_MAX
    producer.release.release()
    await turns()
    assert (producer.taken, len(producer.answers)) == (PRODUCE_STREAM_IN_FLIGHT_MAX + 1, 1)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert budget.bytes_held == 0


async def test_all_streams_together_keep_to_the_budget() -> None:
    budget = MemoryBudget(10_000)
    producers = [Producer(value=b"v" * 3_000) for _ in range(5)]
    serving = [producer.serve(budget) for producer in producers]
    await turns()
    assert budget.bytes_held <= 10_000
    # Three requests fit; each stream holds at most one more in its hand.
    assert sum(producer.taken for producer in producers) <= 3 + 5
    for producer in producers:
        for _ in range(20):
            producer.release.release()
    await turns(2_000)
    assert all(len(producer.answers) >= 10 for producer in producers), "each goes on in its turn"
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)
    assert budget.bytes_held == 0


async def test_a_request_larger_than_the_budget_still_goes_through() -> None:
    producer, budget = Producer(value=b"v" * 5_000, count=2), MemoryBudget(1_000)
    producer.release.release()
    producer.release.release()
    await producer.serve(budget)
    assert [answer.correlation for answer in producer.answers] == [0, 1]
    assert budget.bytes_held == 0


async def test_errors_are_answers_in_their_place() -> None:
    producer, budget = Producer(count=7), MemoryBudget(1 << 20)
    for _ in range(7):
        producer.release.release()
    await producer.serve(budget)
    assert [answer.correlation for answer in producer.answers] == list(range(7))
    failed = {answer.correlation: error_from_bytes(answer.error) for answer in producer.answers if answer.error}
    assert set(failed) == {2, 5} and isinstance(failed[2], InvalidArgument)
    assert budget.bytes_held == 0


async def test_the_drain_takes_nothing_more_and_answers_what_was_taken() -> None:
    producer, budget = Producer(), MemoryBudget(1 << 20)
    serving = producer.serve(budget)
    await turns()
    producer.gate.drain()
    await turns()
    assert not serving.done()
    for _ in range(PRODUCE_STREAM_IN_FLIGHT_MAX):
        producer.release.release()
    with pytest.raises(ShuttingDown):
        await serving
    assert len(producer.answers) == producer.taken == PRODUCE_STREAM_IN_FLIGHT_MAX
    assert budget.bytes_held == 0


async def test_a_bug_in_one_request_ends_the_stream_and_leaves_nothing_behind() -> None:
    producer, budget = Producer(), MemoryBudget(1 << 20)

    sound = producer.produce

    async def fail(request: log_pb2.ProduceRequest) -> log_pb2.ProduceResponse:
        if request.correlation == 1:
            raise ZeroDivisionError
        return await sound(request)

    producer.produce = fail  # type: ignore[method-assign]
    serving = producer.serve(budget)
    producer.release.release()
    with pytest.raises(ZeroDivisionError):
        await serving
    assert budget.bytes_held == 0
