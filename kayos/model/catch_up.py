"""What travels when one copy is brought to another's state by rows instead of batches.

A catch-up comes in pieces, ascending; the last one carries every table beside the log, of the same committed state
as its rows. A rollback first asks for the records that were overwritten by what must be undone.
"""

from dataclasses import dataclass

from kayos.model.floors import Floors
from kayos.model.mark import Mark
from kayos.model.pin import Pin
from kayos.model.producer import ProducerRow
from kayos.model.snapshot import LogSlice
from kayos.model.takeover import TakeoverTable


@dataclass(frozen=True, slots=True)
class RetainedRow:
    record: bytes
    replaced_by: int


@dataclass(frozen=True, slots=True)
class CatchUpTables:
    """What ends a catch-up: every table beside the log at `end_seq`.

    `retained` holds the rows that were replaced above `retained_from_seq`; those before are there already. From 0 it
    is all of them.
    """

    retained_from_seq: int
    end_seq: int
    message_seq: int
    last_timestamp_ms: int
    epoch: int
    floors: Floors
    takeover: TakeoverTable
    marks: tuple[tuple[str, Mark], ...]
    producers: tuple[ProducerRow, ...]
    pins: tuple[Pin, ...]
    retained: tuple[RetainedRow, ...]


@dataclass(frozen=True, slots=True)
class CatchUpPiece:
    """A slice of the source's log, read at one committed state that `history_id` wrote; `tables` is there when the
    slice is complete, and of that same state."""

    history_id: bytes
    slice: LogSlice
    tables: CatchUpTables | None = None


@dataclass(frozen=True, slots=True)
class Restorable:
    """The upstream's answer for the first `answered` of the keys asked for, read at the state `end_seq` that
    `history_id` wrote: the live records among them that stand at or below the divergence point, in stored form."""

    history_id: bytes
    end_seq: int
    answered: int
    records: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Rollback:
    """Everything that takes a copy back to `to_seq` in one step: all above it goes, `records` come back. The source
    of the records is named, because only a copy that holds that state can continue."""

    to_seq: int
    records: tuple[bytes, ...]
    history_id: bytes
    end_seq: int
