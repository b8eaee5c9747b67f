"""Message by message: no boundaries, revisions of one key in order, the newest always."""

from types import TracebackType

from kayos.client.aio.batched import Batched
from kayos.client.aio.consumer import Source
from kayos.client.core import marks
from kayos.client.core.consumer import MessageMarks
from kayos.client.core.message import Message
from kayos.client.core.reader import ShardReader
from kayos.errors import KayosError


class MessageConsumer(Batched):
    """Iterate for messages, or over `batches()` for lists of them. A broken stream goes on after the last one given,
    and so does a loop that was left early."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._marks = MessageMarks()
        self._reader: ShardReader | None = None

    async def __aenter__(self) -> "MessageConsumer":
        await self._source.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _next_batch(self) -> list[Message] | None:
        while True:
            if self._reader is None:
                found = await self._source.next_snapshot()
                if found is None:
                    return None
                self._reader, head = found
                self._marks.note(head)
            try:
                batch = await self._source.driver.run(self._reader.read_batch())
            except KayosError:
                self._reader = None
                if self._source.is_closed:
                    return None
                raise
            if batch is not None:
                return batch
            self._reader = None

    async def commit(self, message: Message) -> None:
        """Move the consumer's mark on the server right behind this message."""
        source = self._source
        mark = self._marks.mark_of(message)
        consumer = source.subscription.consumer
        await source.driver.run(marks.commit(source.directory, message.topic, message.shard, consumer, mark))

    async def close(self) -> None:
        """End it, from any task: whoever waits for the next message sees the end of the iteration."""
        await self._source.close()
