"""What the client makes of a node that dies, freezes, or was never there."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kayos.errors import DeadlineExceeded, KayosError, Unavailable, WriteUnknown
from tests.nodes import NodeProcess
from tests.ports import lasting_address

MESSAGES = 4_000
KILLS = 3


async def restart(node: NodeProcess) -> NodeProcess:
    """kill -9, then another life on the same port and data."""
    await asyncio.to_thread(node.kill)
    return await asyncio.to_thread(NodeProcess.start, node.data, listen=node.address)


async def test_every_message_arrives_once_and_in_order_while_the_node_is_killed(
    connect: Callable[..., Any], tmp_path: Path
) -> None:
    node = NodeProcess.start(tmp_path / "data", listen=lasting_address())
    try:
        async with connect(node.address, batch_bytes=2_000, linger_ms=1) as client:
            await client.topics.create("t", shards=2)
            futures: list[Any] = []
            for number in range(MESSAGES):
                futures.append(await client.send("t", b"%d" % number, route=b"%d" % (number % 2)))
                if number % (MESSAGES // (KILLS + 1)) == MESSAGES // 10:
                    await futures[number // 2]  # some are answered, many are under way
                    node = await restart(node)
            deliveries = await asyncio.wait_for(asyncio.gather(*futures), 60)
            found = [m async for m in client.messages("t", stop_at_end=True)]
    finally:
        node.kill()
    for parity in range(2):
        sent = [(d.shard, d.seq, b"%d" % n) for n, d in enumerate(deliveries) if n % 2 == parity]
        assert sent == sorted(sent, key=lambda row: row[1])
    assert sorted((m.shard, m.seq, m.value) for m in found) == sorted(
        (d.shard, d.seq, b"%d" % n) for n, d in enumerate(deliveries)
    )


async def test_a_bulk_send_survives_a_kill(connect: Callable[..., Any], tmp_path: Path) -> None:
    node = NodeProcess.start(tmp_path / "data", listen=lasting_address())
    try:
        async with connect(node.address, batch_bytes=20_000) as client:
            await client.topics.create("t")
            sending = asyncio.ensure_future(client.send_many("t", None, [b"%0100d" % n for n in range(50_000)]))
            node = await restart(node)
            delivery = await asyncio.wait_for(await sending, 60)
            assert delivery.count == 50_000
            batches = [batch async for batch in client.messages("t", stop_at_end=True).batches()]
            found = [int(message.value) for batch in batches for message in batch]
    finally:
        node.kill()
    assert found == list(range(50_000))


async def test_a_waiting_consumer_outlives_the_node(connect: Callable[..., Any], tmp_path: Path) -> None:
    node = NodeProcess.start(tmp_path / "data", listen=lasting_address())
    try:
        async with connect(node.address) as client:
            await client.topics.create("t")
            async with client.consume("t", "dw") as consumer:
                for number in range(3):
                    await client.produce("t", b"%d" % number)
                    snapshot = await anext(consumer)
                    assert [m.value async for m in snapshot] == [b"%d" % number]
                    await snapshot.commit()
                    node = await restart(node)
            assert (await client.marks.get("t", "dw"))[0].mark.seq == snapshot.mark.seq
    finally:
        node.kill()


async def test_a_clean_stop_and_start_is_hardly_noticed(connect: Callable[..., Any], tmp_path: Path) -> None:
    node = NodeProcess.start(tmp_path / "data", listen=lasting_address())
    try:
        async with connect(node.address) as client:
            await client.topics.create("t")
            await client.produce("t", b"1")
            async with client.consume("t") as consumer:
                assert [m.value async for m in await anext(consumer)] == [b"1"]
                assert await asyncio.to_thread(node.stop) == 0
                waiting = [await client.send("t", b"%d" % number) for number in range(2, 9)]
                node = await asyncio.to_thread(NodeProcess.start, node.data, listen=node.address)
                deliveries = await asyncio.wait_for(asyncio.gather(*waiting), 30)
                assert [delivery.seq for delivery in deliveries] == list(range(2, 9))
                assert not any(delivery.duplicate for delivery in deliveries)
                found: list[bytes] = []
                while len(found) < 7:
                    found += [m.value async for m in await anext(consumer)]
                assert found == [b"%d" % number for number in range(2, 9)]
    finally:
        node.kill()


@pytest.mark.parametrize("call", ["produce", "get", "consume", "topics", "transaction"])
async def test_a_server_that_is_not_there_is_named_in_bounded_time(connect: Callable[..., Any], call: str) -> None:
    address = lasting_address()
    started = time.monotonic()
    async with connect(address, timeout_s=1.0) as client:
        with pytest.raises(Unavailable) as caught:
            match call:
                case "produce":
                    await client.produce("t", b"v")
                case "get":
                    await client.get("t", b"k")
                case "consume":
                    await anext(client.consume("t"))
                case "topics":
                    await client.topics.list()
                case "transaction":
                    async with client.transaction("t"):
                        pass
    assert time.monotonic() - started < 5
    assert f"no server of {address} answered within 1 s" in caught.value.message
    assert "see that a node runs there" in caught.value.message


async def test_the_next_server_of_the_list_is_tried(connect: Callable[..., Any], node: NodeProcess) -> None:
    async with connect(f"{lasting_address()},{node.address}") as client:
        assert (await client.status()).address == node.address


async def test_a_message_that_nobody_answers_is_told_in_time(connect: Callable[..., Any], tmp_path: Path) -> None:
    with NodeProcess.start(tmp_path / "data") as node:
        async with connect(node.address, delivery_timeout_s=1.0, timeout_s=1.0) as client:
            await client.topics.create("t")
            await client.produce("t", b"1", key=b"a")
            os.kill(node.pid, signal.SIGSTOP)
            started = time.monotonic()
            with pytest.raises((WriteUnknown, DeadlineExceeded)) as caught:
                await client.produce("t", b"2", key=b"b")
            assert time.monotonic() - started < 5
            assert isinstance(caught.value, WriteUnknown) or "was not written" in caught.value.message
            os.kill(node.pid, signal.SIGCONT)
            written = await until_it_works(lambda: client.produce("t", b"3", key=b"c"))
            found = [m async for m in client.messages("t", stop_at_end=True)]
            assert [m.seq for m in found if m.key == b"c"] == [written.seq]
            assert [m.key for m in found] in ([b"a", b"c"], [b"a", b"b", b"c"])


async def until_it_works(call: Callable[[], Any]) -> Any:
    """A node that was frozen is back within a bounded number of tries."""
    for _ in range(10):
        try:
            return await call()
        except KayosError as error:
            assert error.retryable
    raise AssertionError("the client did not recover")


async def test_a_full_buffer_holds_the_sender_back_and_loses_nothing(
    connect: Callable[..., Any], tmp_path: Path
) -> None:
    mebibyte = bytes(1024 * 1024)
    with NodeProcess.start(tmp_path / "data") as node:
        async with connect(node.address, buffer_bytes=8 * 1024 * 1024, linger_ms=0) as client:
            await client.topics.create("t")
            await client.produce("t", b"first")
            os.kill(node.pid, signal.SIGSTOP)
            futures = [await client.send("t", mebibyte) for _ in range(7)]
            held_back = asyncio.ensure_future(client.send("t", mebibyte))
            await asyncio.wait({held_back}, timeout=0.3)
            assert not held_back.done()
            os.kill(node.pid, signal.SIGCONT)
            futures.append(await asyncio.wait_for(held_back, 30))
            deliveries = await asyncio.wait_for(asyncio.gather(*futures), 30)
            assert [delivery.seq for delivery in deliveries] == list(range(2, 10))


async def test_a_flush_that_waits_too_long_says_so(connect: Callable[..., Any], tmp_path: Path) -> None:
    with NodeProcess.start(tmp_path / "data") as node:
        async with connect(node.address) as client:
            await client.topics.create("t")
            await client.produce("t", b"first")
            os.kill(node.pid, signal.SIGSTOP)
            future = await client.send("t", b"v")
            with pytest.raises(DeadlineExceeded, match="flush again"):
                await client.flush(timeout_s=0.2)
            os.kill(node.pid, signal.SIGCONT)
            assert await client.flush() == 0
            assert future.done()
