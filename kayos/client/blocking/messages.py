"""Message by message: no boundaries, revisions of one key in order, the newest always."""

from collections.abc import Iterator
from types import TracebackType

from kayos.client.blocking.consumer import Source
from kayos.client.core import marks
from kayos.client.core.consumer import MessageMarks
from kayos.client.core.message import Message


class MessageConsumer:
    """Iterate for messages, or over `batches()` for lists of them. A broken stream goes on after the last one given."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._marks = MessageMarks()

    def __enter__(self) -> "MessageConsumer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[Message]]:
        while (found := self._source.next_snapshot()) is not None:
            reader, head = found
            self._marks.note(head)
            while (batch := self._source.driver.run(reader.read_batch())) is not None:
                yield batch

    def commit(self, message: Message) -> None:
        """Move the consumer's mark on the server right behind this message."""
        source = self._source
        mark = self._marks.mark_of(message)
        consumer = source.subscription.consumer
        source.driver.run(marks.commit(source.directory, message.topic, message.shard, consumer, mark))

    def close(self) -> None:
        self._source.close()
