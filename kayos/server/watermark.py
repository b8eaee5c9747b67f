"""A number that only rises, and those who wait for it: the cheap notification behind long polls.

Lives on the event loop. An idle waiter costs one future; a rise that reaches nobody costs one comparison.
"""

import asyncio

from kayos.errors import KayosError


class Watermark:
    """`value` rises through `advance`; `close` ends every wait, also later ones, with an error."""

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._lowest_waited = 0
        self._closed: KayosError | None = None

    @property
    def waiters(self) -> int:
        return len(self._waiting)

    def advance(self, value: int) -> None:
        if value <= self.value:
            return
        self.value = value
        if not self._waiting or value < self._lowest_waited:
            return
        reached = [future for future, wanted in self._waiting.items() if wanted <= value]
        for future in reached:
            del self._waiting[future]
            if not future.done():
                future.set_result(None)
        self._lowest_waited = min(self._waiting.values(), default=0)

    async def wait_for(self, wanted: int) -> None:
        """Return once `value` is at least `wanted`."""
        if self._closed is not None:
            raise self._closed
        if self.value >= wanted:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lowest_waited = min(self._lowest_waited, wanted) if self._waiting else wanted
        self._waiting[future] = wanted
        try:
            await future
        finally:
            self._waiting.pop(future, None)

    def close(self, error: KayosError) -> None:
        """The first reason stays."""
        if self._closed is not None:
            return
        self._closed = error
        waiting, self._waiting = list(self._waiting), {}
        for future in waiting:
            if not future.done():
                future.set_exception(error)
