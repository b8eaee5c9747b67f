"""What every store can do: the LMDB store and its in-memory twin answer alike, call for call.

A store is one shard's copy. One thread writes (commit, apply, take_over, save_*, catch-up, rollback, compaction);
any thread reads, in short transactions that copy out. The head gives requests to `commit`, which assigns
sequences; replicas give the head's batches to `apply`; both end in the same state. A request that is refused
changes nothing and is answered with its error, the others of its group go on.

A replica that is behind what batches can bring takes pieces of its neighbour's state (`apply_catch_up`); one that holds
what its neighbour never had is rolled back first (`roll_back`); where rows cannot tell what to undo, everything is
copied beside the store (`begin_copy`). From the first step until the last piece the store is not ready: it serves no
reads and takes no writes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kayos.errors import KayosError
from kayos.model.catch_up import CatchUpPiece, Restorable, Rollback
from kayos.model.floors import Floors
from kayos.model.mark import Mark
from kayos.model.pin import Pin
from kayos.model.producer import ProducerRow
from kayos.model.record import Record
from kayos.model.snapshot import LogSlice
from kayos.model.sync import READY, SyncState
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
class StoreState:
    """The committed state in one glance. `message_seq` is the newest sequence that is not a control.

    `lacks_retained`: a rollback dropped what pins had kept aside, so the catch-up that follows must bring all of it,
    also after a restart. `is_copying`: a copy is being filled beside the store, and this is its state.
    """

    identity: Identity
    incarnation: bytes
    high_seq: int = 0
    message_seq: int = 0
    last_timestamp_ms: int = 0
    floors: Floors = field(default_factory=Floors)
    takeover: TakeoverTable = field(default_factory=TakeoverTable)
    epoch: int = 0
    commit_point: int = 0
    sync: SyncState = READY
    lacks_retained: bool = False
    is_copying: bool = False


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


def ignore_batch(batch: Batch) -> None:
    """The `forward` of a replica that has nobody downstream."""


class Store(Protocol):
    @property
    def state(self) -> StoreState: ...

    # Writing: one thread.

    def commit(
        self,
        requests: Sequence[Request],
        *,
        now_ms: int,
        commit_point: int = 0,
        forward: Callable[[Batch], None] = ignore_batch,
    ) -> CommitResult:
        """Head: check, assign sequences, write, fsync. `forward` gets the batch before the fsync. `commit_point` is
        saved with what is written, unless a higher one was; a group that writes nothing saves nothing."""
        ...

    def apply(self, batches: Sequence[Batch], *, commit_point: int = 0) -> None:
        """Replica: append batches as they are, all of them in one commit or none. A repeat is ignored, a hole raises
        Gap, an older head's batch StaleEpoch. `commit_point` as in `commit`."""
        ...

    def take_over(self, row: TakeoverRow) -> None:
        """Head: begin a history at the log's end."""
        ...

    def adopt_takeover(self, table: TakeoverTable, epoch: int) -> None:
        """Replica: take its upstream's table, whose log this one is a prefix of."""
        ...

    def save_epoch(self, epoch: int) -> None: ...

    def save_commit_point(self, commit_point: int) -> None: ...

    def apply_catch_up(self, piece: CatchUpPiece) -> None:
        """Take one piece of a neighbour's state; the rows it replaces go, the range is remembered. The piece with the
        tables makes the copy whole, in the same commit. ResetRequired when rows cannot tell what was deleted."""
        ...

    def roll_back(self, rollback: Rollback) -> None:
        """Undo everything above a sequence that two histories share, in one commit; a catch-up must follow. Refused
        below the commit point, and where messages were removed since."""
        ...

    def begin_copy(self, *, is_clone: bool = False) -> None:
        """From now on `roll_back` and `apply_catch_up` change a copy beside this store, empty or a clone of it, which
        replaces it with the piece that makes it whole; a crash before that leaves this one as it was. An unfinished
        copy is dropped and begun anew."""
        ...

    def cancel_copy(self) -> None:
        """Drop an unfinished copy, if there is one, and go on with the store as it was."""
        ...

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

    def read_catch_up(
        self, after_seq: int, *, start_seq: int, bytes_max: int, all_retained: bool = False
    ) -> CatchUpPiece:
        """What a copy needs that began at `start_seq` and has come to `after_seq`: records, and with the last of them
        the tables of the same committed state. Retained rows are those replaced above the start, or all."""
        ...

    def find_diverged(self, after_seq: int, *, rows_max: int) -> tuple[bytes, ...] | None:
        """The keys, each once, of live rows above a sequence; None when that many rows are too many. A topic of mode
        `log` overwrites nothing, so there is nothing to ask for: no keys."""
        ...

    def find_restorable(self, keys: Sequence[bytes], through_seq: int, *, bytes_max: int) -> Restorable:
        """For as many of the keys as fit, at least one: their live records that stand at or below a sequence."""
        ...

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
        """The logical content, row by row in one fixed order, whole or not: equal stores give equal dumps."""
        ...

    def close(self) -> None: ...
