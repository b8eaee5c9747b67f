"""Catching up: one copy brought to another's state by its live rows and tables.

The log comes first, in slices, ascending; each row replaces the older one of its key. The tables come last:
floors, which remove what the source removed; retained rows with their exact `replaced_by`; marks, producer
rows, pins and the takeover table, whole. Until then the copy says that it is not ready. Replicas use this over
the network, compaction within one directory.
"""

from dataclasses import replace

from kayos.errors import FailedPrecondition, ResetRequired
from kayos.model.snapshot import LogSlice
from kayos.storage.changes import Changes, MessageRow, message_row
from kayos.storage.environment import Environment
from kayos.storage.interface import CatchUpTables, RetainedRow, SyncPhase, SyncState
from kayos.storage.layout import (
    PAIR,
    SYNC,
    TAKEOVER,
    pack_mark,
    pack_pin,
    pack_seq,
    pack_sync,
    pack_takeover,
    unpack_mark,
    unpack_pin,
    unpack_producer,
    unpack_retained,
)
from kayos.storage.meta import read_meta
from kayos.storage.reader import damaged_row, decode_verified
from kayos.storage.transaction import Transaction


def apply_piece(changes: Changes, piece: LogSlice) -> None:
    sync = changes.state.sync
    is_first = sync.phase is SyncPhase.READY
    position = changes.state.high_seq if is_first else sync.through_seq
    if piece.after_seq != position:
        raise FailedPrecondition(f"the catch-up slice follows {piece.after_seq}, this replica is at {position}")
    high_before = changes.state.high_seq
    message_before = changes.state.message_seq
    changes.pinned_seq = 0  # replaced rows that pins need come with the tables, exactly
    changes.put_messages([_message_row(stored) for stored in piece.records])
    start_seq = position if is_first else sync.start_seq
    first_end_seq = piece.end_seq if is_first else sync.first_end_seq
    sync = SyncState(SyncPhase.CATCHING_UP, start_seq, piece.through_seq, piece.end_seq, first_end_seq)
    changes.txn.put(SYNC, pack_sync(sync), db=changes.tables.meta)
    changes.state = replace(changes.state, sync=sync, high_seq=high_before, message_seq=message_before)


def apply_tables(changes: Changes, tables: CatchUpTables) -> None:
    sync = changes.state.sync
    if sync.phase is SyncPhase.READY:
        high_seq = changes.state.high_seq
        sync = SyncState(SyncPhase.CATCHING_UP, high_seq, high_seq, high_seq, high_seq)
    if tables.start_seq > sync.start_seq or tables.end_seq < sync.through_seq:
        raise FailedPrecondition(
            f"the tables cover ({tables.start_seq}, {tables.end_seq}], this replica needs "
            f"({sync.start_seq}, {sync.through_seq}]"
        )
    if sync.misses_deletes(tables.floors.purge_seq):
        raise ResetRequired(
            f"tombstones were purged up to {tables.floors.purge_seq} that this replica had not seen, which began at "
            f"{sync.start_seq or sync.first_end_seq}: copy it whole",
            purge_seq=tables.floors.purge_seq,
        )
    changes.apply_floors(tables.floors, replaced_by=None)
    for row in tables.retained:
        changes.put_retained(row.record, replaced_by=row.replaced_by)
    _replace_small_tables(changes, tables)
    changes.state = replace(
        changes.state,
        high_seq=tables.end_seq,
        message_seq=tables.message_seq,
        last_timestamp_ms=tables.last_timestamp_ms,
        epoch=max(changes.state.epoch, tables.epoch),
        takeover=tables.takeover,
        sync=SyncState(),
    )


def _replace_small_tables(changes: Changes, tables: CatchUpTables) -> None:
    txn, handles = changes.txn, changes.tables
    for handle in (handles.marks, handles.producers, handles.pins):
        txn.drop(handle, delete=False)
    for consumer, mark in tables.marks:
        txn.put(consumer.encode(), pack_mark(consumer, mark), db=handles.marks)
    changes.put_producers(tables.producers)
    for pin in tables.pins:
        txn.put(pin.pin_id.encode(), pack_pin(pin), db=handles.pins)
    changes.pins = {pin.pin_id: pin for pin in tables.pins}
    txn.put(TAKEOVER, pack_takeover(tables.takeover), db=handles.meta)
    txn.put(SYNC, pack_sync(SyncState()), db=handles.meta)


def read_tables(txn: Transaction, env: Environment, start_seq: int) -> CatchUpTables:
    """Everything beside the log, of one committed state."""
    handles = env.tables
    meta = read_meta(txn, env)
    row = meta.state
    return CatchUpTables(
        start_seq=start_seq,
        end_seq=row.high_seq,
        message_seq=row.message_seq,
        last_timestamp_ms=row.last_timestamp_ms,
        epoch=row.epoch,
        floors=row.floors,
        takeover=meta.takeover,
        marks=tuple((key.decode(), unpack_mark(key, value)) for key, value in txn.cursor(handles.marks)),
        producers=tuple(unpack_producer(key, value) for key, value in txn.cursor(handles.producers)),
        pins=tuple(unpack_pin(key, value) for key, value in txn.cursor(handles.pins)),
        retained=_retained_since(txn, env, start_seq),
    )


def _retained_since(txn: Transaction, env: Environment, start_seq: int) -> tuple[RetainedRow, ...]:
    rows = []
    cursor = txn.cursor(env.tables.replaced)
    if cursor.set_range(pack_seq(start_seq + 1)):
        for key in cursor.iternext(values=False):
            replaced_by, _ = PAIR.unpack(key)
            stored = txn.get(key[8:], db=env.tables.retained)
            if stored is None:
                raise damaged_row(key[8:])
            rows.append(RetainedRow(unpack_retained(key[8:], stored)[1], replaced_by))
    return tuple(rows)


def _message_row(stored: bytes) -> MessageRow:
    record = decode_verified(stored[:8], stored)
    return message_row(record, stored)
