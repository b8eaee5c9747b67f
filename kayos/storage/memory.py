"""The in-memory twin of the store: the oracle that the LMDB store is compared with, and the simulator's disk.

It answers call for call as `Store` says, and shares nothing with the LMDB store but the words of
`kayos.model` and the control codec. `memory_tables` holds the rows and what records do to them,
`memory_group` the head's sequencing, `memory_reads` the readers; here are the writer's doors.
"""

from collections.abc import Callable, Iterable, Sequence

from kayos.errors import DamagedRecord, FailedPrecondition, Gap, InvalidArgument, ResetRequired, StaleEpoch
from kayos.model.catch_up import CatchUpPiece, CatchUpTables, Rollback
from kayos.model.record import Kind, is_sound, record_seq, verify_and_decode
from kayos.model.sync import READY, SyncPhase, SyncState
from kayos.model.takeover import TakeoverRow, TakeoverTable
from kayos.model.topic import Mode
from kayos.model.write import Batch, Request
from kayos.storage.control_codec import decode_control
from kayos.storage.interface import CommitResult, Identity, StoreState, ignore_batch
from kayos.storage.memory_group import Group, changed, state_after
from kayos.storage.memory_reads import MemoryReads
from kayos.storage.memory_tables import CONTROL, Row, Tables, merge_floors

KINDS = tuple(int(kind) for kind in Kind)


class MemoryStore(MemoryReads):
    def __init__(self, identity: Identity, incarnation: bytes = b"") -> None:
        self._state = StoreState(identity, incarnation)
        self._tables = Tables(identity.mode)
        # The store itself while a copy is filled beside it.
        self._left: tuple[StoreState, Tables] | None = None

    def copy(self) -> "MemoryStore":
        """An independent store with what a crash would leave; rows are shared, since they never change."""
        twin = MemoryStore.__new__(MemoryStore)
        state, tables = self._left or (self._state, self._tables)
        twin._state, twin._tables, twin._left = state, tables.copy(), None
        return twin

    # Writing

    def commit(
        self,
        requests: Sequence[Request],
        *,
        now_ms: int,
        commit_point: int = 0,
        forward: Callable[[Batch], None] = ignore_batch,
    ) -> CommitResult:
        self._check_writable()
        group = Group(self._tables, self._state, now_ms)
        answers = tuple(group.answer(request) for request in requests)
        batch = group.finish()
        if batch is not None:
            forward(batch)
            self._state = state_after(self._state, self._tables, batch, group.written, commit_point)
        return CommitResult(answers, batch)

    def apply(self, batches: Sequence[Batch], *, commit_point: int = 0) -> None:
        self._check_writable()
        high_seq, epoch = self._state.high_seq, self._state.epoch
        fresh: list[tuple[Batch, list[Row]]] = []
        for batch in batches:
            if batch.epoch < epoch:
                raise StaleEpoch(f"epoch {epoch} is current, not {batch.epoch}", epoch=epoch)
            if batch.last_seq <= high_seq:
                continue
            if batch.previous_seq != high_seq:
                raise Gap(
                    f"the batch follows {batch.previous_seq}, this replica is at {high_seq}",
                    high_seq=self._state.high_seq,
                    previous_seq=batch.previous_seq,
                )
            high_seq, epoch = batch.last_seq, batch.epoch
            fresh.append((batch, []))
        for batch, rows in fresh:
            rows += verify_rows(batch.records, after_seq=batch.previous_seq, through_seq=batch.last_seq)
        for batch, rows in fresh:
            for row in rows:
                self._tables.append(row)
            for producer in batch.producers:
                self._tables.producers[producer.producer_id] = producer
            self._state = state_after(self._state, self._tables, batch, rows, commit_point)

    def take_over(self, row: TakeoverRow) -> None:
        self._check_writable()
        if row.start_seq != self._state.high_seq:
            raise FailedPrecondition(f"a takeover starts at {self._state.high_seq}, not at {row.start_seq}")
        self.adopt_takeover(self._state.takeover.with_takeover(row), row.epoch)

    def adopt_takeover(self, table: TakeoverTable, epoch: int) -> None:
        self._check_writable()
        check_takeover(table, self._state.high_seq)
        self._state = changed(self._state, takeover=table, epoch=max(self._state.epoch, epoch))

    def save_epoch(self, epoch: int) -> None:
        self._state = changed(self._state, epoch=max(self._state.epoch, epoch))
        if self._left is not None:
            state, tables = self._left
            self._left = changed(state, epoch=max(state.epoch, epoch)), tables

    def save_commit_point(self, commit_point: int) -> None:
        self._state = changed(self._state, commit_point=max(self._state.commit_point, commit_point))
        if self._left is not None:
            state, tables = self._left
            self._left = changed(state, commit_point=max(state.commit_point, commit_point)), tables

    def sweep_retained(self, rows_max: int) -> bool:
        """Nothing to do: a retained row goes with the last pin that needs it."""
        return True

    def close(self) -> None:
        """Memory needs no closing."""

    def _check_writable(self) -> None:
        self._check_ready()
        if self._left is not None:
            raise FailedPrecondition("a copy is being filled: no writes until it is whole")

    def _check_ready(self) -> None:
        if not self._state.sync.is_ready:
            raise FailedPrecondition(f"the replica is not whole ({self._state.sync.phase}): it takes no writes")

    # Catching up

    def apply_catch_up(self, piece: CatchUpPiece) -> None:
        sync, slice_ = self._state.sync, piece.slice
        reached = self._state.high_seq if sync.is_ready else sync.through_seq
        if slice_.after_seq != reached:
            raise Gap(
                f"the slice follows {slice_.after_seq}, this replica is at {reached}",
                high_seq=reached,
                previous_seq=slice_.after_seq,
            )
        after = SyncState(
            SyncPhase.CATCHING_UP,
            start_seq=reached if sync.is_ready else sync.start_seq,
            through_seq=slice_.through_seq,
            end_seq=slice_.end_seq,
            first_end_seq=slice_.end_seq if sync.is_ready or not sync.first_end_seq else sync.first_end_seq,
            source_history=piece.history_id,
        )
        if piece.tables is not None:
            self._check_tables(piece.tables, after)
        rows = verify_rows(slice_.records, after_seq=slice_.after_seq, through_seq=slice_.through_seq)
        if any(row.record.kind == Kind.CONTROL for row in rows):
            raise DamagedRecord("a control is no row of a log")
        for row in rows:
            older = self._tables.find_row(row.record.key)
            if older is not None:
                self._tables.remove(older, replaced_by=None)
            self._tables.insert(row)
        self._state = changed(self._state, sync=after)
        if piece.tables is not None:
            self._finish_catch_up(piece.tables)

    def _check_tables(self, tables: CatchUpTables, sync: SyncState) -> None:
        if tables.end_seq != sync.end_seq or tables.end_seq != sync.through_seq:
            raise FailedPrecondition(f"the tables are those of {tables.end_seq}, the slices reached {sync.through_seq}")
        check_takeover(tables.takeover, tables.end_seq)
        for row in tables.retained:
            if not is_sound(row.record) or row.replaced_by <= record_seq(row.record):
                raise DamagedRecord("a retained row is damaged")
        if tables.retained_from_seq > (0 if self._state.lacks_retained else sync.start_seq):
            raise FailedPrecondition(f"retained rows are missing up to {tables.retained_from_seq}")
        if sync.misses_deletes(tables.floors.purge_seq):
            raise ResetRequired("deletes were purged meanwhile: start from 0", purge_seq=tables.floors.purge_seq)

    def _finish_catch_up(self, tables: CatchUpTables) -> None:
        mine = self._tables
        mine.remove_below(tables.floors, replaced_by=None)
        mine.floors = merge_floors(mine.floors, tables.floors)
        mine.marks = dict(tables.marks)
        mine.producers = {row.producer_id: row for row in tables.producers}
        mine.pins = {pin.pin_id: pin for pin in tables.pins}
        if not tables.retained_from_seq:
            mine.retained = {}
        mine.retained |= {record_seq(row.record): row for row in tables.retained}
        mine.drop_unneeded_retained()
        self._state = changed(
            self._state,
            high_seq=tables.end_seq,
            message_seq=tables.message_seq,
            last_timestamp_ms=tables.last_timestamp_ms,
            floors=mine.floors,
            takeover=tables.takeover,
            epoch=max(self._state.epoch, tables.epoch),
            sync=READY,
            lacks_retained=False,
            is_copying=False,
        )
        self._left = None

    # Going back

    def roll_back(self, rollback: Rollback) -> None:
        self._check_ready()
        state, tables, to_seq = self._state, self._tables, rollback.to_seq
        if to_seq >= state.high_seq or to_seq < state.commit_point or to_seq < state.floors.removal_seq:
            raise FailedPrecondition(f"the log ends at {state.high_seq} and cannot be taken back to {to_seq}")
        restored = self._verify_restored(rollback)
        for row in [row for row in tables.log.values() if row.record.seq > to_seq]:
            tables.remove(row, replaced_by=None)
        for row in restored:
            tables.restore(row)
        tables.retained, tables.marks, tables.producers, tables.pins = {}, {}, {}, {}
        end_seq = max(to_seq, rollback.end_seq)
        self._state = changed(
            state,
            high_seq=to_seq,
            message_seq=tables.order[-1] if tables.order else 0,
            takeover=TakeoverTable(tuple(row for row in state.takeover.rows if row.start_seq < to_seq)),
            sync=SyncState(SyncPhase.CATCHING_UP, to_seq, to_seq, end_seq, end_seq, rollback.history_id),
            lacks_retained=True,
        )

    def _verify_restored(self, rollback: Rollback) -> list[Row]:
        tables, restored = self._tables, []
        taken_keys = {row.record.key for seq, row in tables.log.items() if seq <= rollback.to_seq}
        taken_seqs = set(tables.log)
        for stored in rollback.records:
            record = verify_and_decode(stored)
            if record.kind not in (Kind.PUT, Kind.DELETE):
                raise DamagedRecord(f"the record at {record.seq} is no message", seq=record.seq)
            if tables.mode is not Mode.COMPACT or not record.key or not 0 < record.seq <= rollback.to_seq:
                raise FailedPrecondition(f"the record at {record.seq} cannot be restored")
            if record.key in taken_keys or record.seq in taken_seqs:
                raise FailedPrecondition(f"the place of the record at {record.seq} is taken")
            taken_keys.add(record.key)
            taken_seqs.add(record.seq)
            restored.append(Row(stored, record))
        return restored

    # Copying

    def begin_copy(self, *, is_clone: bool = False) -> None:
        self.cancel_copy()
        self._left = self._state, self._tables
        state = self._state
        if is_clone:
            self._state, self._tables = changed(state, is_copying=True), self._tables.copy()
            return
        self._state = StoreState(
            state.identity,
            state.incarnation,
            epoch=state.epoch,
            commit_point=state.commit_point,
            sync=SyncState(SyncPhase.CATCHING_UP),
            is_copying=True,
        )
        self._tables = Tables(state.identity.mode)

    def cancel_copy(self) -> None:
        if self._left is not None:
            self._state, self._tables = self._left
            self._left = None


def check_takeover(table: TakeoverTable, high_seq: int) -> None:
    if not table.is_sound() or any(row.start_seq > high_seq for row in table.rows):
        raise FailedPrecondition(f"the takeover table is not that of a log that ends at {high_seq}")


def verify_rows(records: Iterable[bytes], *, after_seq: int, through_seq: int) -> list[Row]:
    """Decoded rows of a batch or slice, all proven sound and in order before the first one is used."""
    rows = []
    previous_seq = after_seq
    for stored in records:
        try:
            record = verify_and_decode(stored)
        except InvalidArgument as error:
            raise DamagedRecord("a record does not decode") from error
        if not previous_seq < record.seq <= through_seq:
            raise DamagedRecord(
                f"sequence {record.seq} stands between {previous_seq} and {through_seq}", seq=record.seq
            )
        if record.kind not in KINDS:
            raise DamagedRecord(f"kind {record.kind} is not known", seq=record.seq)
        if record.kind == CONTROL:
            decode_control(record.value)
        previous_seq = record.seq
        rows.append(Row(stored, record))
    return rows
