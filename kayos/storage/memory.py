"""The in-memory twin of the store: the oracle that the LMDB store is compared with, and the simulator's disk.

It answers call for call as `Store` says, and shares nothing with the LMDB store but the words of
`kayos.model` and the control codec. `memory_tables` holds the rows and what records do to them,
`memory_group` the head's sequencing; here are the doors, the readers and catch-up.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from kayos.errors import (
    DamagedRecord,
    FailedPrecondition,
    Gap,
    PinNotFound,
    ResetRequired,
    SnapshotExpired,
    StaleEpoch,
    Unavailable,
    WrongMode,
)
from kayos.model.mark import Mark
from kayos.model.pin import Pin
from kayos.model.producer import ProducerRow
from kayos.model.record import Kind, Record, record_seq, verify_and_decode
from kayos.model.snapshot import LogSlice
from kayos.model.takeover import TakeoverRow
from kayos.model.topic import Mode
from kayos.model.write import Batch, Request
from kayos.storage.control_codec import decode_control
from kayos.storage.interface import (
    CatchUpTables,
    CommitResult,
    Identity,
    StoreState,
    SyncPhase,
    SyncState,
    Usage,
    ignore_batch,
)
from kayos.storage.memory_group import Group, state_after
from kayos.storage.memory_tables import Row, Tables, merge_floors


class MemoryStore:
    def __init__(self, identity: Identity, incarnation: bytes = b"") -> None:
        self._state = StoreState(identity, incarnation)
        self._tables = Tables(identity.mode)

    def copy(self) -> "MemoryStore":
        """An independent store with the same content; rows are shared, since they never change."""
        twin = MemoryStore(self._state.identity)
        twin._state = self._state
        twin._tables = self._tables.copy()
        return twin

    @property
    def state(self) -> StoreState:
        return self._state

    # Writing

    def commit(
        self, requests: Sequence[Request], *, now_ms: int, forward: Callable[[Batch], None] = ignore_batch
    ) -> CommitResult:
        self._check_writable()
        group = Group(self._tables, self._state, now_ms)
        answers = tuple(group.answer(request) for request in requests)
        batch = group.finish()
        if batch is not None:
            forward(batch)
            self._state = state_after(self._state, self._tables, batch, group.written)
        return CommitResult(answers, batch)

    def apply(self, batch: Batch) -> None:
        self._check_writable()
        if batch.epoch < self._state.epoch:
            raise StaleEpoch(f"epoch {self._state.epoch} is current, not {batch.epoch}", epoch=self._state.epoch)
        if batch.last_seq <= self._state.high_seq:
            return
        if batch.previous_seq != self._state.high_seq:
            raise Gap(
                f"the batch follows {batch.previous_seq}, this replica is at {self._state.high_seq}",
                high_seq=self._state.high_seq,
                previous_seq=batch.previous_seq,
            )
        rows = verify_rows(batch.records, after_seq=batch.previous_seq, through_seq=batch.last_seq)
        for row in rows:
            self._tables.append(row)
        for producer in batch.producers:
            self._tables.producers[producer.producer_id] = producer
        self._state = state_after(self._state, self._tables, batch, rows)

    def take_over(self, row: TakeoverRow) -> None:
        self._check_writable()
        if row.start_seq != self._state.high_seq:
            raise FailedPrecondition(f"a takeover starts at {self._state.high_seq}, not at {row.start_seq}")
        takeover = self._state.takeover.with_takeover(row)
        self._state = replace(self._state, takeover=takeover, epoch=max(self._state.epoch, row.epoch))

    def save_epoch(self, epoch: int) -> None:
        self._state = replace(self._state, epoch=max(self._state.epoch, epoch))

    def save_commit_point(self, commit_point: int) -> None:
        self._state = replace(self._state, commit_point=max(self._state.commit_point, commit_point))

    def save_sync(self, sync: SyncState) -> None:
        self._state = replace(self._state, sync=sync)

    def sweep_retained(self, rows_max: int) -> bool:
        """Nothing to do: a retained row goes with the last pin that needs it."""
        return True

    # Catching up

    def apply_catch_up(self, piece: LogSlice) -> None:
        sync = self._state.sync
        if sync.phase is SyncPhase.ROLLING_BACK:
            raise FailedPrecondition("the replica is rolling back: finish that first")
        is_first = sync.phase is SyncPhase.READY
        reached = self._state.high_seq if is_first else sync.through_seq
        if piece.after_seq != reached:
            raise Gap(
                f"the slice follows {piece.after_seq}, this replica is at {reached}",
                high_seq=reached,
                previous_seq=piece.after_seq,
            )
        for row in verify_rows(piece.records, after_seq=piece.after_seq, through_seq=piece.through_seq):
            older = self._tables.find_row(row.record.key)
            if older is not None:
                self._tables.remove(older, replaced_by=None)
            self._tables.insert(row)
        start_seq = reached if is_first else sync.start_seq
        first_end_seq = piece.end_seq if is_first else sync.first_end_seq
        self.save_sync(SyncState(SyncPhase.CATCHING_UP, start_seq, piece.through_seq, piece.end_seq, first_end_seq))

    def finish_catch_up(self, tables: CatchUpTables) -> None:
        sync = self._state.sync
        if sync.phase is not SyncPhase.CATCHING_UP or sync.start_seq != tables.start_seq:
            raise FailedPrecondition(f"no catch-up from {tables.start_seq} is under way")
        if sync.through_seq != tables.end_seq:
            raise Gap(
                f"the tables are those of {tables.end_seq}, the slices reached {sync.through_seq}",
                high_seq=sync.through_seq,
                previous_seq=tables.end_seq,
            )
        if sync.misses_deletes(tables.floors.purge_seq):
            raise ResetRequired("deletes were purged meanwhile: start from 0", purge_seq=tables.floors.purge_seq)
        mine = self._tables
        mine.remove_below(tables.floors, replaced_by=None)
        mine.floors = merge_floors(mine.floors, tables.floors)
        mine.marks = dict(tables.marks)
        mine.producers = {row.producer_id: row for row in tables.producers}
        mine.pins = {pin.pin_id: pin for pin in tables.pins}
        mine.retained |= {record_seq(row.record): row for row in tables.retained}
        mine.drop_unneeded_retained()
        self._state = replace(
            self._state,
            high_seq=tables.end_seq,
            message_seq=tables.message_seq,
            last_timestamp_ms=tables.last_timestamp_ms,
            floors=mine.floors,
            takeover=tables.takeover,
            epoch=max(self._state.epoch, tables.epoch),
            sync=SyncState(),
        )

    # Reading

    def get(self, key: bytes) -> Record | None:
        self._check_readable()
        if self._tables.mode is not Mode.COMPACT:
            raise WrongMode("reading by key needs a topic of mode 'compact'")
        row = self._tables.find_row(key)
        return None if row is None else row.record

    def read_log(
        self, after_seq: int, *, bytes_max: int, end_seq: int | None = None, tombstones: bool = True
    ) -> LogSlice:
        self._check_readable()
        high_seq = self._state.high_seq
        end = high_seq if end_seq is None else min(end_seq, high_seq)
        records = (self._tables.log[seq].stored for seq in self._seqs_between(after_seq, end))
        return cut_slice(records, after_seq=after_seq, end_seq=end, bytes_max=bytes_max, tombstones=tombstones)

    def read_pin(
        self, pin_id: str, after_seq: int, *, bytes_max: int, end_seq: int | None = None, tombstones: bool = True
    ) -> LogSlice:
        self._check_readable()
        pin = self._tables.pins.get(pin_id)
        if pin is None:
            raise PinNotFound(f"pin {pin_id!r} does not exist")
        if not pin.is_alive:
            raise SnapshotExpired(f"pin {pin_id!r} ended: {pin.ended}")
        end = pin.seq if end_seq is None else min(end_seq, pin.seq)
        rows = {seq: self._tables.log[seq].stored for seq in self._seqs_between(after_seq, end)}
        for seq, retained in self._tables.retained.items():
            if after_seq < seq <= end and pin.seq < retained.replaced_by:
                rows[seq] = retained.record
        records = (rows[seq] for seq in sorted(rows))
        return cut_slice(records, after_seq=after_seq, end_seq=end, bytes_max=bytes_max, tombstones=tombstones)

    def read_catch_up_tables(self, start_seq: int) -> CatchUpTables:
        self._check_readable()
        state, tables = self._state, self._tables
        return CatchUpTables(
            start_seq=start_seq,
            end_seq=state.high_seq,
            message_seq=state.message_seq,
            last_timestamp_ms=state.last_timestamp_ms,
            epoch=state.epoch,
            floors=state.floors,
            takeover=state.takeover,
            marks=tuple(sorted(tables.marks.items())),
            producers=tuple(tables.producers[key] for key in sorted(tables.producers)),
            pins=tuple(tables.pins[key] for key in sorted(tables.pins)),
            retained=tuple(row for _, row in sorted(tables.retained.items()) if row.replaced_by > start_seq),
        )

    def find_mark(self, consumer: str) -> Mark | None:
        return self._tables.marks.get(consumer)

    def list_marks(self) -> list[tuple[str, Mark]]:
        return sorted(self._tables.marks.items())

    def find_pin(self, pin_id: str) -> Pin | None:
        return self._tables.pins.get(pin_id)

    def list_pins(self) -> list[Pin]:
        return [self._tables.pins[key] for key in sorted(self._tables.pins)]

    def find_producer(self, producer_id: bytes) -> ProducerRow | None:
        return self._tables.producers.get(producer_id)

    def find_seq_before_time(self, timestamp_ms: int) -> int:
        for seq, row in self._tables.log.items():
            if row.record.timestamp_ms >= timestamp_ms:
                return seq - 1
        return self._state.high_seq

    def find_expired(self, now_ms: int, rows_max: int) -> tuple[int, int] | None:
        records = (row.record for row in self._tables.log.values())
        expired = sorted((r.expires_at_ms, r.seq) for r in records if 0 < r.expires_at_ms <= now_ms)[:rows_max]
        return expired[-1] if expired else None

    def find_purgeable(self, before_seq: int, rows_max: int) -> int:
        if self._tables.mode is not Mode.COMPACT:
            return 0
        records = (row.record for row in self._tables.log.values())
        tombstones = [r.seq for r in records if r.kind == Kind.DELETE and r.seq <= before_seq][:rows_max]
        return tombstones[-1] if tombstones else 0

    def usage(self) -> Usage:
        tables = self._tables
        return Usage(
            messages=len(tables.log),
            message_bytes=sum(len(row.stored) for row in tables.log.values()),
            keys=len(tables.keys),
            tombstones=self._count_tombstones(),
            retained=len(tables.retained),
            retained_bytes=sum(len(row.record) for row in tables.retained.values()),
            marks=len(tables.marks),
            producers=len(tables.producers),
            pins=len(tables.living_pins()),
        )

    def _count_tombstones(self) -> int:
        """Only mode `compact` has them: in a log a delete is one message among others."""
        if self._tables.mode is not Mode.COMPACT:
            return 0
        return sum(row.record.kind == Kind.DELETE for row in self._tables.log.values())

    def dump(self) -> Iterator[tuple[str, object]]:
        state, tables = self._state, self._tables
        yield (
            "state",
            (
                state.identity,
                state.high_seq,
                state.message_seq,
                state.last_timestamp_ms,
                state.floors,
                state.takeover,
                state.epoch,
            ),
        )
        for row in tables.log.values():
            yield "log", row.stored
        for key in sorted(tables.keys):
            seq = tables.keys[key]
            yield "key", (key, seq, tables.log[seq].record.kind)
        for mark in sorted(tables.marks.items()):
            yield "mark", mark
        for producer_id in sorted(tables.producers):
            yield "producer", tables.producers[producer_id]
        for pin_id in sorted(tables.pins):
            yield "pin", tables.pins[pin_id]
        for seq in sorted(tables.retained):
            retained = tables.retained[seq]
            yield "retained", (seq, retained.replaced_by, retained.record)

    def close(self) -> None:
        """Memory needs no closing."""

    def _seqs_between(self, after_seq: int, end_seq: int) -> Iterator[int]:
        order = self._tables.order
        return (order[at] for at in range(bisect_right(order, after_seq), bisect_right(order, end_seq)))

    def _check_writable(self) -> None:
        if self._state.sync.phase is not SyncPhase.READY:
            raise FailedPrecondition(f"the replica is not whole ({self._state.sync.phase}): it takes no writes")

    def _check_readable(self) -> None:
        if self._state.sync.phase is not SyncPhase.READY:
            raise Unavailable(f"the replica is not whole ({self._state.sync.phase}): read elsewhere, or later")


def verify_rows(records: Iterable[bytes], *, after_seq: int, through_seq: int) -> list[Row]:
    """Decoded rows of a batch or slice, all proven sound and in order before the first one is used."""
    rows = []
    previous_seq = after_seq
    for stored in records:
        record = verify_and_decode(stored)
        if not previous_seq < record.seq <= through_seq:
            raise DamagedRecord(f"sequence {record.seq} stands between {previous_seq} and {through_seq}")
        if record.kind == Kind.CONTROL:
            decode_control(record.value)
        previous_seq = record.seq
        rows.append(Row(stored, record))
    return rows


def cut_slice(records: Iterable[bytes], *, after_seq: int, end_seq: int, bytes_max: int, tombstones: bool) -> LogSlice:
    """As many records as fit, at least one; tombstones that are left out count, too."""
    seen: list[bytes] = []
    taken: list[bytes] = []
    for stored in records:
        if seen and sum(map(len, seen)) + len(stored) > bytes_max:
            return LogSlice(after_seq, record_seq(seen[-1]), end_seq, complete=False, records=tuple(taken))
        seen.append(stored)
        if tombstones or verify_and_decode(stored).kind != Kind.DELETE:
            taken.append(stored)
    return LogSlice(after_seq, end_seq, end_seq, complete=True, records=tuple(taken))
