"""The pipelined stream of a producer: many requests in flight, answers in the order of the requests.

A request that fails is answered with its error and the stream goes on. At most `PRODUCE_STREAM_IN_FLIGHT_MAX`
requests are taken ahead of their answers, and all streams together take no more than the node's budget of
bytes; more stay in gRPC's flow control, so that fast producers over a slow disk cannot fill the memory.
When the node drains, no further request is taken, those in flight are answered, and the stream ends.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from kayos.errors import KayosError, ShuttingDown
from kayos.limits import PRODUCE_STREAM_IN_FLIGHT_MAX
from kayos.server.memory import MemoryBudget
from kayos.server.rpc import DRAINING, Call, without_trace
from kayos.wire.status import error_to_bytes
from kayos.wire.v1 import log_pb2

Produce = Callable[[log_pb2.ProduceRequest], Awaitable[log_pb2.ProduceResponse]]


@dataclass(slots=True)
class Pending:
    """A request that was started; `size` bytes of the budget are its own until it is answered."""

    correlation: int
    size: int
    writing: "asyncio.Future[log_pb2.ProduceResponse]"


async def serve_produce_stream(
    requests: AsyncIterator[log_pb2.ProduceRequest], produce: Produce, call: Call, budget: MemoryBudget
) -> None:
    pending: asyncio.Queue[Pending | None] = asyncio.Queue()
    room = asyncio.Semaphore(PRODUCE_STREAM_IN_FLIGHT_MAX)
    taker = asyncio.create_task(take_requests(requests, produce, pending, room, budget))
    undo = call.gate.on_drain(taker.cancel)
    try:
        while (entry := await pending.get()) is not None:
            try:
                response = await answer(entry)
            finally:
                budget.give_back(entry.size)
            await call.write(response.SerializeToString())
            room.release()
        await end_of(taker, call)
    finally:
        undo()
        taker.cancel()
        forget(pending, budget)


async def take_requests(
    requests: AsyncIterator[log_pb2.ProduceRequest],
    produce: Produce,
    pending: "asyncio.Queue[Pending | None]",
    room: asyncio.Semaphore,
    budget: MemoryBudget,
) -> None:
    """Start each request as it comes. Tasks begin in this order, so a producer's numbers keep theirs."""
    try:
        await room.acquire()
        async for request in requests:
            size = await budget.take(request.ByteSize())
            pending.put_nowait(Pending(request.correlation, size, asyncio.ensure_future(produce(request))))
            await room.acquire()
    finally:
        pending.put_nowait(None)


async def answer(entry: Pending) -> log_pb2.ProduceResponse:
    try:
        return await entry.writing
    except KayosError as error:
        return log_pb2.ProduceResponse(correlation=entry.correlation, error=error_to_bytes(without_trace(error)))


def forget(pending: "asyncio.Queue[Pending | None]", budget: MemoryBudget) -> None:
    """What was submitted stands; only nobody is left to hear of it."""
    while not pending.empty():
        left = pending.get_nowait()
        if left is not None:
            left.writing.cancel()
            budget.give_back(left.size)


async def end_of(taker: "asyncio.Task[None]", call: Call) -> None:
    """How the taking of requests ended: at the client's wish, by a malformed request, or by the drain."""
    try:
        await taker
    except asyncio.CancelledError:
        if call.gate.is_draining:
            raise ShuttingDown(DRAINING.message, **DRAINING.fields) from None
        raise
