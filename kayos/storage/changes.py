"""One write transaction at work: the rows that a group of records changes, and nothing else.

Head, replica, catch-up and compaction all change a store through this door, so whatever the way a
record came, the tables end alike. Checks have been made before: this code only writes. A record that
is replaced or removed while a living pin needs it moves to `retained`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kayos.errors import DamagedStore
from kayos.limits import ENDED_PINS_KEPT, LMDB_KEY_BYTES_MAX
from kayos.model.control import (
    CommitMark,
    Control,
    CreatePin,
    DropMark,
    EndPin,
    Expire,
    ForgetProducers,
    Purge,
    RenewPin,
    Trim,
)
from kayos.model.floors import Floors
from kayos.model.pin import Pin
from kayos.model.producer import ProducerRow
from kayos.model.record import SEQ, Kind, Record, verify_and_decode
from kayos.model.topic import Mode
from kayos.storage.environment import Environment
from kayos.storage.interface import StoreState
from kayos.storage.layout import (
    HAS_EXPIRY,
    KEY_ROW,
    KEY_ROW_REST,
    KIND_MASK,
    PAIR,
    STATE,
    SYNC,
    TAKEOVER,
    StateRow,
    Sums,
    SyncRow,
    checksum_in,
    checksums_in,
    pack_mark,
    pack_pin,
    pack_producer,
    pack_retained,
    pack_seq,
    pack_sync,
    pack_takeover,
    slot_of,
    unpack_producer,
)
from kayos.storage.transaction import Database, Transaction

# kind, expires_at_ms: of a message that is more than a plain PUT
Special = tuple[int, int]
NO_FIRST_SEQS: Mapping[bytes, bytes] = {}
_PLAIN = int(Kind.PUT)
_NOT_SPECIAL: Special = (_PLAIN, 0)


class Changes:
    """The working state of one write transaction; `finish` writes it down."""

    def __init__(
        self, env: Environment, txn: Transaction, state: StoreState, sums: tuple[Sums, Sums], pins: dict[str, Pin]
    ) -> None:
        self.txn = txn
        self.tables = env.tables
        self.is_compact = state.identity.mode is Mode.COMPACT
        self.state = self._begun = state
        self.log_sums = replace(sums[0])
        self.retained_sums = replace(sums[1])
        self.pins = dict(pins)
        self.pinned_seq = self._find_pinned_seq()

    def put_messages(
        self,
        keyed: Mapping[bytes, bytes],
        unkeyed: Sequence[bytes],
        special: Mapping[bytes, Special],
        first_seqs: Mapping[bytes, bytes] = NO_FIRST_SEQS,
    ) -> list[bytes]:
        """Append messages in stored form, all above what is there; gives them back in the order of the log.

        `keyed` goes by key, in mode `compact` alone; `special` tells, by packed sequence, of those that are no plain
        PUT. A row that is replaced is retained as replaced by the new one, or by an earlier revision of `first_seqs`.
        The many small steps are grouped by table and sorted, which LMDB rewards with locality.
        """
        stored_forms = [*keyed.values(), *unkeyed]
        if not stored_forms:
            return stored_forms
        checksums = checksums_in(stored_forms)
        self.log_sums.add_all(len(stored_forms), size=sum(map(len, stored_forms)), checksums=sum(checksums))
        if keyed:
            self._put_keys(make_key_rows(keyed, checksums, special), first_seqs)
        stored_forms.sort()
        self.txn.cursor(self.tables.log).putmulti([(stored[:8], stored) for stored in stored_forms], append=True)
        if special:
            self._index_special([stored[:8] for stored in stored_forms if stored[:8] in special], special)
        (last_seq,) = SEQ.unpack_from(stored_forms[-1])
        self.state = replace(self.state, high_seq=max(self.state.high_seq, last_seq), message_seq=last_seq)
        return stored_forms

    def _index_special(self, seq_keys: Iterable[bytes], special: Mapping[bytes, Special]) -> None:
        """Tombstones and what expires are found again by indexes of their own."""
        for seq_key in seq_keys:
            kind, expires_at_ms = special[seq_key]
            if kind == Kind.DELETE and self.is_compact:
                self.txn.put(seq_key, b"", db=self.tables.tombstones)
            if expires_at_ms:
                self.txn.put(pack_seq(expires_at_ms) + seq_key, b"", db=self.tables.expiry)

    def _put_keys(self, key_rows: list[tuple[bytes, bytes]], first_seqs: Mapping[bytes, bytes]) -> None:
        key_rows.sort()
        cursor = self.txn.cursor(self.tables.keys)
        replaced = cursor.getmulti([slot for slot, _ in key_rows])
        if replaced:
            self._remove_replaced(replaced, key_rows, first_seqs)
        cursor.putmulti(key_rows)

    def _remove_replaced(
        self,
        replaced: list[tuple[bytes, bytes]],
        key_rows: list[tuple[bytes, bytes]],
        first_seqs: Mapping[bytes, bytes],
    ) -> None:
        """Take the older revisions out of the log, in sequence order."""
        plain = []
        others = []
        size_removed = checksums_removed = 0
        pinned_seq, put, unpack = self.pinned_seq, _PLAIN, KEY_ROW.unpack
        for slot, row in replaced:
            seq, flags, checksum, size = unpack(row)
            if flags == put and seq > pinned_seq:
                plain.append(row[:8])
                size_removed += size
                checksums_removed += checksum
            else:
                others.append((row[:8], slot))
        self.log_sums.remove_all(len(plain), size=size_removed, checksums=checksums_removed)
        plain.sort()
        delete, log = self.txn.delete, self.tables.log
        for seq_key in plain:
            if not delete(seq_key, db=log):
                raise _missing_row(seq_key)
        if others:
            new_rows = dict(key_rows) | {slot_of(key): seq_key for key, seq_key in first_seqs.items()}
            for seq_key, slot in sorted(others):
                (replaced_by,) = SEQ.unpack_from(new_rows[slot])
                self.take_out(seq_key, replaced_by=replaced_by)

    def take_out(self, seq_key: bytes, *, replaced_by: int | None) -> Record:
        """Remove one row from the log and its indexes; keep it for the pins that need it.

        `replaced_by` None means that the retained rows come from elsewhere (catch-up)."""
        txn, tables = self.txn, self.tables
        stored = txn.pop(seq_key, db=tables.log)
        if stored is None:
            raise _missing_row(seq_key)
        record = verify_and_decode(stored)
        self.log_sums.remove(checksum=checksum_in(stored), size=len(stored))
        if record.expires_at_ms:
            txn.delete(pack_seq(record.expires_at_ms) + seq_key, db=tables.expiry)
        if record.kind == Kind.DELETE and self.is_compact:
            txn.delete(seq_key, db=tables.tombstones)
        if replaced_by is not None and record.seq <= self.pinned_seq:
            self.put_retained(stored, replaced_by=replaced_by)
        return record

    def put_retained(self, record: bytes, *, replaced_by: int) -> None:
        seq_key = record[:8]
        row = pack_retained(seq_key, replaced_by, record)
        if self.txn.put(seq_key, row, db=self.tables.retained, overwrite=False):
            self.txn.put(pack_seq(replaced_by) + seq_key, b"", db=self.tables.replaced)
            self.retained_sums.add(checksum=checksum_in(row), size=len(row))

    def drop_retained(self, seq_key: bytes, row: bytes) -> None:
        self.txn.delete(seq_key, db=self.tables.retained)
        self.txn.delete(row[:8] + seq_key, db=self.tables.replaced)
        self.retained_sums.remove(checksum=checksum_in(row), size=len(row))

    def drop_all_retained(self) -> None:
        self.txn.drop(self.tables.retained, delete=False)
        self.txn.drop(self.tables.replaced, delete=False)
        self.retained_sums = Sums()

    def drop_small_tables(self) -> None:
        """Marks, producers and pins: a catch-up brings them whole."""
        for table in (self.tables.marks, self.tables.producers, self.tables.pins):
            self.txn.drop(table, delete=False)
        self.pins = {}

    def restore_message(self, record: Record, stored: bytes) -> None:
        """Put a message back at its own sequence, below the log's end."""
        seq_key = stored[:8]
        special = {seq_key: (record.kind, record.expires_at_ms)}
        ((slot, row),) = make_key_rows({record.key: stored}, [checksum_in(stored)], special)
        self.txn.put(slot, row, db=self.tables.keys)
        self.txn.put(seq_key, stored, db=self.tables.log)
        self.log_sums.add(checksum=checksum_in(stored), size=len(stored))
        self._index_special([seq_key], special)

    def apply_control(self, control: Control, *, seq: int, timestamp_ms: int) -> None:
        floors = self.state.floors
        match control:
            case CommitMark(consumer, mark):
                self.txn.put(consumer.encode(), pack_mark(consumer, mark), db=self.tables.marks)
            case DropMark(consumer):
                self.txn.delete(consumer.encode(), db=self.tables.marks)
            case CreatePin(pin_id, lease_ms):
                self._put_pin(Pin(pin_id, seq, timestamp_ms, timestamp_ms + lease_ms))
            case RenewPin(pin_id, lease_ms):
                self._put_pin(replace(self.pins[pin_id], lease_until_ms=timestamp_ms + lease_ms))
            case EndPin(pin_id, reason):
                self._put_pin(replace(self.pins[pin_id], ended=reason, ended_seq=seq))
                self._forget_old_pins()
            case Purge(through_seq):
                purge_seq = max(floors.purge_seq, through_seq)
                self.apply_floors(replace(floors, purge_seq=purge_seq, removal_seq=seq), replaced_by=seq)
            case Trim(through_seq):
                trim_seq = max(floors.trim_seq, through_seq)
                self.apply_floors(replace(floors, trim_seq=trim_seq, removal_seq=seq), replaced_by=seq)
            case Expire():
                self.apply_floors(_floors_after_expiry(floors, control, seq), replaced_by=seq)
            case ForgetProducers(through_seq):
                self._forget_producers(through_seq)
        self.state = replace(self.state, high_seq=max(self.state.high_seq, seq))

    def apply_floors(self, floors: Floors, *, replaced_by: int | None) -> None:
        """Remove what the new floors forbid: the only way in which records go without a successor."""
        before = self.state.floors
        for seq_key in self.keys_through(self.tables.tombstones, pack_seq(floors.purge_seq)):
            record = self.take_out(seq_key, replaced_by=replaced_by)
            self.txn.delete(slot_of(record.key), db=self.tables.keys)
        if not self.is_compact:
            for seq_key in self.keys_through(self.tables.log, pack_seq(floors.trim_seq)):
                self.take_out(seq_key, replaced_by=replaced_by)
        expired = [key[8:] for key in self.keys_through(self.tables.expiry, PAIR.pack(*expiry_floor(floors)))]
        aged = self.aged_keys(after_seq=before.aged_seq, through_seq=floors.aged_seq)
        for seq_key in sorted({*expired, *aged}):
            if self._is_removed_silently(seq_key):
                self.take_out(seq_key, replaced_by=replaced_by)
        self.state = replace(self.state, floors=floors)

    def _is_removed_silently(self, seq_key: bytes) -> bool:
        """Unkeyed messages, and all of mode `log`, go without a tombstone; keyed ones got theirs before."""
        stored = self.txn.get(seq_key, db=self.tables.log)
        if stored is None:
            return False
        record = verify_and_decode(stored)
        return record.kind == Kind.PUT and not (self.is_compact and record.key)

    def aged_keys(self, *, after_seq: int, through_seq: int) -> list[bytes]:
        cursor = self.txn.cursor(self.tables.log)
        found = []
        if through_seq > after_seq and cursor.set_range(pack_seq(after_seq + 1)):
            last = pack_seq(through_seq)
            for seq_key in cursor.iternext(values=False):
                if seq_key > last:
                    break
                found.append(seq_key)
        return found

    def keys_through(self, table: Database, last: bytes) -> list[bytes]:
        cursor = self.txn.cursor(table)
        found: list[bytes] = []
        if cursor.first():
            for key in cursor.iternext(values=False):
                if key > last:
                    break
                found.append(key)
        return found

    def _put_pin(self, pin: Pin) -> None:
        self.txn.put(pin.pin_id.encode(), pack_pin(pin), db=self.tables.pins)
        self.pins[pin.pin_id] = pin
        self.pinned_seq = self._find_pinned_seq()

    def _forget_old_pins(self) -> None:
        ended = sorted((pin for pin in self.pins.values() if pin.ended), key=lambda pin: pin.ended_seq)
        for pin in ended[:-ENDED_PINS_KEPT]:
            self.txn.delete(pin.pin_id.encode(), db=self.tables.pins)
            del self.pins[pin.pin_id]

    def _find_pinned_seq(self) -> int:
        return max((pin.seq for pin in self.pins.values() if pin.is_alive), default=0)

    def _forget_producers(self, through_seq: int) -> None:
        gone = []
        for producer_id, stored in self.txn.cursor(self.tables.producers):
            if unpack_producer(producer_id, stored).last.last_seq <= through_seq:
                gone.append(producer_id)
        for producer_id in gone:
            self.txn.delete(producer_id, db=self.tables.producers)

    def raise_commit_point(self, commit_point: int) -> None:
        if commit_point > self.state.commit_point:
            self.state = replace(self.state, commit_point=commit_point)

    def put_producers(self, rows: Iterable[ProducerRow]) -> None:
        for row in rows:
            self.txn.put(row.producer_id, pack_producer(row), db=self.tables.producers)

    def finish(self) -> None:
        """Write the row that every commit changes, and those of `meta` that this one did; the caller commits."""
        state, begun, meta = self.state, self._begun, self.tables.meta
        row = StateRow(
            state.high_seq,
            state.message_seq,
            state.last_timestamp_ms,
            state.epoch,
            state.commit_point,
            state.floors,
            (self.log_sums.count, self.log_sums.size, self.log_sums.total),
            (self.retained_sums.count, self.retained_sums.size, self.retained_sums.total),
        )
        self.txn.put(STATE, row.pack(), db=meta)
        if state.takeover is not begun.takeover:
            self.txn.put(TAKEOVER, pack_takeover(state.takeover), db=meta)
        if state.sync.is_ready:
            if not begun.sync.is_ready:
                self.txn.delete(SYNC, db=meta)
        elif state.sync is not begun.sync:
            self.txn.put(SYNC, pack_sync(SyncRow(state.sync, state.lacks_retained)), db=meta)


def make_key_rows(
    keyed: Mapping[bytes, bytes], checksums: Sequence[int], special: Mapping[bytes, Special]
) -> list[tuple[bytes, bytes]]:
    """(slot, row of `keys`) of each message; `checksums` are theirs, and maybe others' behind them."""
    pack, size_of, put = KEY_ROW_REST.pack, len, _PLAIN
    if not special and max(map(len, keyed)) < LMDB_KEY_BYTES_MAX:
        return [
            (key, stored[:8] + pack(put, checksum, size_of(stored)))
            for (key, stored), checksum in zip(keyed.items(), checksums, strict=False)
        ]
    rows = []
    for (key, stored), checksum in zip(keyed.items(), checksums, strict=False):
        kind, expires_at_ms = special.get(stored[:8], _NOT_SPECIAL)
        flags = kind | HAS_EXPIRY if expires_at_ms else kind
        rows.append((slot_of(key), stored[:8] + pack(flags, checksum, size_of(stored))))
    return rows


def live_kind(row: bytes) -> tuple[int, int]:
    """(seq, kind) of a row of `keys`."""
    seq, flags, _, _ = KEY_ROW.unpack(row)
    return seq, flags & KIND_MASK


def expiry_floor(floors: Floors) -> tuple[int, int]:
    return floors.expired_ms, floors.expired_seq


def _floors_after_expiry(floors: Floors, control: Expire, seq: int) -> Floors:
    asked = (control.through_ms, control.through_expiry_seq)
    expired_ms, expired_seq = max(expiry_floor(floors), asked)
    return replace(
        floors,
        aged_seq=max(floors.aged_seq, control.aged_seq),
        expired_ms=expired_ms,
        expired_seq=expired_seq,
        removal_seq=seq,
    )


def _missing_row(seq_key: bytes) -> DamagedStore:
    (seq,) = SEQ.unpack(seq_key)
    return DamagedStore(f"the key index names sequence {seq}, which is not in the log: run 'kayos check'")
