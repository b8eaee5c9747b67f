"""The gate at the tail: nothing is shown before enough replicas hold it; what was shown stays readable meanwhile."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kayos.wire.v1 import log_pb2
from tests.server.calls import Calls, shard
from tests.server.in_process_chain import InProcessChain, open_chain

TIMEOUT_S = 20.0


@asynccontextmanager
async def stalled_disk(chain: InProcessChain, node: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The node's disk takes nothing; what it forwards is forwarded before."""
    store, released = chain.shard(node).store, threading.Event()
    apply = store.apply

    def wait_and_apply(*arguments: Any, **options: Any) -> None:
        assert released.wait(TIMEOUT_S)
        apply(*arguments, **options)

    monkeypatch.setattr(store, "apply", wait_and_apply)
    try:
        yield
    finally:
        released.set()


async def reached(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - it is another node's state, which sends no event here
            await asyncio.sleep(0.005)


async def get(calls: Calls, key: bytes) -> bytes:
    return bytes((await calls.Get(log_pb2.GetRequest(shard=shard("t"), key=key), timeout=TIMEOUT_S)).value)


async def test_while_a_disk_stalls_the_last_released_boundary_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_chain(tmp_path) as chain,
        Calls(chain.address("a")) as head,
        Calls(chain.address("c")) as tail,
    ):
        assert (await head.put("t", {b"k": b"shown", b"other": b"1"})).copies == 3
        async with stalled_disk(chain, "b", monkeypatch):
            writing = asyncio.ensure_future(head.put("t", {b"k": b"hidden"}))
            await reached(lambda: chain.shard("c").state.high_seq == 3)
            # The tail holds it durably, the head too, the middle does not: nobody may see it.
            assert await get(tail, b"k") == b"shown"
            begun = aiter(tail.subscribe("t", after_seq=0))
            first = await anext(begun)
            assert first.end_seq == 2 and first.values == {b"k": b"shown", b"other": b"1"}
            assert not writing.done() and chain.shard("c").visible.value == 2
        assert (await writing).copies == 3
        await reached(lambda: chain.shard("c").visible.value == 3)
        assert await get(tail, b"k") == b"hidden"
        second = await anext(begun)
        assert (second.start_seq, second.end_seq, second.values) == (2, 3, {b"k": b"hidden"})


async def test_a_consumer_resumes_at_its_newest_mark_also_at_a_tail_that_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_chain(tmp_path, tails=2) as chain,
        Calls(chain.address("a")) as head,
        Calls(chain.address("b")) as quick,
        Calls(chain.address("c")) as slow,
    ):
        await head.put("t", {b"k": b"1"})
        async with stalled_disk(chain, "c", monkeypatch):
            await head.put("t", {b"k": b"2"})
            (boundary,) = await quick.read_all("t", after_seq=0)
            request = log_pb2.CommitMarkRequest(shard=shard("t"), consumer="billing", mark=boundary.mark)
            await head.CommitMark(request, timeout=TIMEOUT_S)
            # The slow tail has neither the message nor the mark, but must not serve what is committed once more.
            resumed = aiter(slow.subscribe("t", consumer="billing"))
            first = asyncio.ensure_future(anext(resumed))
            await reached(lambda: chain.shard("c").visible.waiters > 0)
            assert not first.done()
        await head.put("t", {b"k": b"3"})
        snapshot = await first
        assert snapshot.start_seq == boundary.end_seq and snapshot.values == {b"k": b"3"}
