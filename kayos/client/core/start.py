"""Where a consumer begins."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from kayos.errors import InvalidArgument
from kayos.model.mark import BEGINNING, Mark
from kayos.wire.codec import mark_to_wire
from kayos.wire.v1 import log_pb2


class StartKind(Enum):
    MARKS = auto()
    CONSUMER = auto()
    AFTER_SEQ = auto()
    TIME = auto()
    LATEST = auto()


@dataclass(frozen=True, slots=True)
class Start:
    """Where a consumer begins; `client.consume(topic, start=...)` takes one of

    Start.beginning()                  all that is there
    Start.consumer_mark()              the mark that the server holds for the consumer (the default)
    Start.mark({0: mark, 1: mark})     marks by shard that the consumer keeps itself, from `snapshot.mark`
    Start.after(1234)                  what stands above a sequence
    Start.time(1_700_000_000_000)      messages at or after a time, in ms since 1970
    Start.latest()                     only what comes from now on
    """

    kind: StartKind
    number: int = 0
    marks: Mapping[int, Mark] = field(default_factory=dict)

    @classmethod
    def beginning(cls) -> "Start":
        return cls(StartKind.AFTER_SEQ)

    @classmethod
    def mark(cls, marks: Mapping[int, Mark]) -> "Start":
        """Marks by shard, kept in the consumer's own store; a shard without one begins at the beginning."""
        return cls(StartKind.MARKS, marks=dict(marks))

    @classmethod
    def consumer_mark(cls) -> "Start":
        """The mark that the server holds for the consumer; the beginning if there is none."""
        return cls(StartKind.CONSUMER)

    @classmethod
    def after(cls, seq: int) -> "Start":
        """Above this sequence, in every shard, whatever history wrote it."""
        if not 0 <= seq < 2**63:
            raise InvalidArgument(f"sequence {seq} cannot be: give 0 (the beginning) or a positive one")
        return cls(StartKind.AFTER_SEQ, seq)

    @classmethod
    def time(cls, timestamp_ms: int) -> "Start":
        """Messages at or after this time, in ms since 1970."""
        if not 0 <= timestamp_ms < 2**63:
            raise InvalidArgument(f"time {timestamp_ms} cannot be: give milliseconds since 1970")
        return cls(StartKind.TIME, timestamp_ms)

    @classmethod
    def latest(cls) -> "Start":
        """Only what comes after now."""
        return cls(StartKind.LATEST)

    def fill(self, request: log_pb2.SubscribeRequest, *, shard: int, consumer: str | None) -> None:
        match self.kind:
            case StartKind.MARKS:
                request.mark.CopyFrom(mark_to_wire(self.marks.get(shard, BEGINNING)))
            case StartKind.CONSUMER:
                request.consumer = consumer or ""
            case StartKind.AFTER_SEQ:
                request.after_seq = self.number
            case StartKind.TIME:
                request.from_time_ms = self.number
            case StartKind.LATEST:
                request.latest = True


def choose_start(start: Start | None, consumer: str | None) -> Start:
    """The default is the consumer's own mark, or the beginning for one without a name."""
    if start is None:
        return Start.consumer_mark() if consumer else Start.beginning()
    if start.kind is StartKind.CONSUMER and not consumer:
        raise InvalidArgument("the consumer's mark needs a consumer: give its name")
    return start
