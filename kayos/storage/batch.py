"""A neighbour's batches: all of them checked before anything changes, then appended as the head had them.

Batches that are applied in one commit are merged: no boundary can fall between them, so in mode `compact` a revision
that a later one replaces need never be written. A control ends such a run, because a pin may stand there. The replica
ends as if each batch had been applied alone, down to the `replaced_by` of retained rows, which names the first
revision of the run that replaced them, written or not.

This is the hottest code of a replica: a plain PUT costs one checksum, one unpacking and no object.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kayos.errors import DamagedRecord, Gap, InvalidArgument, StaleEpoch
from kayos.model.control import Control
from kayos.model.producer import ProducerRow
from kayos.model.record import CHECKSUM, CHECKSUM_RESIDUE, HEAD, Kind, Record, checksum_of, decode_record
from kayos.model.write import Batch
from kayos.storage.changes import Changes, Special
from kayos.storage.control_codec import decode_control
from kayos.storage.interface import StoreState

_SIZE_MIN = HEAD.size + CHECKSUM.size


@dataclass(slots=True)
class Run:
    """Messages up to a control or the end: the newest of each key and all without one, in stored form.

    `special` names those that are more than a plain PUT. `first_seqs` holds, for a key that came more than once, the
    sequence where it came first. `producers` are rows of batches that ended in the run; the control ends it.
    """

    keyed: dict[bytes, bytes] = field(default_factory=dict)
    unkeyed: list[bytes] = field(default_factory=list)
    special: dict[bytes, Special] = field(default_factory=dict)
    first_seqs: dict[bytes, bytes] = field(default_factory=dict)
    producers: dict[bytes, ProducerRow] = field(default_factory=dict)
    control: Control | None = None
    control_seq: int = 0
    control_ms: int = 0

    def add_special(self, record: Record, stored: bytes) -> None:
        self.special[stored[:8]] = (record.kind, record.expires_at_ms)


def find_new(batches: Sequence[Batch], state: StoreState) -> list[Batch]:
    """Those that are no repeats; refuses an old head's and what does not follow."""
    high_seq, epoch = state.high_seq, state.epoch
    found = []
    for batch in batches:
        if batch.epoch < epoch:
            raise StaleEpoch(f"the batch is of epoch {batch.epoch}, this replica is at {epoch}", epoch=epoch)
        if batch.last_seq <= high_seq:
            continue
        if batch.previous_seq != high_seq:
            raise Gap(
                f"the batch follows sequence {batch.previous_seq}, this replica is at {high_seq}",
                high_seq=state.high_seq,
                previous_seq=batch.previous_seq,
            )
        high_seq, epoch = batch.last_seq, batch.epoch
        found.append(batch)
    return found


def read_batches(batches: Iterable[Batch], *, is_compact: bool) -> list[Run]:
    """Everything that batches bring, verified and merged."""
    runs = [Run()]
    for batch in batches:
        read_records(
            runs, batch.records, after_seq=batch.previous_seq, through_seq=batch.last_seq, is_compact=is_compact
        )
        for row in batch.producers:
            runs[-1].producers[row.producer_id] = row
    return runs


def read_records(
    runs: list[Run], records: Sequence[bytes], *, after_seq: int, through_seq: int, is_compact: bool
) -> None:
    """Add records to the last run and the runs that follow it; they must be sound and ascend."""
    run, unpack, residue, key_at = runs[-1], HEAD.unpack_from, CHECKSUM_RESIDUE, HEAD.size
    keyed, first_seqs = run.keyed, run.first_seqs
    put, previous = int(Kind.PUT), after_seq
    for stored in records:
        if len(stored) < _SIZE_MIN or checksum_of(stored) != residue:
            raise DamagedRecord("a record fails its checksum: its sender is damaged, or the way")
        seq, kind, flags, key_length, _ = unpack(stored)
        if not previous < seq <= through_seq:
            raise DamagedRecord(f"sequence {seq} does not ascend between {previous} and {through_seq}", seq=seq)
        previous = seq
        if kind == put and not flags:
            key = stored[key_at : key_at + key_length]
        else:
            record = _decode(stored)
            if kind == Kind.CONTROL:
                run.control, run.control_seq, run.control_ms = decode_control(record.value), seq, record.timestamp_ms
                run = Run()
                runs.append(run)
                keyed, first_seqs = run.keyed, run.first_seqs
                continue
            key = record.key
            run.add_special(record, stored)
        if key and is_compact:
            if key in keyed:
                first_seqs.setdefault(key, keyed[key][:8])
            keyed[key] = stored
        else:
            run.unkeyed.append(stored)


def _decode(stored: bytes) -> Record:
    """Its checksum holds, so only another version of Kayos can have written what does not decode."""
    try:
        record = decode_record(stored)
    except (InvalidArgument, struct.error) as error:
        raise DamagedRecord("a record is malformed: the sender runs another version") from error
    if record.kind not in (Kind.PUT, Kind.DELETE, Kind.CONTROL):
        raise DamagedRecord(f"a record is of kind {record.kind}: the sender runs another version", seq=record.seq)
    return record


def append_runs(changes: Changes, runs: Sequence[Run]) -> None:
    for run in runs:
        changes.put_messages(run.keyed, run.unkeyed, run.special, run.first_seqs)
        changes.put_producers(run.producers.values())
        if run.control is not None:
            changes.apply_control(run.control, seq=run.control_seq, timestamp_ms=run.control_ms)
