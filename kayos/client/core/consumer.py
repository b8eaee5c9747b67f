"""What both shells' consumers share: the readers of a topic's shards, and the mark of one message."""

from collections.abc import Sequence
from dataclasses import dataclass

from kayos.client.core.calls import Directory, get_view
from kayos.client.core.message import Message
from kayos.client.core.reader import ShardReader
from kayos.client.core.snapshot import SnapshotHead
from kayos.client.core.start import Start, choose_start
from kayos.client.core.steps import Steps
from kayos.errors import FailedPrecondition
from kayos.model.mark import Mark
from kayos.model.topic import check_name


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer asked for; `shards` None means all."""

    topic: str
    consumer: str | None
    start: Start
    stop_at_end: bool
    shards: Sequence[int] | None
    by_message: bool

    def open_readers(self, directory: Directory) -> Steps[list[ShardReader]]:
        """A reader per shard; from now on a start at the latest means now."""
        view = yield from get_view(directory, self.topic)
        chosen = range(view.shards) if self.shards is None else sorted(set(self.shards))
        for shard in chosen:
            view.check_shard(shard)
        readers = [
            ShardReader(
                directory,
                self.topic,
                shard,
                start=self.start,
                consumer=self.consumer,
                stop_at_end=self.stop_at_end,
                by_message=self.by_message,
            )
            for shard in chosen
        ]
        for reader in readers:
            yield from reader.settle_start()
        return readers


def make_subscription(
    topic: str,
    *,
    consumer: str | None,
    start: Start | None,
    stop_at_end: bool,
    shards: Sequence[int] | None,
    by_message: bool,
) -> Subscription:
    check_name("topic", topic)
    if consumer is not None:
        check_name("consumer", consumer)
    return Subscription(topic, consumer, choose_start(start, consumer), stop_at_end, shards, by_message)


def check_finished(reader: ShardReader | None) -> None:
    """Going on without the rest of a snapshot would skip messages without a word."""
    if reader is not None and reader.is_inside:
        raise FailedPrecondition(
            f"the last snapshot of {reader.topic}/{reader.shard} is not read to its end: read it before the next one"
        )


class MessageMarks:
    """The mark that stands right after a message; knows the histories from the snapshots that went by."""

    def __init__(self) -> None:
        self._heads: dict[int, SnapshotHead] = {}

    def note(self, head: SnapshotHead) -> None:
        self._heads[head.shard] = head

    def mark_of(self, message: Message) -> Mark:
        head = self._heads.get(message.shard)
        if head is None or head.topic != message.topic or message.seq > head.end_seq:
            raise FailedPrecondition(
                f"message {message.topic}/{message.shard} at {message.seq} was not given by this consumer: "
                "commit a message that it gave"
            )
        if message.seq > head.start_seq:
            return head.mark_at(message.seq)
        return Mark(head.takeover.find_history_at(message.seq), message.seq)
