"""Getting a store back after an error of the disk: reopen, at growing intervals, until it works or is found damaged.

Readers go on meanwhile where they can; a writer waits for the try that is under way and hears what came of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kayos.errors import DataLoss, KayosError
from kayos.limits import REOPEN_DELAY_S_MAX, REOPEN_DELAY_S_MIN


class Recovery:
    """`problem` says what is being recovered from; `damage` is final."""

    def __init__(self, log: Any, reopen: Callable[[], Awaitable[None]]) -> None:
        self.problem = ""
        self.damage: DataLoss | None = None
        self._log = log
        self._reopen = reopen
        self._task: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()

    def begin(self, reason: str) -> None:
        self.problem = reason
        if self._task is None or self._task.done():
            self._tried = asyncio.Event()
            self._task = asyncio.create_task(self._run(), name="recovery")

    async def wait(self) -> None:
        """Until the next try has ended, if one is to come."""
        if self._task is not None and not self._task.done():
            await self._tried.wait()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        delay_s = REOPEN_DELAY_S_MIN
        while not await self._try():
            self._tried.set()
            self._tried = asyncio.Event()
            await asyncio.sleep(delay_s)
            delay_s = min(REOPEN_DELAY_S_MAX, delay_s * 2)
        self._tried.set()

    async def _try(self) -> bool:
        """Whether no other try is needed; the new life may have broken already while it began."""
        try:
            await self._reopen()
        except DataLoss as error:
            self.damage = error
            self.problem = error.message
            self._log.error("the store is damaged and takes no writes", reason=error.message)
            return True
        except KayosError as error:
            self.problem = error.message
            self._log.warning("the store cannot be reopened yet", reason=error.message)
        return not self.problem
