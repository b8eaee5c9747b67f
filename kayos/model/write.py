"""What a producer asks for, what it is told, and the batch that replicas exchange."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kayos.model.control import Control
from kayos.model.producer import ProducerRow, ProducerStamp
from kayos.model.record import Kind


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One all-or-nothing group of messages, as columns.

    `kinds` is empty when every message is a PUT. An empty key means unkeyed. The sparse columns are keyed by
    the message's index: `headers` (packed), `ttl_ms`, and `expected`: the sequence that the key's live
    record must have (0: the key must not exist). The gateway has checked sizes and lengths.
    """

    keys: Sequence[bytes]
    values: Sequence[bytes]
    kinds: bytes = b""
    headers: Mapping[int, bytes] = field(default_factory=dict)
    ttl_ms: Mapping[int, int] = field(default_factory=dict)
    expected: Mapping[int, int] = field(default_factory=dict)
    producer: ProducerStamp | None = None

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def only_deletes(self) -> bool:
        """Deletes free space in the end, so they are taken when the store is nearly full."""
        return bool(self.kinds) and self.kinds.count(Kind.DELETE) == len(self.kinds)


@dataclass(frozen=True, slots=True)
class ControlRequest:
    control: Control


Request = WriteRequest | ControlRequest


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Message `i` of the request has sequence `first_seq + i`. `duplicate`: an earlier send stored it."""

    history_id: bytes
    first_seq: int
    last_seq: int
    timestamp_ms: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """What one group commit appends, as replicas exchange it.

    It follows `previous_seq` exactly and brings the receiver to `last_seq`. `records` are stored forms,
    ascending, controls included; sequences between them belong to revisions that were replaced inside the
    group and need never be written. `producers` are whole rows.
    """

    epoch: int
    previous_seq: int
    last_seq: int
    timestamp_ms: int
    records: tuple[bytes, ...]
    producers: tuple[ProducerRow, ...] = ()

    @property
    def size(self) -> int:
        return sum(map(len, self.records))
