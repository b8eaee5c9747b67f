"""The in-memory twin's tables, and what each record does to them.

Every effect is here, once: the head's commit and a replica's apply both end in `append`. Plain on purpose:
what must be found is looked for among all rows, since the twin exists to be believed.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kayos.limits import ENDED_PINS_KEPT
from kayos.model.catch_up import RetainedRow
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
from kayos.model.mark import Mark
from kayos.model.pin import Pin
from kayos.model.producer import ProducerRow
from kayos.model.record import Kind, Record
from kayos.model.topic import Mode
from kayos.storage.control_codec import decode_control

Removal = Purge | Trim | Expire
# Compared with every record's kind, so it is a plain number.
CONTROL = int(Kind.CONTROL)


class Row(NamedTuple):
    stored: bytes
    record: Record


@dataclass(slots=True)
class Tables:
    """`order` holds the log's sequences, ascending. `keys` is empty in mode `log`."""

    mode: Mode
    log: dict[int, Row] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    keys: dict[bytes, int] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    producers: dict[bytes, ProducerRow] = field(default_factory=dict)
    pins: dict[str, Pin] = field(default_factory=dict)
    retained: dict[int, RetainedRow] = field(default_factory=dict)
    floors: Floors = field(default_factory=Floors)

    def copy(self) -> "Tables":
        return Tables(
            self.mode,
            self.log.copy(),
            self.order.copy(),
            self.keys.copy(),
            self.marks.copy(),
            self.producers.copy(),
            self.pins.copy(),
            self.retained.copy(),
            self.floors,
        )

    def find_row(self, key: bytes) -> Row | None:
        """The live row of a key, a tombstone included."""
        seq = self.keys.get(key)
        return None if seq is None else self.log[seq]

    def living_pins(self) -> list[Pin]:
        return [pin for pin in self.pins.values() if pin.is_alive]

    def is_needed(self, seq: int, *, replaced_by: int) -> bool:
        """Whether a living pin shows the row that stood at `seq` until `replaced_by`."""
        return bool(self.pins) and any(seq <= pin.seq < replaced_by for pin in self.living_pins())

    def append(self, row: Row) -> None:
        """What one record does, on the head and on every replica alike."""
        record = row.record
        if record.kind == CONTROL:
            self._perform(decode_control(record.value), seq=record.seq, timestamp_ms=record.timestamp_ms)
            return
        if self.mode is Mode.COMPACT and record.key:
            older = self.find_row(record.key)
            if older is not None:
                self.remove(older, replaced_by=record.seq)
        self.insert(row)

    def insert(self, row: Row) -> None:
        """Rows arrive in ascending order, always, so that `order` grows at its end."""
        record = row.record
        assert not self.order or self.order[-1] < record.seq
        self.log[record.seq] = row
        self.order.append(record.seq)
        if self.mode is Mode.COMPACT and record.key:
            self.keys[record.key] = record.seq

    def restore(self, row: Row) -> None:
        """Put a row back below the log's end."""
        record = row.record
        self.log[record.seq] = row
        self.log = dict(sorted(self.log.items()))
        insort(self.order, record.seq)
        self.keys[record.key] = record.seq

    def remove(self, row: Row, *, replaced_by: int | None) -> None:
        """Take a row out of the log; `replaced_by` None keeps nothing for pins."""
        seq = row.record.seq
        del self.log[seq]
        del self.order[bisect_left(self.order, seq)]
        if self.keys.get(row.record.key) == seq:
            del self.keys[row.record.key]
        if replaced_by is not None and self.is_needed(seq, replaced_by=replaced_by):
            self.retained[seq] = RetainedRow(row.stored, replaced_by)

    def remove_below(self, floors: Floors, *, replaced_by: int | None) -> None:
        for row in [row for row in self.log.values() if is_removed(self.mode, floors, row.record)]:
            self.remove(row, replaced_by=replaced_by)

    def find_past(self, floors: Floors) -> Iterator[Row]:
        """Live keyed messages past their time, ascending; the head turns them into tombstones."""
        for row in self.log.values():
            if row.record.key and row.record.kind == Kind.PUT and is_past(floors, row.record):
                yield row

    def drop_unneeded_retained(self) -> None:
        self.retained = {
            seq: row for seq, row in self.retained.items() if self.is_needed(seq, replaced_by=row.replaced_by)
        }

    def _perform(self, control: Control, *, seq: int, timestamp_ms: int) -> None:
        match control:
            case CommitMark():
                self.marks[control.consumer] = control.mark
            case DropMark():
                del self.marks[control.consumer]
            case CreatePin():
                self.pins[control.pin_id] = Pin(control.pin_id, seq, timestamp_ms, timestamp_ms + control.lease_ms)
            case RenewPin():
                pin = self.pins[control.pin_id]
                self.pins[control.pin_id] = replace(pin, lease_until_ms=timestamp_ms + control.lease_ms)
            case EndPin():
                self._end_pin(control, seq)
            case Purge() | Trim() | Expire():
                removed = floors_of(control)
                self.remove_below(removed, replaced_by=seq)
                self.floors = merge_floors(self.floors, replace(removed, removal_seq=seq))
            case ForgetProducers():
                forgotten = [row for row in self.producers.values() if row.last.last_seq <= control.through_seq]
                for row in forgotten:
                    del self.producers[row.producer_id]

    def _end_pin(self, control: EndPin, seq: int) -> None:
        self.pins[control.pin_id] = replace(self.pins[control.pin_id], ended=control.reason, ended_seq=seq)
        ended = sorted((pin for pin in self.pins.values() if not pin.is_alive), key=lambda pin: pin.ended_seq)
        for pin in ended[:-ENDED_PINS_KEPT]:
            del self.pins[pin.pin_id]
        self.drop_unneeded_retained()


def floors_of(control: Removal) -> Floors:
    """What a control removes, said as floors."""
    match control:
        case Purge():
            return Floors(purge_seq=control.through_seq)
        case Trim():
            return Floors(trim_seq=control.through_seq)
        case Expire():
            return Floors(
                aged_seq=control.aged_seq, expired_ms=control.through_ms, expired_seq=control.through_expiry_seq
            )


def merge_floors(one: Floors, other: Floors) -> Floors:
    expired_ms, expired_seq = max((one.expired_ms, one.expired_seq), (other.expired_ms, other.expired_seq))
    return Floors(
        purge_seq=max(one.purge_seq, other.purge_seq),
        trim_seq=max(one.trim_seq, other.trim_seq),
        aged_seq=max(one.aged_seq, other.aged_seq),
        expired_ms=expired_ms,
        expired_seq=expired_seq,
        removal_seq=max(one.removal_seq, other.removal_seq),
    )


def is_past(floors: Floors, record: Record) -> bool:
    """Whether a message is aged or expired."""
    if record.seq <= floors.aged_seq:
        return True
    expiry = (record.expires_at_ms, record.seq)
    return record.expires_at_ms > 0 and expiry <= (floors.expired_ms, floors.expired_seq)


def is_removed(mode: Mode, floors: Floors, record: Record) -> bool:
    """Whether a control with these floors takes the record out of the log, without a trace for readers."""
    is_put = record.kind == Kind.PUT
    if mode is Mode.LOG:
        return record.seq <= floors.trim_seq or (is_put and is_past(floors, record))
    if is_put:
        return not record.key and is_past(floors, record)
    return record.seq <= floors.purge_seq
