"""A budget of bytes that many share: what snapshots in memory, or writes that wait, may take together.

First come, first served. Who waits makes the budget `is_pressed`; then readers that do not progress lose
their snapshot sooner, so that a client that never reads cannot starve the others.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Hold:
    """Some bytes of the budget; it may shrink, never grow."""

    def __init__(self, budget: "MemoryBudget", size: int) -> None:
        self._budget = budget
        self.size = size

    def shrink(self, size: int) -> None:
        if size < self.size:
            self._budget.give_back(self.size - size)
            self.size = size


class MemoryBudget:
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    @property
    def is_pressed(self) -> bool:
        return bool(self._waiting)

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[Hold]:
        size = await self.take(size)
        held = Hold(self, size)
        try:
            yield held
        finally:
            self.give_back(held.size)

    def give_back(self, size: int) -> None:
        self.bytes_held -= size
        while self._waiting:
            waiter, wanted = self._waiting[0]
            if not waiter.done():
                if self.bytes_held + wanted > self.bytes_max:
                    return
                self.bytes_held += wanted
                waiter.set_result(None)
            self._waiting.popleft()

    def has_room(self, size: int) -> bool:
        return not self._waiting and self.bytes_held + min(size, self.bytes_max) <= self.bytes_max

    async def take(self, size: int) -> int:
        """How much was taken, to be given back: `size`, or the whole budget if that is less."""
        size = min(size, self.bytes_max)
        if self.has_room(size):
            self.bytes_held += size
            return size
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (waiter, size)
        self._waiting.append(entry)
        try:
            await waiter
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            if waiter.done() and not waiter.cancelled():
                self.give_back(size)
            else:
                self.give_back(0)
            raise
        return size
