"""Binding methods: a bug is answered with an id and no text, errors keep their fields, calls are counted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import structlog
from grpc import aio

from kayos.errors import ConditionFailed, InternalError, LimitReached, ShuttingDown
from kayos.server.rpc import Call, Gate, bind_service
from kayos.wire.methods import LOG_METHODS
from kayos.wire.status import error_from_rpc
from kayos.wire.v1 import log_pb2
from tests.server.calls import TIMEOUT_S, Calls, error_of, failed_stream

SECRET = "value of a customer"


class Service:
    """Each method does what one test needs."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.entered = asyncio.Event()

    async def produce(self, request: log_pb2.ProduceRequest, call: Call) -> log_pb2.ProduceResponse:
        raise RuntimeError(SECRET)

    async def subscribe(self, request: log_pb2.SubscribeRequest, call: Call) -> None:
        await call.write(log_pb2.SubscribeResponse(columns=b"x").SerializeToString())
        raise KeyError(SECRET)

    async def produce_stream(self, requests: Any, call: Call) -> None:
        async for _ in requests:
            raise ZeroDivisionError(SECRET)

    async def get(self, request: log_pb2.GetRequest, call: Call) -> log_pb2.GetResponse:
        raise ConditionFailed("é: not so", index=1, expected_seq=2, current_seq=2**60, retry_delay_ms=7)

    async def wait(self, request: log_pb2.WaitRequest, call: Call) -> log_pb2.WaitResponse:
        self.entered.set()
        await self.release.wait()
        return log_pb2.WaitResponse(copies=3)

    def __getattr__(self, name: str) -> Any:
        return self.get


@asynccontextmanager
async def serve(service: Service, gate: Gate) -> AsyncIterator[Calls]:
    server = aio.server()
    server.add_generic_rpc_handlers((bind_service(service, LOG_METHODS, gate),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with Calls(f"127.0.0.1:{port}") as calls:
            yield calls
    finally:
        await server.stop(None)


async def test_a_bug_is_internal_with_an_id_and_its_text_is_only_in_the_log() -> None:
    with structlog.testing.capture_logs() as logged:
        async with serve(Service(), Gate({})) as calls:
            _, cut_off = await failed_stream(calls.address, b"")
            failures = [
                (cut_off.code(), error_from_rpc(cut_off)),
                await error_of(calls.Produce(log_pb2.ProduceRequest(), timeout=TIMEOUT_S)),
                await error_of(calls.Subscribe(log_pb2.SubscribeRequest(), timeout=TIMEOUT_S)),
            ]
    for (code, error), entry in zip(failures, logged, strict=True):
        assert code is grpc.StatusCode.INTERNAL and isinstance(error, InternalError)
        assert SECRET not in error.message and error.fields["error_id"] in error.message
        assert entry["error_id"] == error.fields["error_id"] and entry["exc_info"]
    assert len({error.fields["error_id"] for _, error in failures}) == 3


async def test_an_error_arrives_as_it_was_raised() -> None:
    async with serve(Service(), Gate({})) as calls:
        code, error = await error_of(calls.Get(log_pb2.GetRequest(), timeout=TIMEOUT_S))
    assert code is grpc.StatusCode.FAILED_PRECONDITION and isinstance(error, ConditionFailed)
    assert error.message == "é: not so"
    assert error.fields == {"index": 1, "expected_seq": 2, "current_seq": 2**60, "retry_delay_ms": 7}


async def test_calls_are_counted_bounded_and_refused_while_draining() -> None:
    service, gate = Service(), Gate({"Wait": 1})
    async with serve(service, gate) as calls:
        waiting = asyncio.ensure_future(wait(calls))
        await service.entered.wait()
        assert gate.running["Wait"] == 1
        code, error = await error_of(calls.Wait(log_pb2.WaitRequest(), timeout=TIMEOUT_S))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and isinstance(error, LimitReached)
        closed: list[str] = []
        gate.on_drain(lambda: closed.append("told"))
        gate.on_drain(lambda: closed.append("not told"))()
        gate.drain()
        assert closed == ["told"]
        code, error = await error_of(calls.Get(log_pb2.GetRequest(), timeout=TIMEOUT_S))
        assert code is grpc.StatusCode.UNAVAILABLE and isinstance(error, ShuttingDown)
        await gate.wait_idle(0.01)
        assert gate.running.total() == 1, "time was up before the call ended"
        service.release.set()
        await gate.wait_idle(TIMEOUT_S)
        assert gate.running.total() == 0
        assert (await waiting).copies == 3


async def wait(calls: Calls) -> log_pb2.WaitResponse:
    return await calls.Wait(log_pb2.WaitRequest(), timeout=TIMEOUT_S)


async def test_a_caller_that_leaves_is_no_longer_counted() -> None:
    service, gate = Service(), Gate({})
    async with serve(service, gate) as calls:
        call = calls.Wait(log_pb2.WaitRequest(), timeout=TIMEOUT_S)
        waiting = asyncio.ensure_future(error_of(call))
        await service.entered.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await gate.wait_idle(TIMEOUT_S)
        assert gate.running.total() == 0
