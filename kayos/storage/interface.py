"""What every store can do: the LMDB store and its in-memory twin answer alike, call for call.

A store is one shard's copy. One thread writes (commit, apply, take_over, save_*, catch-up, compaction);
any thread reads, in short transactions that copy out. The head gives requests to `commit`, which assigns
sequences; replicas give the head's batches to `apply`; both end in the same state. A request that is refused
changes nothing and is answered with its error, the others of its group go on.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from kayos.errors import KayosError
from kayos.model.mark import Mark
from kayos.model.pin import Pin
from kayos.model.producer import ProducerRow
from kayos.model.record import Record
from kayos.model.snapshot import LogSlice
from kayos.model.takeover import TakeoverRow, TakeoverTable
from kayos.model.topic import Mode
from kayos.model.write import Batch, Request, WriteResult


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose copy this is; written once, checked at every open."""

    topic_id: str
    shard: int
    mode: Mode


@dataclass(frozen=True, slots=True)
class Floors:
    """What was removed for good; none of these ever falls.

    `removal_seq` is the sequence of the last control record that removed messages: a replica that
    diverged below it cannot be rolled back row by row, because rows below the divergence point are gone.
    """

    purge_seq: int = 0
    trim_seq: int = 0
    aged_seq: int = 0
    expired_ms: int = 0
    expired_seq: int = 0
    removal_seq: int = 0

    @property
    def reader_seq(self) -> int:
        """A reader that starts below this (and not at 0) may have missed a delete or a message."""
        return max(self.purge_seq, self.trim_seq)


class SyncPhase(StrEnum):
    READY = "ready"
    CATCHING_UP = "catching_up"
    ROLLING_BACK = "rolling_back"


@dataclass(frozen=True, slots=True)
class SyncState:
    """Whether the copy is whole; while it is not, it is neither readable nor promotable.

    During a catch-up everything in (`start_seq`, `through_seq`] was taken from the source, whose newest state
    used was at `end_seq` and the first one at `first_end_seq`.
    """

    phase: SyncPhase = SyncPhase.READY
    start_seq: int = 0
    through_seq: int = 0
    end_seq: int = 0
    first_end_seq: int = 0

    def misses_deletes(self, purge_seq: int) -> bool:
        """Whether the source purged a tombstone that this copy needed to see.

        Rows that the copy held at the start need the tombstones above it. A copy that began with nothing needs those
        that came after its first slice was read: a row of that slice may have been deleted and purged since."""
        return purge_seq > (self.start_seq or self.first_end_seq)


@dataclass(frozen=True, slots=True)
class StoreState:
    """The committed state in one glance. `message_seq` is the newest sequence that is not a control."""

    identity: Identity
    incarnation: bytes
    high_seq: int = 0
    message_seq: int = 0
    last_timestamp_ms: int = 0
    floors: Floors = field(default_factory=Floors)
    takeover: TakeoverTable = field(default_factory=TakeoverTable)
    epoch: int = 0
    commit_point: int = 0
    sync: SyncState = field(default_factory=SyncState)

    def with_high(self, *, high_seq: int, message_seq: int, last_timestamp_ms: int) -> "StoreState":
        return replace(self, high_seq=high_seq, message_seq=message_seq, last_timestamp_ms=last_timestamp_ms)


@dataclass(frozen=True, slots=True)
class Usage:
    """How much there is. Bytes are those of stored records; the file's are the LMDB store's alone."""

    messages: int
    message_bytes: int
    keys: int
    tombstones: int
    retained: int
    retained_bytes: int
    marks: int
    producers: int
    pins: int
    map_bytes: int = 0
    file_bytes: int = 0
    free_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CommitResult:
    """One answer per request, in order; `batch` is None when nothing was written."""

    answers: tuple[WriteResult | KayosError, ...]
    batch: Batch | None


@dataclass(frozen=True, slots=True)
class RetainedRow:
    record: bytes
    replaced_by: int


@dataclass(frozen=True, slots=True)
class CatchUpTables:
    """What ends a catch-up from `start_seq`: every table beside the log at `end_seq`.

    `retained` holds the rows that were replaced above `start_seq`; the others are there already.
    """

    start_seq: int
    end_seq: int
    message_seq: int
    last_timestamp_ms: int
    epoch: int
    floors: Floors
    takeover: TakeoverTable
    marks: tuple[tuple[str, Mark], ...]
    producers: tuple[ProducerRow, ...]
    pins: tuple[Pin, ...]
    retained: tuple[RetainedRow, ...]


def ignore_batch(batch: Batch) -> None:
    """The `forward` of a replica that has nobody downstream."""


class Store(Protocol):
    @property
    def state(self) -> StoreState: ...

    # Writing: one thread.

    def commit(
        self, requests: Sequence[Request], *, now_ms: int, forward: Callable[[Batch], None] = ignore_batch
    ) -> CommitResult:
        """Head: check, assign sequences, write, fsync. `forward` gets the batch before the fsync."""
        ...

    def apply(self, batch: Batch) -> None:
        """Replica: append a batch as it is. A repeat is ignored, a hole raises Gap."""
        ...

    def take_over(self, row: TakeoverRow) -> None: ...

    def save_epoch(self, epoch: int) -> None: ...

    def save_commit_point(self, commit_point: int) -> None: ...

    def save_sync(self, sync: SyncState) -> None: ...

    def apply_catch_up(self, piece: LogSlice) -> None:
        """Take one slice of a neighbour's log; the rows it replaces go, the range is remembered."""
        ...

    def finish_catch_up(self, tables: CatchUpTables) -> None: ...

    def sweep_retained(self, rows_max: int) -> bool:
        """Look at some retained rows and free those that no living pin needs; whether all have been seen."""
        ...

    # Reading: any thread.

    def get(self, key: bytes) -> Record | None:
        """The live record of a key, a tombstone included."""
        ...

    def read_log(
        self, after_seq: int, *, bytes_max: int, end_seq: int | None = None, tombstones: bool = True
    ) -> LogSlice:
        """Live records above `after_seq` (up to `end_seq`), as many as fit and at least one row; one transaction.

        `end_seq` of the answer is the committed state's high sequence, or the smaller one asked for."""
        ...

    def read_pin(
        self, pin_id: str, after_seq: int, *, bytes_max: int, end_seq: int | None = None, tombstones: bool = True
    ) -> LogSlice:
        """The same from a pinned snapshot, whose end is the pin's sequence."""
        ...

    def read_catch_up_tables(self, start_seq: int) -> CatchUpTables: ...

    def find_mark(self, consumer: str) -> Mark | None: ...

    def list_marks(self) -> list[tuple[str, Mark]]: ...

    def find_pin(self, pin_id: str) -> Pin | None: ...

    def list_pins(self) -> list[Pin]: ...

    def find_producer(self, producer_id: bytes) -> ProducerRow | None: ...

    def find_seq_before_time(self, timestamp_ms: int) -> int:
        """The largest sequence such that every live record at or below it is older than the time."""
        ...

    def find_expired(self, now_ms: int, rows_max: int) -> tuple[int, int] | None:
        """The (ms, seq) through which messages are past their TTL, at most `rows_max` rows ahead."""
        ...

    def find_purgeable(self, before_seq: int, rows_max: int) -> int:
        """The sequence through which tombstones at or below `before_seq` go, at most `rows_max`; else 0."""
        ...

    def usage(self) -> Usage: ...

    def dump(self) -> Iterator[tuple[str, object]]:
        """The logical content, row by row in one fixed order: equal stores give equal dumps."""
        ...

    def close(self) -> None: ...
