"""Reading a store: short transactions that copy out, every record verified before it is given away."""

from collections.abc import Iterator
from heapq import merge

from kayos.errors import DamagedRecord, PinNotFound, SnapshotExpired
from kayos.model.pin import Pin
from kayos.model.record import CHECKSUM_RESIDUE, SEQ, Kind, Record, checksum_of, decode_record
from kayos.model.snapshot import LogSlice
from kayos.storage.environment import Tables
from kayos.storage.layout import pack_seq, slot_of, unpack_retained
from kayos.storage.transaction import Cursor, Transaction

_KIND_AT = 8


def read_slice(
    records: Iterator[tuple[bytes, bytes]], *, after_seq: int, end_seq: int, bytes_max: int, tombstones: bool
) -> LogSlice:
    """Take records (seq as key, stored form) until the boundary or the size is reached.

    Tombstones that are left out count, too: a long run of them must not make a long transaction.
    """
    taken: list[bytes] = []
    add = taken.append
    size = 0
    last = pack_seq(end_seq)
    previous = b""
    delete = int(Kind.DELETE)
    for seq_key, stored in records:
        if seq_key > last:
            break
        if checksum_of(stored) != CHECKSUM_RESIDUE or stored[:8] != seq_key:
            raise damaged_row(seq_key)
        size += len(stored)
        if size > bytes_max and previous:
            (through_seq,) = SEQ.unpack(previous)
            return LogSlice(after_seq, through_seq, end_seq, False, tuple(taken))
        previous = seq_key
        if tombstones or stored[_KIND_AT] != delete:
            add(stored)
    return LogSlice(after_seq, end_seq, end_seq, True, tuple(taken))


def log_rows(txn: Transaction, tables: Tables, after_seq: int) -> Iterator[tuple[bytes, bytes]]:
    """Rows of the log above a sequence, as LMDB's own iterator: no Python between it and the caller."""
    cursor = txn.cursor(tables.log)
    if after_seq >= 2**64 - 1 or not cursor.set_range(pack_seq(after_seq + 1)):
        return iter(())
    rows: Iterator[tuple[bytes, bytes]] = cursor.iternext()
    return rows


def pinned_rows(txn: Transaction, tables: Tables, after_seq: int, pin: Pin) -> Iterator[tuple[bytes, bytes]]:
    """The snapshot at the pin: what still stands in the log merged with what was kept aside for it."""
    cursor = txn.cursor(tables.retained)
    log = log_rows(txn, tables, after_seq)
    if not cursor.set_range(pack_seq(after_seq + 1)) or cursor.key() > pack_seq(pin.seq):
        return log
    return merge(log, _retained_rows(cursor, pin))


def _retained_rows(cursor: Cursor, pin: Pin) -> Iterator[tuple[bytes, bytes]]:
    last = pack_seq(pin.seq)
    for seq_key, row in cursor.iternext():
        if seq_key > last:
            return
        replaced_by, record = unpack_retained(seq_key, row)
        if replaced_by > pin.seq:
            yield seq_key, record


def find_record(txn: Transaction, tables: Tables, key: bytes) -> Record | None:
    stored = find_stored(txn, tables, key)
    return None if stored is None else decode_record(stored)


def find_stored(txn: Transaction, tables: Tables, key: bytes) -> bytes | None:
    """The live record of a key in its stored form, verified."""
    row = txn.get(slot_of(key), db=tables.keys)
    if row is None:
        return None
    stored = txn.get(row[:8], db=tables.log)
    if stored is None:
        raise damaged_row(row[:8])
    record = decode_verified(row[:8], stored)
    if record.key != key:
        if slot_of(record.key) == slot_of(key):
            # Another long key with the same digest: as good as impossible, and then not this key.
            return None
        raise damaged_row(row[:8])
    return stored


def read_record(txn: Transaction, tables: Tables, seq_key: bytes) -> Record:
    """The record of a sequence that an index names."""
    stored = txn.get(seq_key, db=tables.log)
    if stored is None:
        raise damaged_row(seq_key)
    return decode_verified(seq_key, stored)


def find_seq_before_time(txn: Transaction, tables: Tables, timestamp_ms: int, high_seq: int) -> int:
    """Timestamps never fall along the log, so a binary search over sequences finds the place."""
    low, high = 0, high_seq
    cursor = txn.cursor(tables.log)
    while low < high:
        middle = (low + high) // 2
        if not cursor.set_range(pack_seq(middle + 1)):
            high = middle
            continue
        record = decode_verified(cursor.key(), cursor.value())
        if record.timestamp_ms >= timestamp_ms:
            high = middle
        else:
            low = record.seq
    first_after = cursor.set_range(pack_seq(low + 1))
    return SEQ.unpack(cursor.key())[0] - 1 if first_after else high_seq


def decode_verified(seq_key: bytes, stored: bytes) -> Record:
    if checksum_of(stored) != CHECKSUM_RESIDUE or stored[:8] != seq_key:
        raise damaged_row(seq_key)
    return decode_record(stored)


def check_pin(pin: Pin | None, pin_id: str) -> Pin:
    if pin is None:
        raise PinNotFound(f"there is no pin {pin_id!r} on this shard: create it, or read from your mark")
    if pin.ended:
        raise SnapshotExpired(f"pin {pin_id!r} ended: {pin.ended}; start again from your mark")
    return pin


def damaged_row(seq_key: bytes) -> DamagedRecord:
    (seq,) = SEQ.unpack_from(seq_key)
    return DamagedRecord(f"the record at sequence {seq} is damaged and is not served: run 'kayos check'", seq=seq)
