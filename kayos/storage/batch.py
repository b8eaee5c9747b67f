"""A neighbour's batch: all of it checked before anything changes, then appended as the head had it."""

from collections.abc import Sequence

from kayos.errors import DamagedRecord
from kayos.model.record import Kind, Record, verify_and_decode
from kayos.model.write import Batch
from kayos.storage.changes import Changes, MessageRow, message_row
from kayos.storage.control_codec import decode_control


def append_records(changes: Changes, records: Sequence[Record], stored_forms: Sequence[bytes]) -> None:
    """Append a neighbour's records in runs. A run ends at a control, and where a key comes again: a head that expires
    a message of the same group writes its tombstone into it, too."""
    run: list[MessageRow] = []
    keys: set[bytes] = set()
    for record, stored in zip(records, stored_forms, strict=True):
        is_control = record.kind == Kind.CONTROL
        if is_control or record.key in keys:
            changes.put_messages(run)
            run, keys = [], set()
        if is_control:
            control = decode_control(record.value)
            changes.apply_control(control, seq=record.seq, timestamp_ms=record.timestamp_ms)
        else:
            run.append(message_row(record, stored))
            if record.key and changes.is_compact:
                keys.add(record.key)
    changes.put_messages(run)


def check_batch(batch: Batch) -> list[Record]:
    """Decode a neighbour's batch; all of it is checked before anything changes."""
    records = []
    previous = batch.previous_seq
    for stored in batch.records:
        record = verify_and_decode(stored)
        if not previous < record.seq <= batch.last_seq:
            raise DamagedRecord(f"the batch's sequence {record.seq} does not ascend after {previous}", seq=record.seq)
        previous = record.seq
        records.append(record)
    return records
