"""Undoing what another history never had: one copy taken back to a sequence that both logs share.

Three questions come before. The diverged copy finds the keys of what it must undo; its upstream, from one committed
state, gives their records that stand at or below the shared sequence; those that stand only above it come with the
catch-up. Then everything is done in one commit: rows above go, the overwritten ones come back at their own
sequences, and the tables beside the log are dropped, because the catch-up that must follow brings them whole.

What cannot be undone is refused: where messages were removed since (rows below are gone for good), and below the
commit point, which every rightful upstream holds.
"""

from collections.abc import Sequence
from dataclasses import replace

from kayos.errors import DamagedRecord, FailedPrecondition
from kayos.model.catch_up import Restorable, Rollback
from kayos.model.record import SEQ, Kind, Record, record_seq, verify_and_decode
from kayos.model.sync import SyncPhase, SyncState
from kayos.model.takeover import TakeoverTable
from kayos.storage.changes import Changes, live_kind
from kayos.storage.environment import Environment
from kayos.storage.interface import StoreState
from kayos.storage.layout import pack_seq, slot_of
from kayos.storage.meta import read_meta
from kayos.storage.reader import decode_verified, find_stored, log_rows
from kayos.storage.transaction import Transaction


def check_rollback(state: StoreState, rollback: Rollback) -> None:
    to_seq = rollback.to_seq
    if to_seq >= state.high_seq:
        raise FailedPrecondition(f"there is nothing to undo above {to_seq}: the log ends at {state.high_seq}")
    if to_seq < state.commit_point:
        raise FailedPrecondition(f"{state.commit_point} is committed: the copy cannot go back to {to_seq}")
    if to_seq < state.floors.removal_seq:
        raise FailedPrecondition(
            f"messages were removed at {state.floors.removal_seq}, above {to_seq}: copy everything instead"
        )


def apply_rollback(changes: Changes, rollback: Rollback) -> None:
    restored = _verify(changes, rollback)
    to_seq = rollback.to_seq
    for seq_key in _seq_keys_above(changes, to_seq):
        gone = changes.take_out(seq_key, replaced_by=None)
        if gone.key and changes.is_compact:
            changes.txn.delete(slot_of(gone.key), db=changes.tables.keys)
    for record, stored in restored:
        changes.restore_message(record, stored)
    changes.drop_all_retained()
    changes.drop_small_tables()
    end_seq = max(to_seq, rollback.end_seq)
    changes.state = replace(
        changes.state,
        high_seq=to_seq,
        message_seq=_last_seq(changes),
        takeover=TakeoverTable(tuple(row for row in changes.state.takeover.rows if row.start_seq < to_seq)),
        sync=SyncState(SyncPhase.CATCHING_UP, to_seq, to_seq, end_seq, end_seq, rollback.history_id),
        lacks_retained=True,
    )


def _verify(changes: Changes, rollback: Rollback) -> list[tuple[Record, bytes]]:
    """The records that come back, all of them proven to fit before the first row goes."""
    restored = []
    keys, seqs = set(), set()
    for stored in rollback.records:
        record = verify_and_decode(stored)
        if record.kind not in (Kind.PUT, Kind.DELETE):
            raise DamagedRecord(f"the record at {record.seq} is no message: the sender is damaged", seq=record.seq)
        if not changes.is_compact or not record.key:
            raise FailedPrecondition(f"the record at {record.seq} was never overwritten: it has no key")
        if not 0 < record.seq <= rollback.to_seq:
            raise FailedPrecondition(f"the record at {record.seq} stands above {rollback.to_seq}")
        if record.key in keys or record.seq in seqs:
            raise FailedPrecondition(f"the key or the sequence of the record at {record.seq} comes twice")
        if not _is_free(changes, record, rollback.to_seq):
            raise FailedPrecondition(f"the record at {record.seq} was not overwritten: its place is taken")
        keys.add(record.key)
        seqs.add(record.seq)
        restored.append((record, stored))
    return restored


def _is_free(changes: Changes, record: Record, to_seq: int) -> bool:
    """Neither its sequence nor its key is taken by a row that stays."""
    if changes.txn.get(pack_seq(record.seq), db=changes.tables.log) is not None:
        return False
    row = changes.txn.get(slot_of(record.key), db=changes.tables.keys)
    return row is None or live_kind(row)[0] > to_seq


def _seq_keys_above(changes: Changes, seq: int) -> list[bytes]:
    cursor = changes.txn.cursor(changes.tables.log)
    return list(cursor.iternext(values=False)) if cursor.set_range(pack_seq(seq + 1)) else []


def _last_seq(changes: Changes) -> int:
    cursor = changes.txn.cursor(changes.tables.log)
    return int(SEQ.unpack(cursor.key())[0]) if cursor.last() else 0


def find_diverged(txn: Transaction, env: Environment, after_seq: int, *, rows_max: int) -> tuple[bytes, ...] | None:
    keys = []
    for count, (seq_key, stored) in enumerate(log_rows(txn, env.tables, after_seq), 1):
        if count > rows_max:
            return None
        record = decode_verified(seq_key, stored)
        if record.key:
            keys.append(record.key)
    return tuple(keys)


def find_restorable(
    txn: Transaction, env: Environment, keys: Sequence[bytes], through_seq: int, *, bytes_max: int
) -> Restorable:
    meta = read_meta(txn, env)
    end_seq = meta.state.high_seq
    records: list[bytes] = []
    answered = size = 0
    for key in keys:
        stored = find_stored(txn, env.tables, key)
        if stored is not None and record_seq(stored) <= through_seq:
            size += len(stored)
            if size > bytes_max and answered:
                break
            records.append(stored)
        answered += 1
    return Restorable(meta.takeover.find_history_at(end_seq), end_seq, answered, tuple(records))
