"""Bad input to a running node: the right answer with advice, nothing changed, node alive, memory flat.

`bad_requests.TABLE` lists what a request can get wrong; below it, what a connection can.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from grpc import aio

from kayos.errors import LimitReached, SnapshotExpired
from kayos.wire.methods import CLUSTER_METHODS, LOG_METHODS
from kayos.wire.status import error_from_rpc
from kayos.wire.v1 import cluster_pb2, log_pb2
from tests.nodes import NodeProcess
from tests.server.bad_request import GOOD, Bad
from tests.server.bad_requests import TABLE, prepare, with_history
from tests.server.calls import OPTIONS, TIMEOUT_S, Calls, error_of, failed_stream

METHODS = LOG_METHODS | CLUSTER_METHODS
# Words of the inside, which no caller may be shown.
INSIDE = ("Traceback", "Exception", "Error(", "lmdb", "MDB_", "kayos/", ".py", "0x", "object at")


class World:
    """One node prepared for the table, in a loop of its own so that all rows share it."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self.history_id = asyncio.run(self._prepare())

    async def _prepare(self) -> bytes:
        async with Calls(self.node.address) as calls:
            return await prepare(calls)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    # No housekeeping in between: whatever changes, a bad request changed it.
    with NodeProcess.start(
        tmp_path_factory.mktemp("bad") / "data", maintenance_interval_s=3_600, map_bytes=1 << 28, stalled_reader_s=1
    ) as node:
        yield World(node)
        assert node.stop() == 0
    assert not [entry for entry in node.log if entry["event"] == "internal error"]


@pytest.fixture
async def calls(world: World) -> AsyncIterator[Calls]:
    async with Calls(world.node.address) as calls:
        yield calls


async def picture(calls: Calls) -> list[Any]:
    """All that a request could have changed."""
    status = await calls.GetStatus(cluster_pb2.GetStatusRequest(), timeout=TIMEOUT_S)
    topics = await calls.ListTopics(cluster_pb2.ListTopicsRequest(), timeout=TIMEOUT_S)
    marks = await calls.ListMarks(log_pb2.ListMarksRequest(shard=GOOD), timeout=TIMEOUT_S)
    pins = await calls.ListPins(log_pb2.ListPinsRequest(shard=GOOD), timeout=TIMEOUT_S)
    return [list(status.shards), topics, marks, pins, await calls.contents("good")]


async def send(calls: Calls, bad: Bad, history_id: bytes) -> aio.AioRpcError:
    method = METHODS[bad.method]
    call = calls.raw(method.path, streams=method.server_streams)(with_history(bad, history_id), timeout=TIMEOUT_S)
    try:
        if method.server_streams:
            async for _ in call:
                pass
        else:
            await call
    except aio.AioRpcError as error:
        return error
    raise AssertionError(f"{bad.name}: the call did not fail")


@pytest.mark.parametrize("bad", TABLE, ids=[bad.name for bad in TABLE])
async def test_a_bad_request_gets_its_answer_and_changes_nothing(world: World, calls: Calls, bad: Bad) -> None:
    before = await picture(calls)
    failure = await send(calls, bad, world.history_id)
    error = error_from_rpc(failure)
    assert (failure.code().name, error.code) == (bad.status, bad.code), error.message
    assert bad.advice in error.message, error.message
    assert failure.details() == error.message and len(error.message) < 400
    assert not [word for word in INSIDE if word in error.message], error.message
    if failure.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
        assert error.retry_delay_ms > 0
    assert await picture(calls) == before


async def test_the_whole_table_again_and_again_leaves_memory_flat(world: World, calls: Calls) -> None:
    large = [bad for bad in TABLE if len(with_history(bad, b"")) > 1 << 20]
    small = [bad for bad in TABLE if bad not in large]

    async def grown(rows: list[Bad], rounds: int) -> int:
        await send_all(rows)
        before = world.node.resident_bytes()
        for _ in range(rounds):
            await send_all(rows)
        return world.node.resident_bytes() - before

    async def send_all(rows: list[Bad]) -> None:
        for bad in rows:
            await send(calls, bad, world.history_id)

    assert await grown(small, 5) < 12 << 20
    # Some 350 MB in all; the allocator keeps a few of such blocks at hand.
    assert sum(len(with_history(bad, b"")) for bad in large) * 25 > 300 << 20
    assert await grown(large, 25) < 120 << 20


async def test_a_malformed_request_ends_its_stream_after_the_answers_before_it(calls: Calls) -> None:
    good = log_pb2.ProduceRequest(shard=log_pb2.ShardRef(topic="log"), values=[b"x"]).SerializeToString()
    answers, failure = await failed_stream(calls.address, good, b"\xff\xff", good)
    assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert [answer.error for answer in answers] == [b""]


@pytest.mark.parametrize("path", ["/kayos.v1.Log/Nothing", "/kayos.v1.Nothing/Produce", "/kayos.v9.Log/Produce"])
async def test_an_unknown_method_service_or_version_is_unimplemented(calls: Calls, path: str) -> None:
    code, _ = await error_of(calls.raw(path)(b"", timeout=TIMEOUT_S))
    assert code is grpc.StatusCode.UNIMPLEMENTED


async def test_too_large_for_the_transport_is_refused_by_it(calls: Calls) -> None:
    request = log_pb2.ProduceRequest(shard=GOOD, values=[b"v" * (17 << 20)])
    code, _ = await error_of(calls.Produce(request, timeout=TIMEOUT_S))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    metadata = (("x-long", "v" * 65_536),)
    code, _ = await error_of(calls.Produce(log_pb2.ProduceRequest(shard=GOOD), metadata=metadata, timeout=TIMEOUT_S))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_compressed_bomb_is_refused_at_the_inflated_size(world: World) -> None:
    bomb = log_pb2.ProduceRequest(shard=GOOD, values=[b"\0" * (128 << 20)]).SerializeToString()
    before = world.node.resident_bytes()
    channel = aio.insecure_channel(world.node.address, options=OPTIONS, compression=grpc.Compression.Gzip)
    async with channel:
        code, _ = await error_of(channel.unary_unary("/kayos.v1.Log/Produce")(bomb, timeout=TIMEOUT_S))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert world.node.resident_bytes() - before < 64 << 20


def port_of(node: NodeProcess) -> int:
    return int(node.address.rpartition(":")[2])


@pytest.mark.parametrize(
    "hello",
    [
        b"GET / HTTP/1.1\r\nHost: kayos\r\n\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\x16\x03\x01\x00\xf5\x01\x00\x00\xf1\x03\x03" + b"\x5a" * 240,
        b"\0" * 100,
    ],
    ids=["HTTP/1.1", "RESP", "TLS hello", "zeros"],
)
async def test_another_protocol_is_hung_up_on(world: World, calls: Calls, hello: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(world.node))
    writer.write(hello)
    async with asyncio.timeout(TIMEOUT_S):
        while await reader.read(4096):
            pass  # Whatever it says (an HTTP/2 settings frame), in the end it closes.
    writer.close()
    await picture(calls)


async def test_tls_to_a_plain_port_fails_and_harms_nobody(world: World, calls: Calls) -> None:
    context = ssl.create_default_context()
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.open_connection("127.0.0.1", port_of(world.node), ssl=context, ssl_handshake_timeout=TIMEOUT_S)
    await picture(calls)


async def test_a_silent_connection_is_closed_by_the_handshake_timeout(world: World, calls: Calls) -> None:
    connections = [await asyncio.open_connection("127.0.0.1", port_of(world.node)) for _ in range(20)]
    await picture(calls)
    async with asyncio.timeout(TIMEOUT_S):
        for reader, writer in connections:
            while await reader.read(4096):
                pass
            writer.close()


async def test_a_storm_of_opened_and_cancelled_calls(world: World, calls: Calls) -> None:
    async def storm() -> None:
        streams = []
        for number in range(300):
            request = log_pb2.SubscribeRequest(shard=GOOD, after_seq=0)
            streams.append(calls.Subscribe(request, timeout=TIMEOUT_S))
            if number % 3 == 0:
                await asyncio.sleep(0)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*(stream.code() for stream in streams))

    await storm()
    before = world.node.resident_bytes()
    for _ in range(5):
        await storm()
    await picture(calls)
    assert world.node.resident_bytes() - before < 16 << 20


async def test_a_client_that_never_reads_loses_its_snapshot_and_disturbs_nobody(world: World, calls: Calls) -> None:
    await calls.create_topic("unread", mode=2)
    for _ in range(8):
        await calls.append("unread", *([b"v" * 100_000] * 60))
    before = world.node.resident_bytes()
    request = log_pb2.SubscribeRequest(shard=log_pb2.ShardRef(topic="unread"), after_seq=0)
    async with Calls(world.node.address) as sleeper:
        streams = [aiter(sleeper.Subscribe(request, timeout=60)) for _ in range(10)]
        for stream in streams:
            assert (await anext(stream)).HasField("begin")
        # They read no further. Others are served meanwhile, and after a second the node lets go of them.
        stalled = 0
        while stalled < len(streams):
            assert await calls.contents("good") == {b"a": b"1", b"b": b"2"}
            assert world.node.resident_bytes() - before < 100 << 20
            stalled = len([entry for entry in world.node.log if entry["event"].startswith("a reader takes nothing")])
        for stream in streams:
            code, error = await error_of(stream)
            # The status waits behind what was not read; who comes too late for it finds the call cancelled.
            assert code in (grpc.StatusCode.ABORTED, grpc.StatusCode.CANCELLED)
            if code is grpc.StatusCode.ABORTED:
                assert isinstance(error, SnapshotExpired) and "subscribe again from your mark" in error.message


async def test_too_many_streams_and_calls_are_refused_at_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("few") / "data"
    with NodeProcess.start(data, subscribers_max=5, concurrent_calls_max=20) as node:
        async with Calls(node.address) as calls:
            history_id = await prepare(calls)
            request = log_pb2.SubscribeRequest(shard=GOOD, after_seq=0)
            subscribers = [aiter(calls.Subscribe(request, timeout=TIMEOUT_S)) for _ in range(5)]
            for subscriber in subscribers:
                await anext(subscriber)
            code, error = await error_of(calls.Subscribe(request, timeout=TIMEOUT_S))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert isinstance(error, LimitReached) and error.retry_delay_ms > 0
            # Others fill what is left of all calls; one more is refused by gRPC itself, then there is room again.
            wait = log_pb2.WaitRequest(shard=GOOD, history_id=history_id, seq=10**6, until=1)
            waiting = [calls.Wait(wait, timeout=TIMEOUT_S) for _ in range(30)]
            refused, _ = await asyncio.wait(
                [asyncio.ensure_future(error_of(call)) for call in waiting],
                timeout=TIMEOUT_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            assert {task.result()[0] for task in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            for call in waiting:
                call.cancel()
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    try:
                        await calls.status("good")
                        break
                    except aio.AioRpcError as busy:
                        assert busy.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
