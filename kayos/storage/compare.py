"""The proof that two replicas' stores are equal at one boundary: `kayos check --compare`.

Both are proven sound first, then read side by side, row by row, never loaded. What is a copy's own is left out: epoch,
incarnation, commit point, and retained rows that no living pin needs. The key index, tombstones and expiry follow from
the log, which the check of each store has proven.

Copies that end at different sequences cannot be proven equal: rows that were replaced in between are gone. All that can
be told is whether the shorter one may be an earlier state of the longer: by their takeover tables, and because every
row of the longer at or below the shorter's end must stand in the shorter, too.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kayos.errors import KayosError
from kayos.model.pin import Pin
from kayos.model.takeover import TakeoverTable
from kayos.storage import generation
from kayos.storage.check import PROBLEMS_MAX, check_store, map_bytes_for
from kayos.storage.environment import Environment
from kayos.storage.layout import pack_seq, unpack_mark, unpack_pin, unpack_producer, unpack_retained
from kayos.storage.meta import Meta, read_meta
from kayos.storage.reader import decode_verified
from kayos.storage.transaction import Transaction

# A row as it is compared: its key, then what it says.
Row = tuple[bytes, object]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`is_prefix`: of copies with different ends, the shorter may be an earlier state of the longer."""

    high_seqs: tuple[int, int] = (0, 0)
    differences: tuple[str, ...] = ()
    is_prefix: bool = False

    @property
    def is_equal(self) -> bool:
        return not self.differences


class Side(NamedTuple):
    directory: Path
    env: Environment
    txn: Transaction
    meta: Meta

    @property
    def high_seq(self) -> int:
        return self.meta.state.high_seq


def compare_stores(one: Path, other: Path) -> Comparison:
    """Damage is reported, never raised."""
    damaged = [report for report in map(check_store, (one, other)) if not report.is_sound]
    if damaged:
        return Comparison(differences=tuple(f"{each.directory} is damaged: {each.problems[0]}" for each in damaged))
    try:
        with ExitStack() as stack:
            return _compare(_open(stack, one), _open(stack, other))
    except (KayosError, OSError) as error:
        return Comparison(differences=(str(error),))


def _open(stack: ExitStack, directory: Path) -> Side:
    path = generation.environment_path(directory, generation.read_current(directory))
    env = Environment(path, map_bytes_for(path))
    stack.callback(env.close)
    txn = stack.enter_context(env.reading())
    return Side(directory, env, txn, read_meta(txn, env))


def _compare(one: Side, other: Side) -> Comparison:
    ends = one.high_seq, other.high_seq
    hindrances = [f"{side.directory} is {side.meta.sync.phase}" for side in (one, other) if not side.meta.sync.is_ready]
    if one.meta.identity != other.meta.identity:
        hindrances.append("they belong to different shards, or topics")
    if hindrances:
        return Comparison(ends, tuple(hindrances))
    if one.high_seq != other.high_seq:
        behind, ahead = sorted((one, other), key=lambda side: side.high_seq)
        return _compare_ends(ends, behind, ahead)
    differences = (*_state_differences(one, other), *islice(_row_differences(one, other), PROBLEMS_MAX))
    return Comparison(ends, differences)


def _state_differences(one: Side, other: Side) -> Iterator[str]:
    for name in ("message_seq", "last_timestamp_ms", "floors"):
        values = getattr(one.meta.state, name), getattr(other.meta.state, name)
        if values[0] != values[1]:
            yield f"{name} differs: {values[0]} and {values[1]}"
    if one.meta.takeover != other.meta.takeover:
        yield "the takeover tables differ"


def _row_differences(one: Side, other: Side) -> Iterator[str]:
    for read, name in TABLES.items():
        for key, mine, theirs in _side_by_side(read(one), read(other)):
            if mine is None or theirs is None:
                holder = one if theirs is None else other
                yield f"{name(key)} stands in {holder.directory} only"
            elif mine != theirs:
                yield f"{name(key)} differs"


def _side_by_side(one: Iterator[Row], other: Iterator[Row]) -> Iterator[tuple[bytes, object, object]]:
    """Rows of two tables by key, None where one has it not."""
    mine, theirs = next(one, None), next(other, None)
    while mine is not None or theirs is not None:
        if theirs is None or (mine is not None and mine[0] < theirs[0]):
            assert mine is not None
            yield mine[0], mine[1], None
            mine = next(one, None)
        elif mine is None or theirs[0] < mine[0]:
            yield theirs[0], None, theirs[1]
            theirs = next(other, None)
        else:
            yield mine[0], mine[1], theirs[1]
            mine, theirs = next(one, None), next(other, None)


def _compare_ends(ends: tuple[int, int], behind: Side, ahead: Side) -> Comparison:
    doubts = tuple(islice(_prefix_doubts(behind, ahead), PROBLEMS_MAX))
    summary = (
        f"{behind.directory} ends at {behind.high_seq}, {ahead.directory} at {ahead.high_seq}: equality can only be "
        f"proven at one boundary; as far as rows can tell, the shorter is {'not ' * bool(doubts)}an earlier state of "
        "the longer"
    )
    return Comparison(ends, (summary, *doubts), is_prefix=not doubts)


def _prefix_doubts(behind: Side, ahead: Side) -> Iterator[str]:
    if _rows_through(behind.meta.takeover, behind.high_seq) != _rows_through(ahead.meta.takeover, behind.high_seq):
        yield f"their histories differ at or below {behind.high_seq}"
    last = pack_seq(behind.high_seq)
    for seq_key, stored in _read_log(ahead):
        if seq_key > last:
            return
        if behind.txn.get(seq_key, db=behind.env.tables.log) != stored:
            yield f"{_name_seq(seq_key)} stands in {ahead.directory} but not, or not so, in {behind.directory}"


def _rows_through(table: TakeoverTable, seq: int) -> list[bytes]:
    """The histories that wrote anything up to a sequence."""
    return [row.history_id for row in table.rows if row.start_seq < seq]


# The tables, each as its rows and the name of one


def _read_log(side: Side) -> Iterator[Row]:
    for seq_key, stored in side.txn.cursor(side.env.tables.log):
        decode_verified(seq_key, stored)
        yield seq_key, stored


def _read_marks(side: Side) -> Iterator[Row]:
    for key, row in side.txn.cursor(side.env.tables.marks):
        yield key, unpack_mark(key, row)


def _read_producers(side: Side) -> Iterator[Row]:
    for key, row in side.txn.cursor(side.env.tables.producers):
        yield key, unpack_producer(key, row)


def _read_pins(side: Side) -> Iterator[tuple[bytes, Pin]]:
    for key, row in side.txn.cursor(side.env.tables.pins):
        yield key, unpack_pin(key, row)


def _read_retained(side: Side) -> Iterator[Row]:
    living = [pack_seq(pin.seq) for _, pin in _read_pins(side) if pin.is_alive]
    for seq_key, row in side.txn.cursor(side.env.tables.retained):
        replaced_by, record = unpack_retained(seq_key, row)
        if any(seq_key <= pin_key < pack_seq(replaced_by) for pin_key in living):
            yield seq_key, (replaced_by, record)


def _name_seq(key: bytes) -> str:
    return f"sequence {int.from_bytes(key, 'big')}"


TABLES: dict[Callable[[Side], Iterator[Row]], Callable[[bytes], str]] = {
    _read_log: _name_seq,
    _read_marks: lambda key: f"the mark of {key.decode()!r}",
    _read_producers: lambda key: f"producer {key.hex()}",
    _read_pins: lambda key: f"pin {key.decode()!r}",
    _read_retained: lambda key: f"retained {_name_seq(key)}",
}
