"""The end of a node: it drains, answers what it took, and exits; and what it tells watchers meanwhile."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from kayos.errors import ShuttingDown, Unavailable
from kayos.wire.status import error_from_rpc
from kayos.wire.v1 import log_pb2
from tests.nodes import NodeProcess
from tests.server.calls import TIMEOUT_S, Calls, error_of, shard

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def test_sigterm_under_load_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged: dict[int, list[int]] = {}
    warm = [asyncio.Event() for _ in range(4)]

    async def stream(calls: Calls, writer: int) -> aio.AioRpcError:
        async def requests() -> AsyncIterator[log_pb2.ProduceRequest]:
            number = 0
            while True:
                number += 1
                producer = log_pb2.Producer(producer_id=b"%d" % writer, number=number)
                values = [b"%d %d" % (writer, number)] * 10
                yield log_pb2.ProduceRequest(shard=shard("t"), values=values, producer=producer, correlation=number)

        done = acknowledged.setdefault(writer, [])
        try:
            async for answer in calls.ProduceStream(requests(), timeout=60):
                assert not answer.error
                done.append(answer.correlation)
                if len(done) == 30:
                    warm[writer].set()
        except aio.AioRpcError as error:
            return error
        raise AssertionError("the stream ended without a reason")

    with NodeProcess.start(tmp_path / "data") as node:
        async with Calls(node.address) as calls:
            await calls.create_topic("t", mode=2)
            streams = [asyncio.ensure_future(stream(calls, writer)) for writer in range(4)]
            await asyncio.gather(*(event.wait() for event in warm))
            node.terminate()
            # "Shutting down", or whatever gRPC makes of a stream that ended while it was written to.
            for error in await asyncio.gather(*streams):
                assert isinstance(error_from_rpc(error), Unavailable), error
        assert node.wait() == 0
    assert not [entry for entry in node.log if entry.get("level") == "error"]
    with NodeProcess.start(tmp_path / "data") as node:
        async with Calls(node.address) as calls:
            stored = [record.value for snapshot in await calls.read_all("t") for record in snapshot.records]
    assert all(stored.count(value) == 10 for value in set(stored)), "every request is whole, and stored once"
    for writer, done in acknowledged.items():
        assert done == list(range(1, len(done) + 1))
        assert {b"%d %d" % (writer, number) for number in done} <= set(stored)


async def test_long_polls_hear_of_the_shutdown_and_health_says_so(tmp_path: Path) -> None:
    with NodeProcess.start(tmp_path / "data", drain_grace_s=30) as node:
        async with Calls(node.address) as calls:
            await calls.create_topic("t")
            written = await calls.append("t", b"x")
            health = health_pb2_grpc.HealthStub(calls.channel)
            watch = aiter(health.Watch(health_pb2.HealthCheckRequest(service="kayos.v1.Log"), timeout=TIMEOUT_S))
            assert (await anext(watch)).status == SERVING
            for service in ("", "kayos.v1.Cluster"):
                answer = await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S)
                assert answer.status == SERVING
            subscriber = calls.subscribe("t", after_seq=0)
            await anext(subscriber)
            wait = log_pb2.WaitRequest(shard=shard("t"), history_id=written.history_id, seq=9, until=1)
            get = log_pb2.GetRequest(shard=shard("t"), key=b"a", min_seq=9)
            waiting = [
                asyncio.ensure_future(error_of(call))
                for call in (
                    anext(subscriber),
                    calls.Wait(wait, timeout=TIMEOUT_S),
                    calls.Get(get, timeout=TIMEOUT_S),
                )
            ]
            # All three are inside once a later call was answered on the same connection.
            await calls.status("t")
            started = time.monotonic()
            node.terminate()
            assert (await anext(watch)).status == NOT_SERVING
            for code, error in await asyncio.gather(*waiting):
                assert code is grpc.StatusCode.UNAVAILABLE
                assert isinstance(error, ShuttingDown) and error.retry_delay_ms > 0
            # The watch is still open, and the node does not wait for it.
            assert await asyncio.to_thread(node.wait) == 0
            assert time.monotonic() - started < 15, "it did not wait for the whole grace"


async def test_a_stuck_reader_delays_the_end_by_the_grace_at_most(tmp_path: Path) -> None:
    with NodeProcess.start(tmp_path / "data", drain_grace_s=0.5) as node:
        async with Calls(node.address) as calls:
            await stick(calls)
            node.terminate()
            assert await asyncio.to_thread(node.wait, 15) == 0


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with NodeProcess.start(tmp_path / "data", drain_grace_s=600) as node:
        async with Calls(node.address) as calls:
            await stick(calls)
            node.terminate()
            await asyncio.to_thread(node.wait_for_event, "draining")
            node.terminate()
            assert await asyncio.to_thread(node.wait, 10) == 128 + signal.SIGTERM


async def stick(calls: Calls) -> None:
    """A subscriber in the middle of a large snapshot, which it does not read."""
    await calls.create_topic("t", mode=2)
    for _ in range(3):
        await calls.append("t", *([b"v" * 100_000] * 60))
    stream = calls.Subscribe(log_pb2.SubscribeRequest(shard=shard("t"), after_seq=0), timeout=60)
    assert (await stream.read()).HasField("begin")
    calls.kept = stream  # Forgotten, it would be cancelled.


async def test_after_the_first_signal_new_calls_are_refused(tmp_path: Path) -> None:
    with NodeProcess.start(tmp_path / "data", drain_grace_s=600) as node:
        async with Calls(node.address) as calls, Calls(node.address) as other:
            await stick(calls)
            await other.append("t", b"x")
            node.terminate()
            await asyncio.to_thread(node.wait_for_event, "draining")
            code, error = await error_of(other.append("t", b"x"))
            assert code is grpc.StatusCode.UNAVAILABLE
            assert isinstance(error, ShuttingDown) and error.retry_delay_ms > 0
        node.kill()


async def test_reflection_lists_the_services_and_can_be_switched_off(tmp_path: Path, calls: Calls) -> None:
    assert await reflected(calls) == {
        "kayos.v1.Log",
        "kayos.v1.Cluster",
        "kayos.v1.Replication",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    with NodeProcess.start(tmp_path / "data", reflection=False) as node:
        async with Calls(node.address) as quiet:
            path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
            code, _ = await error_of(quiet.raw(path)(b"", timeout=TIMEOUT_S))
            assert code is grpc.StatusCode.UNIMPLEMENTED


async def reflected(calls: Calls) -> set[str]:
    async def requests() -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="*")

    stub = reflection_pb2_grpc.ServerReflectionStub(calls.channel)
    async for response in stub.ServerReflectionInfo(requests(), timeout=TIMEOUT_S):
        return {service.name for service in response.list_services_response.service}
    return set()
