"""One shard's stream of snapshots put together: begin, columns, end, and again.

A table of what may follow what; anything else is a broken server or a damaged stream and is refused, because a
boundary licenses the consumer to commit and must never be given by mistake.
"""

from dataclasses import dataclass
from enum import Enum, auto

import google_crc32c
from google.protobuf.message import DecodeError

from kayos.client.core.message import Message, messages_from_columns
from kayos.errors import DataLoss
from kayos.model.mark import Mark
from kayos.model.takeover import TakeoverRow, TakeoverTable
from kayos.wire.codec import mark_from_wire
from kayos.wire.v1 import log_pb2


@dataclass(frozen=True, slots=True)
class SnapshotHead:
    topic: str
    shard: int
    start_seq: int
    end_seq: int
    purge_seq: int
    takeover: TakeoverTable

    def mark_at(self, seq: int) -> Mark:
        """The mark of a consumer that stopped inside this snapshot."""
        return Mark(self.takeover.find_history_at(seq), seq, self.start_seq, self.end_seq)


class Phase(Enum):
    BETWEEN = auto()
    INSIDE = auto()
    ENDED = auto()


class Assembly:
    """`mark` is the last boundary that arrived whole; None before the first."""

    def __init__(self, topic: str, shard: int) -> None:
        self.topic = topic
        self.shard = shard
        self.phase = Phase.BETWEEN
        self.head: SnapshotHead | None = None
        self.mark: Mark | None = None
        self._count = 0
        self._checksum = 0
        self._last_seq = 0

    def restart(self) -> None:
        """The stream broke: what came since the last boundary is void."""
        self.phase = Phase.BETWEEN
        self.head = None

    def take(self, encoded: bytes) -> list[Message]:
        """Follow one event; the messages that it brought."""
        try:
            event = log_pb2.SubscribeResponse.FromString(encoded)
        except DecodeError as error:
            raise self._damage("sent an event that cannot be read") from error
        match (self.phase, event.WhichOneof("event")):
            case (Phase.BETWEEN, "begin"):
                self._begin(event.begin)
            case (Phase.INSIDE, "columns"):
                return self._columns(event.columns)
            case (Phase.INSIDE, "end"):
                self._end(event.end)
            case (Phase.BETWEEN, "at_end"):
                self.mark = mark_from_wire(event.at_end.mark)
                self.phase = Phase.ENDED
            case (phase, kind):
                raise self._damage(f"sent {kind} while the reader was {phase.name.lower()}")
        return []

    def _begin(self, begin: log_pb2.SnapshotBegin) -> None:
        if begin.end_seq <= begin.start_seq:
            raise self._damage(f"began a snapshot from {begin.start_seq} to {begin.end_seq}")
        rows = tuple(TakeoverRow(row.history_id, row.start_seq, row.epoch) for row in begin.takeover)
        self.head = SnapshotHead(
            self.topic, self.shard, begin.start_seq, begin.end_seq, begin.purge_seq, TakeoverTable(rows)
        )
        self.phase = Phase.INSIDE
        self._count = 0
        self._checksum = 0
        self._last_seq = begin.start_seq

    def _columns(self, encoded: bytes) -> list[Message]:
        messages = messages_from_columns(self.topic, self.shard, encoded)
        self._checksum = google_crc32c.extend(self._checksum, encoded)
        self._count += len(messages)
        if messages:
            if messages[0].seq <= self._last_seq:
                raise self._damage(f"sent sequence {messages[0].seq} after {self._last_seq}")
            self._last_seq = messages[-1].seq
        return messages

    def _end(self, end: log_pb2.SnapshotEnd) -> None:
        assert self.head is not None
        if end.count != self._count:
            raise self._damage(f"announced {end.count} messages and sent {self._count}")
        if end.checksum != self._checksum:
            raise self._damage("sent a snapshot that fails its checksum")
        if self._last_seq > self.head.end_seq or end.mark.seq != self.head.end_seq:
            raise self._damage(f"ended the snapshot to {self.head.end_seq} at {max(self._last_seq, end.mark.seq)}")
        self.mark = mark_from_wire(end.mark)
        self.phase = Phase.BETWEEN

    def _damage(self, what: str) -> DataLoss:
        return DataLoss(f"the server of {self.topic}/{self.shard} {what}: read again from the mark")
