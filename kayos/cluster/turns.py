"""Changes that take turns: one at a time, and each to its end even if its caller leaves.

A lock alone would not do: a caller that is cancelled lets go of it while what it started (a file being
written in a thread) goes on, and the next change meets it half done.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Turns:
    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def take(self, change: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(self._run(change))
        # A failure that nobody waits for any more is not worth a complaint of the event loop.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _run(self, change: Coroutine[Any, Any, T]) -> T:
        async with self._lock:
            return await change
