"""Snapshots of a topic's shards, as they come."""

from types import TracebackType

from kayos.client.aio.arrivals import Arrivals
from kayos.client.aio.driver import Driver
from kayos.client.aio.snapshot import Snapshot
from kayos.client.core.calls import Directory
from kayos.client.core.consumer import Subscription, check_finished
from kayos.client.core.guard import Unpicklable
from kayos.client.core.reader import ShardReader
from kayos.client.core.snapshot import SnapshotHead
from kayos.errors import KayosError


class Source(Unpicklable):
    """The next snapshot that a subscription offers, of whichever shard; what both kinds of consumer read from."""

    def __init__(self, driver: Driver, directory: Directory, subscription: Subscription) -> None:
        self.driver = driver
        self.directory = directory
        self.subscription = subscription
        self.is_closed = False
        self._arrivals: Arrivals | None = None
        self._current: ShardReader | None = None

    async def open(self) -> Arrivals:
        if self._arrivals is None:
            readers = await self.driver.run(self.subscription.open_readers(self.directory))
            self._arrivals = Arrivals(self.driver, readers)
            if self.is_closed:
                await self._arrivals.close()
        return self._arrivals

    async def next_snapshot(self) -> tuple[ShardReader, SnapshotHead] | None:
        """None at the end, or when `close` was called meanwhile."""
        check_finished(self._current)
        self._current = None
        try:
            while not self.is_closed:
                reader = await (await self.open()).wait()
                if reader is None:
                    return None
                head = await self.driver.run(reader.prefetch())
                if head is not None:
                    self._current = reader
                    return reader, head
        except KayosError:
            if not self.is_closed:
                raise
        return None

    async def close(self) -> None:
        self.is_closed = True
        if self._arrivals is not None:
            await self._arrivals.close()


class Consumer:
    """An iterator of snapshots and a context manager. After SnapshotExpired it goes on, from the last boundary."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def __aenter__(self) -> "Consumer":
        await self._source.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> "Consumer":
        return self

    async def __anext__(self) -> Snapshot:
        found = await self._source.next_snapshot()
        if found is None:
            raise StopAsyncIteration
        reader, head = found
        source = self._source
        return Snapshot(source.driver, source.directory, reader, head, source.subscription.consumer)

    async def close(self) -> None:
        """End it, from any task: whoever waits for the next snapshot sees the end of the iteration."""
        await self._source.close()
