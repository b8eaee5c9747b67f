"""Rows inside the words of the replication protocol: takeover tables, batches, producer rows, the tables of a catch-up.

What comes in is checked whole before it is believed: sizes, numbers, orders. The checksums of single records are not
verified here, because the store does that before it takes them. Batches are the hot path, so their columns are
checked by C loops and only rows of producers are walked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from operator import le, lt

from kayos.errors import DamagedRecord, InvalidArgument
from kayos.limits import (
    ENDED_PINS_KEPT,
    MARKS_MAX,
    NUMBER_MAX,
    PINS_MAX,
    PRODUCER_ID_BYTES_MAX,
    PRODUCER_RESULTS_KEPT,
    PRODUCERS_MAX,
    REPLICAS_MAX,
    TAKEOVER_ROWS_MAX,
)
from kayos.model.catch_up import CatchUpPiece, CatchUpTables, RetainedRow
from kayos.model.floors import Floors
from kayos.model.mark import Mark
from kayos.model.pin import Pin
from kayos.model.producer import ProducerResult, ProducerRow
from kayos.model.record import CHECKSUM, HEAD, SEQ
from kayos.model.snapshot import LogSlice
from kayos.model.takeover import HISTORY_ID_BYTES, TakeoverRow, TakeoverTable
from kayos.model.topic import check_name
from kayos.model.write import Batch
from kayos.wire.codec import mark_from_wire, mark_to_wire, pin_from_wire, pin_to_wire, takeover_to_wire
from kayos.wire.v1 import replication_pb2, types_pb2

_RECORD_BYTES_MIN = HEAD.size + CHECKSUM.size
_FLOOR_NAMES = tuple(floor.name for floor in fields(Floors))
_TABLE_NUMBERS = ("retained_from_seq", "end_seq", "message_seq", "last_timestamp_ms", "epoch")
# A replica tells of its own chain, the newcomer included.
_DURABLE_MAX = REPLICAS_MAX + 1


# Numbers and names


def check_numbers(**numbers: int) -> None:
    for name, number in numbers.items():
        if not 0 <= number <= NUMBER_MAX:
            raise InvalidArgument(f"{name} is {number}: 0 to {NUMBER_MAX} are allowed")


def check_history(name: str, history_id: bytes) -> bytes:
    """Empty stands for the history of an empty log."""
    if history_id and len(history_id) != HISTORY_ID_BYTES:
        raise InvalidArgument(f"{name} has {len(history_id)} bytes, not {HISTORY_ID_BYTES}")
    return history_id


def durable_from_wire(wire: Mapping[str, int]) -> dict[str, int]:
    durable = dict(wire)
    if len(durable) > _DURABLE_MAX:
        raise InvalidArgument(f"{len(durable)} nodes are said to hold the log: a chain has at most {_DURABLE_MAX}")
    if durable and max(durable.values()) > NUMBER_MAX:
        raise InvalidArgument(f"a durable sequence is above {NUMBER_MAX}")
    return durable


def takeover_from_wire(wire: Sequence[types_pb2.TakeoverRow]) -> TakeoverTable:
    if len(wire) > TAKEOVER_ROWS_MAX:
        raise InvalidArgument(f"the takeover table has {len(wire)} rows: at most {TAKEOVER_ROWS_MAX} are allowed")
    table = TakeoverTable(tuple(TakeoverRow(row.history_id, row.start_seq, row.epoch) for row in wire))
    for row in table.rows:
        check_numbers(start_seq=row.start_seq, epoch=row.epoch)
    if not table.is_sound():
        raise InvalidArgument("the takeover table is not sound: a history stands twice, or its rows do not ascend")
    return table


# Records and batches


def check_records(records: Sequence[bytes], *, after_seq: int, through_seq: int) -> None:
    """Stored forms whose sequences ascend in (`after_seq`, `through_seq`]; these come first in each."""
    if not records:
        return
    check_record_sizes(records)
    seqs = [stored[:8] for stored in records]
    follows = seqs[0] > SEQ.pack(after_seq) and seqs[-1] <= SEQ.pack(through_seq)
    if not follows or not all(map(lt, seqs, seqs[1:])):
        raise DamagedRecord(f"the sequences of {len(records)} records do not ascend in ({after_seq}, {through_seq}]")


def check_record_sizes(records: Sequence[bytes]) -> None:
    if records and min(map(len, records)) < _RECORD_BYTES_MIN:
        raise DamagedRecord(f"a record is shorter than {_RECORD_BYTES_MIN} bytes: it was cut")


def write_batch(wire: replication_pb2.Batch, batch: Batch) -> None:
    """In place: a message that is put into another one is copied, record by record."""
    wire.epoch = batch.epoch
    wire.previous_seq = batch.previous_seq
    wire.last_seq = batch.last_seq
    wire.timestamp_ms = batch.timestamp_ms
    wire.records.extend(batch.records)
    if batch.producers:
        write_producers(wire.producers, batch.producers)


def batch_from_wire(wire: replication_pb2.Batch) -> Batch:
    batch = Batch(
        wire.epoch,
        wire.previous_seq,
        wire.last_seq,
        wire.timestamp_ms,
        tuple(wire.records),
        producers_from_wire(wire.producers) if wire.HasField("producers") else (),
    )
    check_numbers(epoch=batch.epoch, last_seq=batch.last_seq, timestamp_ms=batch.timestamp_ms)
    if batch.previous_seq >= batch.last_seq:
        raise InvalidArgument(f"a batch follows {batch.previous_seq} and ends at {batch.last_seq}: it must add to it")
    check_records(batch.records, after_seq=batch.previous_seq, through_seq=batch.last_seq)
    return batch


# Producers


def write_producers(wire: replication_pb2.ProducerColumns, rows: Sequence[ProducerRow]) -> None:
    if not rows:
        return
    wire.producer_ids.extend([row.producer_id for row in rows])
    wire.producer_epochs.extend([row.producer_epoch for row in rows])
    wire.counts.extend([len(row.results) for row in rows])
    results = [result for row in rows for result in row.results]
    numbers, first_seqs, last_seqs, timestamps_ms = zip(*results, strict=True)
    wire.numbers.extend(numbers)
    wire.first_seqs.extend(first_seqs)
    wire.last_seqs.extend(last_seqs)
    wire.timestamps_ms.extend(timestamps_ms)


def producers_from_wire(wire: replication_pb2.ProducerColumns) -> tuple[ProducerRow, ...]:
    ids, epochs, counts = wire.producer_ids[:], wire.producer_epochs[:], wire.counts[:]
    _check_producers(ids, epochs, counts)
    numbers = wire.numbers[:]
    columns = (numbers, wire.first_seqs[:], wire.last_seqs[:], wire.timestamps_ms[:])
    _check_results(columns, sum(counts))
    results = tuple(map(ProducerResult._make, zip(*columns, strict=True)))
    rows = []
    at = 0
    for producer_id, epoch, count in zip(ids, epochs, counts, strict=True):
        end = at + count
        if not all(map(lt, numbers[at : end - 1], numbers[at + 1 : end])):
            raise InvalidArgument("a producer's results do not ascend")
        rows.append(ProducerRow(producer_id, epoch, results[at:end]))
        at = end
    return tuple(rows)


def _check_producers(ids: Sequence[bytes], epochs: Sequence[int], counts: Sequence[int]) -> None:
    if len(ids) > PRODUCERS_MAX or not len(ids) == len(epochs) == len(counts):
        raise InvalidArgument(f"{len(ids)} producers, {len(epochs)} epochs, {len(counts)} counts: they must agree")
    if counts and not 1 <= min(counts) <= max(counts) <= PRODUCER_RESULTS_KEPT:
        raise InvalidArgument(f"a producer has no result or more than {PRODUCER_RESULTS_KEPT}")
    if ids and not 1 <= len(min(ids, key=len)) <= len(max(ids, key=len)) <= PRODUCER_ID_BYTES_MAX:
        raise InvalidArgument(f"a producer's id has no byte or more than {PRODUCER_ID_BYTES_MAX}")


def _check_results(columns: tuple[Sequence[int], ...], count: int) -> None:
    numbers, first_seqs, last_seqs, timestamps_ms = columns
    if not count == len(numbers) == len(first_seqs) == len(last_seqs) == len(timestamps_ms):
        raise InvalidArgument("the columns of producers' results differ in length")
    if (count and max(map(max, columns)) > NUMBER_MAX) or not all(map(le, first_seqs, last_seqs)):
        raise InvalidArgument("a producer's result holds numbers that cannot be")


# Catching up


def write_piece(wire: replication_pb2.Piece, piece: CatchUpPiece) -> None:
    rows = piece.slice
    wire.history_id = piece.history_id
    wire.after_seq = rows.after_seq
    wire.through_seq = rows.through_seq
    wire.end_seq = rows.end_seq
    wire.complete = rows.complete
    wire.records.extend(rows.records)
    if piece.tables is not None:
        _write_tables(wire.tables, piece.tables)


def piece_from_wire(wire: replication_pb2.Piece) -> CatchUpPiece:
    rows = LogSlice(wire.after_seq, wire.through_seq, wire.end_seq, wire.complete, tuple(wire.records))
    check_numbers(end_seq=rows.end_seq)
    if not rows.after_seq <= rows.through_seq <= rows.end_seq:
        raise InvalidArgument(f"a slice of {rows.end_seq} covers ({rows.after_seq}, {rows.through_seq}]")
    if rows.complete != wire.HasField("tables") or (rows.complete and rows.through_seq != rows.end_seq):
        raise InvalidArgument("tables come with the slice that reaches the end, and only with it")
    check_records(rows.records, after_seq=rows.after_seq, through_seq=rows.through_seq)
    tables = _tables_from_wire(wire.tables) if rows.complete else None
    if tables is not None and tables.end_seq != rows.end_seq:
        raise InvalidArgument(f"the tables are those of {tables.end_seq}, the slice ends at {rows.end_seq}")
    return CatchUpPiece(check_history("history_id", wire.history_id), rows, tables)


def _write_tables(wire: replication_pb2.CatchUpTables, tables: CatchUpTables) -> None:
    for name in _TABLE_NUMBERS:
        setattr(wire, name, getattr(tables, name))
    wire.floors.SetInParent()
    for name in _FLOOR_NAMES:
        setattr(wire.floors, name, getattr(tables.floors, name))
    wire.takeover.extend(takeover_to_wire(tables.takeover))
    wire.consumers.extend([consumer for consumer, _ in tables.marks])
    wire.marks.extend([mark_to_wire(mark) for _, mark in tables.marks])
    write_producers(wire.producers, tables.producers)
    wire.pins.extend([replication_pb2.PinRow(pin=pin_to_wire(pin), ended_seq=pin.ended_seq) for pin in tables.pins])
    wire.retained.extend([row.record for row in tables.retained])
    wire.replaced_by.extend([row.replaced_by for row in tables.retained])


def _tables_from_wire(wire: replication_pb2.CatchUpTables) -> CatchUpTables:
    floors = {name: getattr(wire.floors, name) for name in _FLOOR_NAMES}
    numbers = {name: getattr(wire, name) for name in _TABLE_NUMBERS}
    check_numbers(**floors, **numbers)
    return CatchUpTables(
        **numbers,
        floors=Floors(**floors),
        takeover=takeover_from_wire(wire.takeover),
        marks=_marks_from_wire(wire),
        producers=producers_from_wire(wire.producers),
        pins=_pins_from_wire(wire.pins),
        retained=_retained_from_wire(wire),
    )


def _marks_from_wire(wire: replication_pb2.CatchUpTables) -> tuple[tuple[str, Mark], ...]:
    if len(wire.consumers) != len(wire.marks) or len(wire.marks) > MARKS_MAX:
        raise InvalidArgument(f"{len(wire.consumers)} consumers and {len(wire.marks)} marks: at most {MARKS_MAX}")
    marks = tuple(zip(wire.consumers, map(mark_from_wire, wire.marks), strict=True))
    for consumer, mark in marks:
        check_name("consumer", consumer)
        check_history("a mark's history_id", mark.history_id)
        check_numbers(seq=mark.seq, start_seq=mark.snapshot_start_seq, end_seq=mark.snapshot_end_seq)
    return marks


def _pins_from_wire(rows: Sequence[replication_pb2.PinRow]) -> tuple[Pin, ...]:
    if len(rows) > PINS_MAX + ENDED_PINS_KEPT:
        raise InvalidArgument(f"{len(rows)} pins: at most {PINS_MAX + ENDED_PINS_KEPT} are allowed")
    pins = []
    for row in rows:
        pin = replace(pin_from_wire(row.pin), ended_seq=row.ended_seq)
        check_name("pin", pin.pin_id)
        check_numbers(seq=pin.seq, created_ms=pin.created_ms, lease_ms=pin.lease_until_ms, ended_seq=pin.ended_seq)
        pins.append(pin)
    return tuple(pins)


def _retained_from_wire(wire: replication_pb2.CatchUpTables) -> tuple[RetainedRow, ...]:
    if len(wire.retained) != len(wire.replaced_by):
        raise InvalidArgument(f"{len(wire.retained)} retained records, {len(wire.replaced_by)} that replaced them")
    rows = tuple(map(RetainedRow, wire.retained, wire.replaced_by))
    check_record_sizes(wire.retained)
    for row in rows:
        if not SEQ.unpack_from(row.record)[0] < row.replaced_by <= wire.end_seq:
            raise InvalidArgument(f"a retained record was replaced by {row.replaced_by}, at or before itself")
    return rows
