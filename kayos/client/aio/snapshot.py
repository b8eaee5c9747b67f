"""A snapshot while it is read."""

from collections.abc import AsyncIterator, Iterator

from kayos.client.aio.driver import Driver
from kayos.client.core import marks
from kayos.client.core.boundary import Boundary
from kayos.client.core.calls import Directory
from kayos.client.core.message import Message
from kayos.client.core.reader import ShardReader
from kayos.client.core.snapshot import SnapshotHead


class Snapshot(Boundary):
    """The newest revision of each key written in (`start_seq`, `end_seq`], in order, each once.

    Read it to the end: only then is it whole and verified, and `mark` and `commit()` are there. A loop that was left
    early goes on where it was.
    """

    def __init__(
        self, driver: Driver, directory: Directory, reader: ShardReader, head: SnapshotHead, consumer: str | None
    ) -> None:
        super().__init__(head)
        self._driver = driver
        self._directory = directory
        self._reader = reader
        self._consumer = consumer
        self._rest: Iterator[Message] = iter(())

    async def __aiter__(self) -> AsyncIterator[Message]:
        for message in self._rest:
            yield message
        while (batch := await self._next_batch()) is not None:
            self._rest = iter(batch)
            for message in self._rest:
                yield message

    async def batches(self) -> AsyncIterator[list[Message]]:
        """The messages in lists, as they arrive: less work per message."""
        if rest := list(self._rest):
            yield rest
        while (batch := await self._next_batch()) is not None:
            yield batch

    async def _next_batch(self) -> list[Message] | None:
        if self.is_whole:
            return None
        batch = await self._driver.run(self._reader.read_batch())
        if batch is None:
            self._mark = self._reader.position
        return batch

    async def commit(self) -> None:
        """Move the consumer's mark on the server to this boundary."""
        await self._driver.run(marks.commit(self._directory, self.topic, self.shard, self._consumer, self.mark))
