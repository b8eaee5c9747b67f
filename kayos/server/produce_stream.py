"""The pipelined stream of a producer: many requests in flight, answers in the order of the requests.

A request that fails is answered with its error and the stream goes on. At most `in_flight_max` requests are
taken ahead of their answers; more stay in gRPC's flow control, so a fast producer cannot fill the memory.
When the node drains, no further request is taken, those in flight are answered, and the stream ends.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from kayos.errors import KayosError, ShuttingDown
from kayos.server.rpc import DRAINING, Call
from kayos.wire.status import error_to_bytes
from kayos.wire.v1 import log_pb2

Produce = Callable[[log_pb2.ProduceRequest], Awaitable[log_pb2.ProduceResponse]]
Pending = tuple[int, "asyncio.Task[log_pb2.ProduceResponse]"]


async def serve_produce_stream(
    requests: AsyncIterator[log_pb2.ProduceRequest], produce: Produce, call: Call, *, in_flight_max: int
) -> None:
    pending: asyncio.Queue[Pending | None] = asyncio.Queue()
    room = asyncio.Semaphore(in_flight_max)
    taker = asyncio.create_task(take_requests(requests, produce, pending, room))
    undo = call.gate.on_drain(taker.cancel)
    try:
        while (entry := await pending.get()) is not None:
            await call.write((await answer(*entry)).SerializeToString())
            room.release()
        await end_of(taker, call)
    finally:
        undo()
        taker.cancel()
        # What was submitted stands; only nobody is left to hear of it.
        while not pending.empty():
            left = pending.get_nowait()
            if left is not None:
                left[1].cancel()


async def take_requests(
    requests: AsyncIterator[log_pb2.ProduceRequest],
    produce: Produce,
    pending: "asyncio.Queue[Pending | None]",
    room: asyncio.Semaphore,
) -> None:
    """Start each request as it comes. Tasks begin in this order, so a producer's numbers keep theirs."""
    try:
        await room.acquire()
        async for request in requests:
            pending.put_nowait((request.correlation, asyncio.ensure_future(produce(request))))
            await room.acquire()
    finally:
        pending.put_nowait(None)


async def answer(correlation: int, task: "asyncio.Task[log_pb2.ProduceResponse]") -> log_pb2.ProduceResponse:
    try:
        return await task
    except KayosError as error:
        return log_pb2.ProduceResponse(correlation=correlation, error=error_to_bytes(error))


async def end_of(taker: "asyncio.Task[None]", call: Call) -> None:
    """How the taking of requests ended: at the client's wish, by a malformed request, or by the drain."""
    try:
        await taker
    except asyncio.CancelledError:
        if call.gate.is_draining:
            raise ShuttingDown(DRAINING.message, **DRAINING.fields) from None
        raise
