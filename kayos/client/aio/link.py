"""One produce stream: payloads go out through a queue, answers come back on a task of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from kayos.client.aio.driver import error_from_call
from kayos.client.core.reader import STREAM_TIMEOUT_S
from kayos.errors import KayosError, Unavailable
from kayos.wire.methods import LOG_METHODS
from kayos.wire.v1 import log_pb2


class Link:
    """`on_broken` is called exactly once, last."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        on_answer: Callable[[log_pb2.ProduceResponse], None],
        on_broken: Callable[[KayosError], None],
    ) -> None:
        self._outgoing: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._on_answer = on_answer
        self._on_broken = on_broken
        stream: Any = channel.stream_stream(LOG_METHODS["ProduceStream"].path)
        self._call = stream(self._payloads(), timeout=STREAM_TIMEOUT_S)
        self._task = asyncio.get_running_loop().create_task(self._read(), name="kayos-link")

    def send(self, payload: bytes) -> None:
        self._outgoing.put_nowait(payload)

    def close(self) -> None:
        self._outgoing.put_nowait(None)
        self._call.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait([self._task])

    async def _payloads(self) -> AsyncIterator[bytes]:
        while (payload := await self._outgoing.get()) is not None:
            yield payload

    async def _read(self) -> None:
        reason: KayosError = Unavailable("the server ended the stream")
        try:
            async for encoded in self._call:
                self._on_answer(log_pb2.ProduceResponse.FromString(encoded))
        except (grpc.RpcError, asyncio.CancelledError) as error:
            reason = error_from_call(error)
        finally:
            self._outgoing.put_nowait(None)
            self._on_broken(reason)
