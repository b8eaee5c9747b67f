"""Which shard has a snapshot to read next: a task per shard waits for it and then rests until it was read."""

import asyncio

from kayos.client.aio.driver import Driver
from kayos.client.core.reader import ShardReader
from kayos.errors import FailedPrecondition, KayosError


class Arrivals:
    def __init__(self, driver: Driver, readers: list[ShardReader]) -> None:
        self._driver = driver
        self._readers = readers
        self._queue: asyncio.Queue[tuple[ShardReader, bool | KayosError]] = asyncio.Queue()
        self._turns: dict[ShardReader, asyncio.Semaphore] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._resting: list[ShardReader] = []
        self._living = len(readers)

    async def wait(self) -> ShardReader | None:
        """The reader of the next snapshot, in the order in which they began; None when there will be none."""
        if len(self._readers) == 1:
            return self._readers[0] if await self._driver.run(self._readers[0].wait_begin()) else None
        self._wake_tasks()
        while self._living:
            reader, outcome = await self._queue.get()
            if outcome is False:
                self._living -= 1
                continue
            self._resting.append(reader)
            if isinstance(outcome, KayosError):
                raise outcome
            return reader
        return None

    async def close(self) -> None:
        closed = FailedPrecondition("this consumer is closed: begin another one")
        for reader in self._readers:
            reader.closed = True
            if reader.stream is not None:
                reader.stream.cancel()
            self._queue.put_nowait((reader, closed))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _wake_tasks(self) -> None:
        """The caller is through with the snapshots it was given, so their shards may wait for the next."""
        if not self._turns:
            for reader in self._readers:
                self._turns[reader] = asyncio.Semaphore(1)
                name = f"kayos-consume-{reader.shard}"
                self._tasks.append(asyncio.get_running_loop().create_task(self._follow(reader), name=name))
        while self._resting:
            self._turns[self._resting.pop()].release()

    async def _follow(self, reader: ShardReader) -> None:
        has_more: bool | KayosError = True
        while has_more is not False:
            await self._turns[reader].acquire()
            if reader.closed:
                return
            try:
                has_more = await self._driver.run(reader.wait_begin())
            except KayosError as error:
                has_more = error
            self._queue.put_nowait((reader, has_more))
