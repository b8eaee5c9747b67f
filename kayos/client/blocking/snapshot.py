"""A snapshot while it is read."""

from collections.abc import Iterator

from kayos.client.blocking.driver import Driver
from kayos.client.core import marks
from kayos.client.core.calls import Directory
from kayos.client.core.message import Message
from kayos.client.core.reader import ShardReader
from kayos.client.core.snapshot import SnapshotHead
from kayos.errors import FailedPrecondition
from kayos.model.mark import Mark


class Snapshot:
    """The newest revision of each key written in (`start_seq`, `end_seq`], in order, each once.

    Iterate once, to the end: only then is the snapshot whole and verified, and `mark` and `commit()` are there.
    """

    def __init__(
        self, driver: Driver, directory: Directory, reader: ShardReader, head: SnapshotHead, consumer: str | None
    ) -> None:
        self._driver = driver
        self._directory = directory
        self._reader = reader
        self._head = head
        self._consumer = consumer
        self._mark: Mark | None = None

    @property
    def topic(self) -> str:
        return self._head.topic

    @property
    def shard(self) -> int:
        return self._head.shard

    @property
    def start_seq(self) -> int:
        return self._head.start_seq

    @property
    def end_seq(self) -> int:
        return self._head.end_seq

    @property
    def purge_seq(self) -> int:
        return self._head.purge_seq

    @property
    def is_whole(self) -> bool:
        return self._mark is not None

    @property
    def mark(self) -> Mark:
        """The boundary, to be stored with the data. Refused until every message was read."""
        if self._mark is None:
            raise FailedPrecondition(
                f"the snapshot to {self.end_seq} of {self.topic}/{self.shard} is not read to its end: "
                "read all its messages before you commit"
            )
        return self._mark

    def __iter__(self) -> Iterator[Message]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[Message]]:
        """The messages in lists, as they arrive: less work per message."""
        while self._mark is None:
            batch = self._driver.run(self._reader.read_batch())
            if batch is None:
                self._mark = self._reader.position
                return
            yield batch

    def commit(self) -> None:
        """Move the consumer's mark on the server to this boundary."""
        self._driver.run(marks.commit(self._directory, self.topic, self.shard, self._consumer, self.mark))
