"""An error of the disk in the middle of a commit: the outcome is unknown, a retry settles it, nothing is lost."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from grpc import aio

from kayos.errors import Unavailable, WriteUnknown
from kayos.wire.status import error_from_rpc
from kayos.wire.v1 import log_pb2
from tests.nodes import NodeProcess
from tests.server.calls import Calls, apply

STRACE = shutil.which("strace")


@asynccontextmanager
async def failing(node: NodeProcess, call: str) -> AsyncIterator[None]:
    """The next system call of that name in the node fails with EIO."""
    assert STRACE is not None
    tracer = await asyncio.create_subprocess_exec(
        STRACE, "-f", "-q", "-e", f"trace={call}", "-e", f"inject={call}:error=EIO:when=1",
        "-o", "/dev/null", "-p", str(node.pid), stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(10):
            while not is_traced(node, tracer.pid):
                if tracer.returncode is not None:
                    assert tracer.stderr is not None
                    pytest.skip(f"tracing is not permitted: {(await tracer.stderr.read()).decode()}")
                await asyncio.sleep(0.01)
        yield
    finally:
        if tracer.returncode is None:
            tracer.terminate()
        await tracer.wait()


def is_traced(node: NodeProcess, tracer: int) -> bool:
    return f"TracerPid:\t{tracer}\n" in Path(f"/proc/{node.pid}/status").read_text()


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
async def test_an_error_of_the_disk_in_a_commit_is_settled_by_a_retry(tmp_path: Path, call: str) -> None:
    with NodeProcess.start(tmp_path / "data", maintenance_interval_s=3_600) as node:
        async with Calls(node.address) as calls:
            await calls.create_topic("t")
            await calls.put("t", {b"before": b"1"})
            producer = log_pb2.Producer(producer_id=b"p", number=1)
            async with failing(node, call):
                with pytest.raises(aio.AioRpcError) as failed:
                    await calls.put("t", {b"during": b"1"}, producer=producer)
                failure = error_from_rpc(failed.value)
                assert isinstance(failure, WriteUnknown) and "same producer number" in failure.message
                assert "mdb" not in failure.message.lower(), "what LMDB said is for the log"
            # Reads go on, or are told to try again; nobody cries damage.
            try:
                assert (await calls.contents("t"))[b"before"] == b"1"
            except aio.AioRpcError as error:
                assert isinstance(error_from_rpc(error), Unavailable), error
            await retry_until_settled(calls, producer)
            logged = node.wait_for_event("a commit failed, the store will be reopened")
            assert "Input/output error" in logged["cause"]
            await calls.put("t", {b"after": b"1"})
            held: dict[bytes, bytes] = {}
            seqs = []
            for snapshot in await calls.read_all("t"):
                apply(held, snapshot)
                seqs += snapshot.seqs
            assert held == {b"before": b"1", b"during": b"1", b"after": b"1"} and len(seqs) == 3
            assert (await calls.status("t")).problem == ""
        node.kill()
    with NodeProcess.start(tmp_path / "data") as node:
        async with Calls(node.address) as calls:
            assert await calls.contents("t") == held


async def retry_until_settled(calls: Calls, producer: log_pb2.Producer) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await calls.put("t", {b"during": b"1"}, producer=producer)
                return
            except aio.AioRpcError as error:
                failure = error_from_rpc(error)
                assert isinstance(failure, Unavailable), failure
