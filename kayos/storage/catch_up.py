"""Catching up: one copy brought to another's state by its live rows and tables.

The log comes first, in pieces, ascending; each row replaces the older one of its key. The tables come with the last
piece, of the same committed state: floors, which remove what the source removed; retained rows with their exact
`replaced_by`; marks, producer rows, pins and the takeover table, whole. Until then the copy says that it is not
ready. Replicas use this over the network, compaction within one directory.
"""

from dataclasses import replace

from kayos.errors import DamagedRecord, FailedPrecondition, Gap, OutOfRange, ResetRequired
from kayos.model.catch_up import CatchUpPiece, CatchUpTables, RetainedRow
from kayos.model.record import is_sound, record_seq
from kayos.model.sync import READY, SyncPhase, SyncState
from kayos.model.takeover import TakeoverTable
from kayos.storage.batch import Run, append_runs, read_records
from kayos.storage.changes import Changes
from kayos.storage.environment import Environment
from kayos.storage.interface import StoreState
from kayos.storage.layout import (
    PAIR,
    pack_mark,
    pack_pin,
    pack_seq,
    unpack_mark,
    unpack_pin,
    unpack_producer,
    unpack_retained,
)
from kayos.storage.meta import Meta, read_meta
from kayos.storage.reader import damaged_row, log_rows, read_slice
from kayos.storage.transaction import Transaction


def apply_piece(changes: Changes, piece: CatchUpPiece) -> None:
    before, rows = changes.state, piece.slice
    sync = sync_after(before, piece)
    if piece.tables is not None:
        check_tables(before, sync, piece.tables)
    runs = [Run()]
    read_records(
        runs, rows.records, after_seq=rows.after_seq, through_seq=rows.through_seq, is_compact=changes.is_compact
    )
    if len(runs) > 1:
        raise DamagedRecord("a control stands among the rows of a log: the sender is damaged")
    changes.pinned_seq = 0  # replaced rows that pins need come with the tables, exactly
    append_runs(changes, runs)
    if piece.tables is not None:
        _apply_tables(changes, piece.tables, sync)
    else:
        changes.state = replace(changes.state, sync=sync, high_seq=before.high_seq, message_seq=before.message_seq)


def sync_after(state: StoreState, piece: CatchUpPiece) -> SyncState:
    """The range that the copy holds with this piece; refuses one that does not follow."""
    sync, rows = state.sync, piece.slice
    position = state.high_seq if sync.is_ready else sync.through_seq
    if rows.after_seq != position:
        raise Gap(
            f"the catch-up slice follows {rows.after_seq}, this replica is at {position}",
            high_seq=position,
            previous_seq=rows.after_seq,
        )
    start_seq = position if sync.is_ready else sync.start_seq
    first_end_seq = rows.end_seq if sync.is_ready else sync.first_end_seq or rows.end_seq
    return SyncState(
        SyncPhase.CATCHING_UP, start_seq, rows.through_seq, rows.end_seq, first_end_seq, source_history=piece.history_id
    )


def check_tables(state: StoreState, sync: SyncState, tables: CatchUpTables) -> None:
    if not tables.end_seq == sync.end_seq == sync.through_seq:
        raise FailedPrecondition(
            f"the tables are those of {tables.end_seq}, the rows reach {sync.through_seq} of {sync.end_seq}"
        )
    if not is_table_of(tables.takeover, tables.end_seq):
        raise FailedPrecondition("the takeover table is not sorted and unique, or runs ahead of the log")
    if any(not is_sound(row.record) or record_seq(row.record) >= row.replaced_by for row in tables.retained):
        raise DamagedRecord("a retained row fails its checksum: its sender is damaged, or the way")
    known_seq = 0 if state.lacks_retained else sync.start_seq
    if tables.retained_from_seq > known_seq:
        raise FailedPrecondition(
            f"retained rows come from {tables.retained_from_seq} on, this replica needs those from {known_seq} on"
        )
    if sync.misses_deletes(tables.floors.purge_seq):
        raise ResetRequired(
            f"tombstones were purged up to {tables.floors.purge_seq} that this replica had not seen, which began at "
            f"{sync.start_seq or sync.first_end_seq}: copy it whole",
            purge_seq=tables.floors.purge_seq,
        )


def is_table_of(table: TakeoverTable, high_seq: int) -> bool:
    """Whether a takeover table can be that of a log that ends there."""
    return table.is_sound() and (not table.rows or table.rows[-1].start_seq <= high_seq)


def _apply_tables(changes: Changes, tables: CatchUpTables, sync: SyncState) -> None:
    changes.apply_floors(tables.floors, replaced_by=None)
    if not tables.retained_from_seq and sync.start_seq:
        changes.drop_all_retained()
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
        sync=READY,
        lacks_retained=False,
    )


def _replace_small_tables(changes: Changes, tables: CatchUpTables) -> None:
    changes.drop_small_tables()
    for consumer, mark in tables.marks:
        changes.txn.put(consumer.encode(), pack_mark(consumer, mark), db=changes.tables.marks)
    changes.put_producers(tables.producers)
    for pin in tables.pins:
        changes.txn.put(pin.pin_id.encode(), pack_pin(pin), db=changes.tables.pins)
    changes.pins = {pin.pin_id: pin for pin in tables.pins}


def read_piece(
    txn: Transaction, env: Environment, after_seq: int, *, retained_from_seq: int, bytes_max: int
) -> CatchUpPiece:
    """Rows, and with the last of them the tables, of one committed state."""
    meta = read_meta(txn, env)
    high_seq = meta.state.high_seq
    if after_seq > high_seq:
        raise OutOfRange(f"sequence {after_seq} is above the log's end, {high_seq}: there is nothing to catch up with")
    rows = log_rows(txn, env.tables, after_seq)
    piece = read_slice(rows, after_seq=after_seq, end_seq=high_seq, bytes_max=bytes_max, tombstones=True)
    tables = _read_tables(txn, env, meta, retained_from_seq) if piece.complete else None
    return CatchUpPiece(meta.takeover.find_history_at(high_seq), piece, tables)


def _read_tables(txn: Transaction, env: Environment, meta: Meta, retained_from_seq: int) -> CatchUpTables:
    handles, row = env.tables, meta.state
    return CatchUpTables(
        retained_from_seq=retained_from_seq,
        end_seq=row.high_seq,
        message_seq=row.message_seq,
        last_timestamp_ms=row.last_timestamp_ms,
        epoch=row.epoch,
        floors=row.floors,
        takeover=meta.takeover,
        marks=tuple((key.decode(), unpack_mark(key, value)) for key, value in txn.cursor(handles.marks)),
        producers=tuple(unpack_producer(key, value) for key, value in txn.cursor(handles.producers)),
        pins=tuple(unpack_pin(key, value) for key, value in txn.cursor(handles.pins)),
        retained=_retained_since(txn, env, retained_from_seq),
    )


def _retained_since(txn: Transaction, env: Environment, from_seq: int) -> tuple[RetainedRow, ...]:
    rows = []
    cursor = txn.cursor(env.tables.replaced)
    if cursor.set_range(pack_seq(from_seq + 1)):
        for key in cursor.iternext(values=False):
            replaced_by, _ = PAIR.unpack(key)
            stored = txn.get(key[8:], db=env.tables.retained)
            if stored is None:
                raise damaged_row(key[8:])
            rows.append(RetainedRow(unpack_retained(key[8:], stored)[1], replaced_by))
    return tuple(rows)
