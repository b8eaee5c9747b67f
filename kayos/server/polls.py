"""Waits of callers that a drain ends with its reason, while those of writes under way go on."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from kayos.errors import KayosError

T = TypeVar("T")


class Polls:
    def __init__(self) -> None:
        self._running: set[asyncio.Future[Any]] = set()
        self._refusal: KayosError | None = None

    async def run(self, poll: Coroutine[Any, Any, T]) -> T:
        waiting = asyncio.ensure_future(poll)
        self._running.add(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if self._refusal is not None and waiting.cancelled():
                raise type(self._refusal)(self._refusal.message, **self._refusal.fields) from None
            raise
        finally:
            waiting.cancel()
            self._running.discard(waiting)

    def refuse(self, reason: KayosError) -> None:
        self._refusal = reason
        for poll in list(self._running):
            poll.cancel()
