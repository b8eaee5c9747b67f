"""A snapshot while it is read."""

from kayos.client.aio.batched import Batched
from kayos.client.aio.driver import Driver
from kayos.client.core import marks
from kayos.client.core.boundary import Boundary
from kayos.client.core.calls import Directory
from kayos.client.core.message import Message
from kayos.client.core.reader import ShardReader
from kayos.client.core.snapshot import SnapshotHead


class Snapshot(Boundary, Batched):
    """The newest revision of each key written in (`start_seq`, `end_seq`], in order, each once.

    Read it to the end: only then is it whole and verified, and `mark` and `commit()` are there. A loop that was left
    early goes on where it was.
    """

    def __init__(
        self, driver: Driver, directory: Directory, reader: ShardReader, head: SnapshotHead, consumer: str | None
    ) -> None:
        Boundary.__init__(self, head)
        Batched.__init__(self)
        self._driver = driver
        self._directory = directory
        self._reader = reader
        self._consumer = consumer

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
