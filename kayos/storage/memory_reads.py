"""The reading half of the in-memory twin: every answer is looked for among all rows, plainly."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from kayos.errors import OutOfRange, PinNotFound, SnapshotExpired, Unavailable, WrongMode
from kayos.model.catch_up import CatchUpPiece, CatchUpTables, Restorable
from kayos.model.mark import Mark
from kayos.model.pin import Pin
from kayos.model.producer import ProducerRow
from kayos.model.record import Kind, Record, record_seq, verify_and_decode
from kayos.model.snapshot import LogSlice
from kayos.model.topic import Mode
from kayos.storage.interface import StoreState, Usage
from kayos.storage.memory_tables import Tables


class MemoryReads:
    """See kayos.storage.interface.Store for what each call means."""

    _state: StoreState
    _tables: Tables

    @property
    def state(self) -> StoreState:
        return self._state

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

    def read_catch_up(
        self, after_seq: int, *, start_seq: int, bytes_max: int, all_retained: bool = False
    ) -> CatchUpPiece:
        high_seq = self._state.high_seq
        if self._state.sync.is_ready and after_seq > high_seq:
            raise OutOfRange(f"the log ends at {high_seq}, below {after_seq}")
        piece = self.read_log(after_seq, bytes_max=bytes_max)
        tables = self._catch_up_tables(0 if all_retained else start_seq) if piece.complete else None
        return CatchUpPiece(self._state.takeover.find_history_at(high_seq), piece, tables)

    def _catch_up_tables(self, from_seq: int) -> CatchUpTables:
        state, tables = self._state, self._tables
        return CatchUpTables(
            retained_from_seq=from_seq,
            end_seq=state.high_seq,
            message_seq=state.message_seq,
            last_timestamp_ms=state.last_timestamp_ms,
            epoch=state.epoch,
            floors=state.floors,
            takeover=state.takeover,
            marks=tuple(sorted(tables.marks.items())),
            producers=tuple(tables.producers[key] for key in sorted(tables.producers)),
            pins=tuple(tables.pins[key] for key in sorted(tables.pins)),
            retained=tuple(row for _, row in sorted(tables.retained.items()) if row.replaced_by > from_seq),
        )

    def find_diverged(self, after_seq: int, *, rows_max: int) -> tuple[bytes, ...] | None:
        self._check_readable()
        if self._tables.mode is not Mode.COMPACT:
            return ()
        above = list(self._seqs_between(after_seq, self._state.high_seq))
        if len(above) > rows_max:
            return None
        keys = [self._tables.log[seq].record.key for seq in above]
        return tuple(key for key in keys if key)

    def find_restorable(self, keys: Sequence[bytes], through_seq: int, *, bytes_max: int) -> Restorable:
        self._check_readable()
        state = self._state
        history_id = state.takeover.find_history_at(state.high_seq)
        records: list[bytes] = []
        for answered, key in enumerate(keys):
            row = self._tables.find_row(key)
            if row is not None and row.record.seq <= through_seq:
                if answered and sum(map(len, records)) + len(row.stored) > bytes_max:
                    return Restorable(history_id, state.high_seq, answered, tuple(records))
                records.append(row.stored)
        return Restorable(history_id, state.high_seq, len(keys), tuple(records))

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

    def _seqs_between(self, after_seq: int, end_seq: int) -> Iterator[int]:
        order = self._tables.order
        return (order[at] for at in range(bisect_right(order, after_seq), bisect_right(order, end_seq)))

    def _check_readable(self) -> None:
        if not self._state.sync.is_ready:
            raise Unavailable(f"the replica is not whole ({self._state.sync.phase}): read elsewhere, or later")


def cut_slice(records: Iterable[bytes], *, after_seq: int, end_seq: int, bytes_max: int, tombstones: bool) -> LogSlice:
    """As many records as fit, at least one; tombstones that are left out count, too."""
    last, size = b"", 0
    taken: list[bytes] = []
    for stored in records:
        size += len(stored)
        if last and size > bytes_max:
            return LogSlice(after_seq, record_seq(last), end_seq, complete=False, records=tuple(taken))
        last = stored
        if tombstones or verify_and_decode(stored).kind != Kind.DELETE:
            taken.append(stored)
    return LogSlice(after_seq, end_seq, end_seq, complete=True, records=tuple(taken))
