"""The service of nodes: a downstream replica opens one stream per shard and says Hello.

Whoever speaks is checked before the shard's machine hears of it: the shard must be here, the node must follow this one
in the current view, and every word must be sound. Each way to be wrong has its own error.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from kayos.errors import DeadlineExceeded, InvalidArgument
from kayos.limits import HELLO_S
from kayos.server.hosting import Hosting
from kayos.server.outgoing import Outgoing
from kayos.server.rpc import Call
from kayos.server.shard import Shard
from kayos.stream.messages import Downward, Hello, Piece
from kayos.wire.replication_codec import UpwardAssembler, encode_downward


class Downstream:
    """One stream's way out. What waits here is bounded by the machine: bytes in flight, one piece per question."""

    def __init__(self) -> None:
        self._outgoing: Outgoing[Downward] = Outgoing()

    def send(self, message: Downward, can_wait: bool) -> None:
        self._outgoing.put(message, can_wait=can_wait)

    def close(self) -> None:
        self._outgoing.close()

    async def send_all(self, call: Call) -> None:
        """Encoded only now, so that what was given up meanwhile costs nothing; pieces, which are large, in a thread."""
        while (message := await self._outgoing.take()) is not None:
            if isinstance(message, Piece):
                parts = await asyncio.to_thread(encode_downward, message)
            else:
                parts = encode_downward(message)
            for encoded in parts:
                await call.write(encoded)


class ReplicationService:
    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting

    async def follow(self, requests: AsyncIterator[bytes], call: Call) -> None:
        """Until the downstream goes away, the node drains, or another stream takes this one's place."""
        assembler = UpwardAssembler()
        hello = await wait_for_hello(requests, assembler)
        assert assembler.key is not None
        shard = self._hosting.find_by_id(assembler.key.topic_id, assembler.key.shard)
        check_hello(shard, hello)
        downstream = Downstream()
        sending = asyncio.create_task(downstream.send_all(call))
        receiving = asyncio.create_task(receive_all(requests, assembler, shard, hello.node, downstream))
        undo = call.gate.on_drain(downstream.close)
        try:
            shard.neighbours.came(hello.node, downstream, hello)
            done, _ = await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            undo()
            shard.neighbours.left(hello.node, downstream)
            for task in (sending, receiving):
                task.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)


def check_hello(shard: Shard, hello: Hello) -> None:
    shard.neighbours.check_hello(hello, shard.view, shard.place.node)


async def wait_for_hello(requests: AsyncIterator[bytes], assembler: UpwardAssembler) -> Hello:
    try:
        async with asyncio.timeout(HELLO_S):
            return await read_hello(requests, assembler)
    except TimeoutError:
        raise DeadlineExceeded(f"no Hello within {HELLO_S:g} s: open the stream again and say it first") from None


async def read_hello(requests: AsyncIterator[bytes], assembler: UpwardAssembler) -> Hello:
    async for encoded in requests:
        message = assembler.feed(encoded)
        if isinstance(message, Hello):
            return message
        if message is not None:
            break
    raise InvalidArgument("a conversation between replicas begins with Hello")


async def receive_all(
    requests: AsyncIterator[bytes], assembler: UpwardAssembler, shard: Shard, node: str, downstream: Any
) -> None:
    async for encoded in requests:
        message = assembler.feed(encoded)
        if message is None:
            continue
        if isinstance(message, Hello):
            check_hello(shard, message)
        shard.neighbours.said(node, downstream, message)
