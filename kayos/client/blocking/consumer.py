"""Snapshots of a topic's shards, as they come."""

from types import TracebackType

from kayos.client.blocking.arrivals import Arrivals
from kayos.client.blocking.driver import Driver
from kayos.client.blocking.snapshot import Snapshot
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

    def open(self) -> Arrivals:
        if self._arrivals is None:
            readers = self.driver.run(self.subscription.open_readers(self.directory))
            self._arrivals = Arrivals(self.driver, readers)
            if self.is_closed:
                self._arrivals.close()
        return self._arrivals

    def next_snapshot(self) -> tuple[ShardReader, SnapshotHead] | None:
        """None at the end, or when `close` was called meanwhile."""
        check_finished(self._current)
        self._current = None
        try:
            while not self.is_closed:
                reader = self.open().wait()
                if reader is None:
                    return None
                head = self.driver.run(reader.prefetch())
                if head is not None:
                    self._current = reader
                    return reader, head
        except KayosError:
            if not self.is_closed:
                raise
        return None

    def close(self) -> None:
        self.is_closed = True
        if self._arrivals is not None:
            self._arrivals.close()


class Consumer:
    """An iterator of snapshots and a context manager. After SnapshotExpired it goes on, from the last boundary."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __enter__(self) -> "Consumer":
        self._source.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> "Consumer":
        return self

    def __next__(self) -> Snapshot:
        found = self._source.next_snapshot()
        if found is None:
            raise StopIteration
        reader, head = found
        source = self._source
        return Snapshot(source.driver, source.directory, reader, head, source.subscription.consumer)

    def close(self) -> None:
        """End it, from any thread: whoever waits for the next snapshot sees the end of the iteration."""
        self._source.close()
