"""Full disk and full map: writes get a retryable answer, reads and deletes go on, nothing acknowledged is lost."""

import asyncio
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from kayos.errors import ResourceExhausted, StoreFull
from kayos.wire.status import error_from_rpc
from kayos.wire.v1 import cluster_pb2, log_pb2
from tests.nodes import NodeProcess
from tests.server.calls import TIMEOUT_S, Calls, error_of, shard

DISK_BYTES = 64 << 20
_libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    path = tmp_path / "disk"
    path.mkdir()
    if _libc.mount(b"tmpfs", bytes(path), b"tmpfs", 0, b"size=%d" % DISK_BYTES):
        pytest.skip(f"mounting a tmpfs is not permitted: {os.strerror(ctypes.get_errno())}")
    try:
        yield path
    finally:
        assert _libc.umount2(bytes(path), 0) == 0


def fill_up(disk: Path, *, leave: int) -> Path:
    """A foreign file that takes all of the disk but `leave` bytes."""
    filler = disk / "filler"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free - leave)
    return filler


async def until_accepted(send: Callable[[], Any]) -> Any:
    """Retry as the answers say: only with what may be retried."""
    while True:
        try:
            return await send()
        except aio.AioRpcError as error:
            failure = error_from_rpc(error)
            assert failure.retryable, failure
            assert error.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE), failure


async def read_on(calls: Calls) -> None:
    """For ever; only retryable errors are forgiven."""
    get = log_pb2.GetRequest(shard=shard("t"), key=b"k199")
    while True:
        await until_accepted(lambda: calls.contents("t"))
        await until_accepted(lambda: calls.Get(get, timeout=TIMEOUT_S))


async def test_a_disk_that_fills_up_and_gets_room_again(disk: Path) -> None:
    with NodeProcess.start(disk / "data", map_bytes=1 << 28) as node:
        async with Calls(node.address) as calls:
            await calls.create_topic("t")
            for number in range(20):
                await calls.put("t", {b"k%d" % number: b"v" * 50_000})
            acknowledged = await calls.contents("t")
            filler = fill_up(disk, leave=1 << 20)
            code, error = await error_of(calls.put("t", {b"more": b"1"}))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert isinstance(error, StoreFull) and error.retry_delay_ms > 0 and "make room" in error.message
            # Reads go on, deletes are taken, topics cannot be made half.
            assert await calls.contents("t") == acknowledged
            await calls.delete("t", b"k0")
            del acknowledged[b"k0"]
            assert await calls.contents("t") == acknowledged
            filler.unlink()
            await calls.put("t", {b"more": b"1"})
            assert await calls.contents("t") == acknowledged | {b"more": b"1"}
        assert node.stop() == 0


async def test_a_disk_without_a_single_page_left(disk: Path) -> None:
    """Beyond the reserve: even deletes cannot be written. They fail for certain or are settled by a retry."""
    with NodeProcess.start(disk / "data", map_bytes=1 << 28) as node:
        async with Calls(node.address) as calls:
            await calls.create_topic("t")
            # Every message stands in the middle of its page, so that a delete must copy pages.
            for number in range(200):
                await calls.put("t", {b"k%d" % number: b"v" * 1_500})
            acknowledged = await calls.contents("t")
            filler = fill_up(disk, leave=0)
            reading = asyncio.ensure_future(read_on(calls))
            failures = []
            deleted: set[bytes] = set()
            number = 0
            while len(failures) < 3:
                number += 1
                key = b"k%d" % (number % 200)
                producer = log_pb2.Producer(producer_id=b"p%d" % number, number=1)
                request = log_pb2.ProduceRequest(
                    shard=shard("t"), keys=[key], values=[b""], kinds=b"\x02", producer=producer
                )
                try:
                    await calls.Produce(request, timeout=TIMEOUT_S)
                    deleted.add(key)
                except aio.AioRpcError as error:
                    failures.append((request, error_from_rpc(error)))
                assert number < 5_000, "the disk never got full"
            assert all(failure.retryable for _, failure in failures), failures
            assert node.wait_for_event("a commit failed, the store will be reopened")
            # Whatever happened to the writer, readers see what was acknowledged, and no damage is cried.
            found = await until_accepted(lambda: calls.contents("t"))
            unsure = {request.keys[0] for request, _ in failures}
            assert {k: v for k, v in found.items() if k not in unsure} == {
                key: value for key, value in acknowledged.items() if key not in deleted | unsure
            }
            code, error = await error_of(calls.create_topic("another"))
            assert code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE), error
            filler.unlink()
            for request, _ in failures:
                await until_accepted(lambda request=request: calls.Produce(request, timeout=TIMEOUT_S))
            await until_accepted(lambda: calls.put("t", {b"more": b"1"}))
            expected = {key: value for key, value in acknowledged.items() if key not in deleted | unsure}
            assert await calls.contents("t") == expected | {b"more": b"1"}
            await calls.create_topic("another")
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert (await calls.status("t")).problem == ""
        node.kill()
    with NodeProcess.start(disk / "data", map_bytes=1 << 28) as node:
        async with Calls(node.address) as calls:
            assert await calls.contents("t") == expected | {b"more": b"1"}


async def test_a_full_map_takes_deletes_and_then_writes_again(tmp_path: Path) -> None:
    with NodeProcess.start(tmp_path / "data", map_bytes=8 << 20, maintenance_interval_s=0.05) as node:
        async with Calls(node.address) as calls:
            await calls.create_topic("t", retention=cluster_pb2.Retention(tombstone_ms=1))
            acknowledged: dict[bytes, bytes] = {}
            while True:
                values = {b"k%d" % (len(acknowledged) + step): b"v" * 4_000 for step in range(10)}
                try:
                    await calls.put("t", values)
                except aio.AioRpcError as error:
                    failure = error_from_rpc(error)
                    assert isinstance(failure, ResourceExhausted) and failure.retry_delay_ms > 0
                    break
                acknowledged |= values
            assert len(acknowledged) > 500
            assert await calls.contents("t") == acknowledged
            await calls.delete("t", *list(acknowledged)[:600])
            for key in list(acknowledged)[:600]:
                del acknowledged[key]
            await until_accepted(lambda: calls.put("t", {b"more": b"1"}))
            assert await calls.contents("t") == acknowledged | {b"more": b"1"}
            assert (await calls.status("t")).problem == ""
        assert node.stop() == 0
