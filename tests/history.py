"""What producers and consumers of one shard did and saw, and the checker that finds what must never be.

Every write has an id of its own, which travels with it: a PUT's value, a tombstone's header. So whoever sees a message
knows which send it came from, and two sightings of one sequence can be held against each other. The members of a
transaction share one id.

    lost          an acknowledged `all` write, or something that a consumer was shown, is not in the log after healing
    phantom       a message that nobody wrote, or whose write was refused for certain
    reordered     a producer's acknowledgements or a consumer's messages do not ascend
    doubled       one send stands at two sequences
    torn          a boundary with a part of a transaction
    boundary      a consumer's state at a boundary is not the log's, or snapshots do not follow each other
    mark          a stored mark fell, or a consumer resumed where it had never been
    forked        one sequence showed two messages

The log forgets what was replaced, so its content at an earlier sequence is put together from everything that was
acknowledged by all or seen by anybody: whoever missed one of those shows an older revision than the others know.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise

from kayos.client.core.message import Message

ID_HEADER = "id"


class Outcome(Enum):
    ACKNOWLEDGED = auto()
    REFUSED = auto()  # certainly not written
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Write:
    """One message that a producer sent; `number` is its place among all that this producer sent."""

    producer: str
    number: int
    key: bytes
    write_id: bytes
    is_delete: bool
    durability: int | str
    outcome: Outcome
    seq: int = 0
    history_id: bytes = b""

    @property
    def is_promised(self) -> bool:
        """Every replica had it: it must survive."""
        return self.outcome is Outcome.ACKNOWLEDGED and self.durability == "all"


@dataclass(frozen=True, slots=True)
class Sighting:
    """One message as somebody saw it."""

    seq: int
    key: bytes
    write_id: bytes
    is_delete: bool


@dataclass(frozen=True, slots=True)
class Boundary:
    """What a snapshot consumer held when it had read (`start_seq`, `end_seq`]."""

    start_seq: int
    end_seq: int
    state: Mapping[bytes, Sighting]


@dataclass(frozen=True, slots=True)
class PinnedRead:
    """All that a pin showed."""

    pin_id: str
    seq: int
    rows: tuple[Sighting, ...]


def sighting_of(message: Message) -> Sighting:
    key = message.key or b""
    if message.value is None:
        return Sighting(message.seq, key, dict(message.headers).get(ID_HEADER, b""), True)
    return Sighting(message.seq, key, message.value, False)


@dataclass
class History:
    """Each list is appended to by its own thread and read by `check` at the end.

    `boundaries` and `streams` are by consumer; a restart of a consumer is a `None` in `boundaries`.
    """

    writes: list[Write] = field(default_factory=list)
    boundaries: dict[str, list[Boundary | None]] = field(default_factory=dict)
    streams: dict[str, list[Sighting]] = field(default_factory=dict)
    gets: list[Sighting] = field(default_factory=list)
    pins: list[PinnedRead] = field(default_factory=list)
    # Marks in the order in which they were certainly stored, or read back.
    marks: dict[str, list[int]] = field(default_factory=dict)
    # Keys that are only ever written together.
    groups: list[tuple[bytes, ...]] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, *writes: Write) -> None:
        with self._lock:
            self.writes += writes

    def note_trouble(self, trouble: str) -> None:
        """Something that a client of a healing cluster must never be told."""
        with self._lock:
            self.troubles.append(trouble)

    def count_acknowledged(self, durability: int | str = "all") -> int:
        with self._lock:
            return sum(
                write.outcome is Outcome.ACKNOWLEDGED and write.durability == durability for write in self.writes
            )

    def sightings(self) -> Iterable[Sighting]:
        for boundaries in self.boundaries.values():
            for boundary in boundaries:
                if boundary is not None:
                    yield from boundary.state.values()
        for stream in self.streams.values():
            yield from stream
        yield from self.gets
        for pin in self.pins:
            yield from pin.rows


def check(history: History, final: Sequence[Sighting]) -> list[str]:
    """What is wrong, in words; `final` are the log's messages after healing, read from the beginning."""
    return [*history.troubles, *Checker(history, final).run()]


class Checker:
    def __init__(self, history: History, final: Sequence[Sighting]) -> None:
        self._history = history
        self._final = {one.key: one for one in final}
        self._seen = sorted({*history.sightings(), *final}, key=lambda one: one.seq)
        self._problems: list[str] = []
        # What certainly stood in the log, by key and ascending.
        self._known: dict[bytes, list[Sighting]] = {}

    def run(self) -> list[str]:
        self._check_sightings()
        self._check_producers()
        self._gather_known()
        self._check_survival()
        self._check_boundaries()
        self._check_pins()
        self._check_streams()
        self._check_marks()
        return self._problems

    def _report(self, problem: str) -> None:
        self._problems.append(problem)

    # What was seen against what was sent

    def _check_sightings(self) -> None:
        sent = {(write.key, write.write_id, write.is_delete): write for write in self._history.writes}
        places: dict[tuple[bytes, bytes, bool], int] = {}
        at: dict[int, Sighting] = {}
        for one in self._seen:
            name = (one.key, one.write_id, one.is_delete)
            write = sent.get(name)
            if write is None:
                self._report(f"phantom: {one} was never sent")
            elif write.outcome is Outcome.REFUSED:
                self._report(f"phantom: {one} was refused")
            elif write.outcome is Outcome.ACKNOWLEDGED and write.seq != one.seq:
                self._report(f"doubled: {one} was acknowledged at {write.seq}")
            if places.setdefault(name, one.seq) != one.seq:
                self._report(f"doubled: {one} stands at {places[name]} too")
            if at.setdefault(one.seq, one) != one:
                self._report(f"forked: {one.seq} showed {one} and {at[one.seq]}")

    def _check_producers(self) -> None:
        last: dict[str, Write] = {}
        for write in sorted(self._history.writes, key=lambda write: write.number):
            if write.outcome is not Outcome.ACKNOWLEDGED:
                continue
            before = last.get(write.producer)
            last[write.producer] = write
            # A write on fewer copies may be lost, and its sequence given to another one by the next history.
            is_comparable = before is not None and (before.is_promised or before.history_id == write.history_id)
            if before is not None and is_comparable and before.seq >= write.seq:
                self._report(f"reordered: {write} was acknowledged after {before}")

    # The log at any sequence

    def _gather_known(self) -> None:
        promised = [
            Sighting(write.seq, write.key, write.write_id, write.is_delete)
            for write in self._history.writes
            if write.is_promised
        ]
        for one in sorted({*promised, *self._seen}, key=lambda one: one.seq):
            self._known.setdefault(one.key, []).append(one)

    def _find_newest(self, key: bytes, seq: int) -> Sighting | None:
        """The last revision at or below `seq` that anybody knows of."""
        rows = self._known.get(key, [])
        at = bisect_right(rows, seq, key=lambda one: one.seq)
        return rows[at - 1] if at else None

    def _check_state(self, what: str, state: Mapping[bytes, Sighting], seq: int) -> None:
        """A key whose newest revision is a tombstone may be absent: who begins at 0 need not hear of it."""
        for key in self._known:
            expected, found = self._find_newest(key, seq), state.get(key)
            if found == expected or (found is None and expected is not None and expected.is_delete):
                continue
            self._report(f"{what}: {key!r} at {seq} is {found}, but {expected} stood there")

    def _check_survival(self) -> None:
        end = max((one.seq for rows in self._known.values() for one in rows), default=0)
        self._check_state("lost", self._final, end)

    # Consumers

    def _check_boundaries(self) -> None:
        for consumer, boundaries in self._history.boundaries.items():
            ends = {0}
            position: int | None = None
            for boundary in boundaries:
                if boundary is None:
                    position = None
                    continue
                if boundary.start_seq != position and position is not None:
                    self._report(f"boundary: {consumer} stood at {position}, the next began at {boundary.start_seq}")
                if boundary.start_seq not in ends:
                    self._report(f"mark: {consumer} began at {boundary.start_seq}, where it never was")
                if boundary.end_seq <= boundary.start_seq:
                    self._report(f"boundary: {consumer} was given {boundary.start_seq} to {boundary.end_seq}")
                position = boundary.end_seq
                ends.add(position)
                self._check_state(f"boundary of {consumer}", boundary.state, position)
                self._check_groups(consumer, boundary.state, position)

    def _check_groups(self, who: str, state: Mapping[bytes, Sighting], seq: int) -> None:
        for keys in self._history.groups:
            found = {(one.write_id if one is not None and not one.is_delete else b"") for one in map(state.get, keys)}
            if len(found) > 1:
                self._report(f"torn: {who} at {seq} has {found} for one transaction")

    def _check_pins(self) -> None:
        first: dict[str, PinnedRead] = {}
        for read in self._history.pins:
            if first.setdefault(read.pin_id, read) != read:
                self._report(f"boundary: pin {read.pin_id} showed other rows than before")
            state = {one.key: one for one in read.rows}
            self._check_state(f"boundary of pin {read.pin_id}", state, read.seq)
            self._check_groups(f"pin {read.pin_id}", state, read.seq)

    def _check_streams(self) -> None:
        for consumer, stream in self._history.streams.items():
            for before, one in pairwise(stream):
                if before.seq >= one.seq:
                    self._report(f"reordered: {consumer} was given {one} after {before}")
        newest: dict[bytes, Sighting] = {}
        for one in self._history.gets:
            before = newest.setdefault(one.key, one)
            newest[one.key] = one
            if one.seq < before.seq:
                self._report(f"reordered: a get showed {one} after {before}")

    def _check_marks(self) -> None:
        for consumer, marks in self._history.marks.items():
            for before, after in pairwise(marks):
                if after < before:
                    self._report(f"mark: that of {consumer} fell from {before} to {after}")
