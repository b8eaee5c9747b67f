"""The way out to one streaming client: back-pressure, and an end to clients that never read.

A write returns when gRPC's flow control took the message, so a slow client slows only its own stream. One
that takes nothing for `stalled_s` loses its snapshot; when others wait for memory, much sooner.
"""

import asyncio
from collections.abc import Awaitable, Callable

from kayos.errors import SnapshotExpired
from kayos.limits import STALLED_UNDER_PRESSURE_S
from kayos.server.logs import get_log
from kayos.server.memory import MemoryBudget


class Outlet:
    def __init__(self, write: Callable[[bytes], Awaitable[None]], budget: MemoryBudget, stalled_s: float) -> None:
        self._write = write
        self._budget = budget
        self._stalled_s = stalled_s

    async def send(self, encoded: bytes) -> None:
        writing = asyncio.ensure_future(self._write(encoded))
        writing.add_done_callback(forget_outcome)
        try:
            await self._watch(writing)
        finally:
            if not writing.done():
                writing.cancel()

    async def _watch(self, writing: "asyncio.Future[None]") -> None:
        waited_s = 0.0
        while True:
            patience_s = min(STALLED_UNDER_PRESSURE_S, self._stalled_s - waited_s)
            await asyncio.wait((writing,), timeout=patience_s)
            if writing.done():
                writing.result()
                return
            waited_s += patience_s
            if waited_s >= self._stalled_s or self._budget.is_pressed:
                get_log().warning("a reader takes nothing and loses its snapshot", waited_s=waited_s)
                raise SnapshotExpired(
                    f"the reader took nothing for {waited_s:g} s: subscribe again from your mark and read on"
                )


def forget_outcome(writing: "asyncio.Future[None]") -> None:
    """A write that nobody waits for any more may still fail, because its client is gone; that is no news."""
    if not writing.cancelled():
        writing.exception()
