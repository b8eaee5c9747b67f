"""A writer's story that can be checked from any point: the whole content follows from the last number.

Transaction `n` is request number `n` of one idempotent producer. It sets four keys to `n` (so a state in which
they differ holds half a transaction), one key with a value that may fill pages, one key that is deleted every
third time, and adds two unkeyed messages, which stay for ever (so a request that was stored twice, or lost,
shows). Groups also create, renew and end pins, move a mark and purge, and the store is compacted under way.

Before each group the writer tells its intent, afterwards that it was acknowledged. After a crash the store must
be at the last acknowledged group, or at the intended one.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kayos.model.control import CommitMark, Control, CreatePin, EndPin, Purge, RenewPin
from kayos.model.mark import Mark
from kayos.model.producer import ProducerStamp
from kayos.model.record import Kind, verify_and_decode
from kayos.model.takeover import TakeoverRow
from kayos.model.write import ControlRequest, Request, WriteRequest, WriteResult
from kayos.storage.compaction import Compaction
from kayos.storage.interface import Store
from kayos.storage.lmdb_store import LmdbStore, StoreOptions

from .helpers import COMPACT, EVERYTHING

PRODUCER = b"writer"
TOGETHER = [b"t0", b"t1", b"t2", b"t3"]
WIDE_KEYS = 7
DELETED_KEYS = 5
OPTIONS = StoreOptions(map_bytes=1 << 28)


@dataclass(frozen=True)
class Point:
    """Where the story stands after a group."""

    number: int = 0
    pins: tuple[str, ...] = ()
    mark_seq: int = 0

    def as_line(self, word: str) -> str:
        return f"{word} {self.number} {self.mark_seq} {','.join(self.pins)}\n"


def parse_line(line: str) -> tuple[str, Point]:
    word, number, mark_seq, pins = line.rstrip("\n").split(" ")
    return word, Point(int(number), tuple(pins.split(",")) if pins else (), int(mark_seq))


def transaction(number: int) -> WriteRequest:
    text = str(number).encode()
    keys = [*TOGETHER, b"w%d" % (number % WIDE_KEYS), b"d%d" % (number % DELETED_KEYS), b"", b""]
    values = [text] * 4 + [text + b"." * (number * 997 % 9000), text, text + b":0", text + b":1"]
    kinds = bytearray([Kind.PUT] * len(keys))
    if number % 3 == 0:
        kinds[5], values[5] = Kind.DELETE, b""
    return WriteRequest(keys, values, bytes(kinds), producer=ProducerStamp(PRODUCER, 1, number))


def expected_content(number: int) -> dict[bytes, bytes]:
    """The live messages after transaction `number`; unkeyed ones stand under their value."""
    content: dict[bytes, bytes] = {}
    for each in range(1, number + 1):
        request = transaction(each)
        for key, value, kind in zip(request.keys, request.values, request.kinds, strict=True):
            if kind == Kind.DELETE:
                content.pop(key, None)
            else:
                content[key or b"unkeyed " + value] = value
    return content


def found_content(records: tuple[bytes, ...]) -> dict[bytes, bytes]:
    content: dict[bytes, bytes] = {}
    for stored in records:
        record = verify_and_decode(stored)
        if record.kind == Kind.PUT:
            name = record.key or b"unkeyed " + record.value
            assert name not in content, f"{name!r} stands twice"
            content[name] = record.value
    return content


def find_number(store: Store) -> int:
    row = store.find_producer(PRODUCER)
    return 0 if row is None else row.last.number


def point_of(store: Store) -> Point:
    mark = store.find_mark("consumer")
    pins = tuple(pin.pin_id for pin in store.list_pins() if pin.is_alive)
    return Point(find_number(store), pins, 0 if mark is None else mark.seq)


def check_story(store: Store, acknowledged: Point, intended: Point) -> None:
    """The store stands at one of the two points, whole, and its pins at points of their own."""
    point = point_of(store)
    assert point in (acknowledged, intended)
    rows = store.read_log(0, bytes_max=EVERYTHING).records
    assert found_content(rows) == expected_content(point.number)
    for pin_id in point.pins:
        snapshot = found_content(store.read_pin(pin_id, 0, bytes_max=EVERYTHING).records)
        assert snapshot == expected_content(int(snapshot.get(b"t0", b"0")))
    for key in TOGETHER[: point.number]:
        record = store.get(key)
        assert record is not None
        assert record.value == str(point.number).encode()


def send_again(store: Store, acknowledged: Point) -> None:
    """The retry of what was not acknowledged is stored once, whether it had been written or not."""
    if not store.state.takeover.rows:
        store.take_over(TakeoverRow(random.randbytes(16), store.state.high_seq, store.state.epoch + 1))
    before = find_number(store)
    number = acknowledged.number + 1
    (answer,) = store.commit([transaction(number)], now_ms=0).answers
    assert isinstance(answer, WriteResult)
    assert answer.duplicate == (number <= before)
    after = max(before, number)
    assert found_content(store.read_log(0, bytes_max=EVERYTHING).records) == expected_content(after)


class Writer:
    """Writes the story into a store, from wherever it stands, and tells of each group."""

    def __init__(self, directory: Path, seed: int, tell: Callable[[str], None]) -> None:
        self.random = random.Random(seed)
        self.tell = tell
        self.store = LmdbStore.open(directory, COMPACT, OPTIONS)
        self.point = point_of(self.store)
        self.now_ms = self.store.state.last_timestamp_ms
        state = self.store.state
        self.store.take_over(TakeoverRow(self.random.randbytes(16), state.high_seq, state.epoch + 1))
        self.pins_made = 0
        self.seed = seed

    def write(self, groups: int) -> None:
        for _ in range(groups):
            if self.random.random() < 0.1:
                compaction = Compaction(self.store)
                compaction.prepare()
                self.write_group()
                compaction.swap()
            elif self.random.random() < 0.2:
                self.store.sweep_retained(100)
            self.write_group()
        self.store.close()

    def write_group(self) -> None:
        requests: list[Request] = []
        number, pins, mark_seq = self.point.number, list(self.point.pins), self.point.mark_seq
        for _ in range(self.random.randint(1, 3)):
            number += 1
            requests.append(transaction(number))
            if self.random.random() < 0.4:
                control = self.random.choice([self.pin, self.pin, self.mark, self.purge])(pins)
                requests.append(ControlRequest(control))
                if isinstance(control, CommitMark):
                    mark_seq = control.mark.seq
        self.point = Point(number, tuple(sorted(pins)), mark_seq)
        self.tell(self.point.as_line("intent"))
        self.now_ms += 1
        result = self.store.commit(requests, now_ms=self.now_ms)
        assert all(isinstance(answer, WriteResult) for answer in result.answers), result.answers
        self.tell(self.point.as_line("acknowledged"))

    def pin(self, pins: list[str]) -> Control:
        if len(pins) < 3:
            self.pins_made += 1
            pins.append(f"p{self.seed}-{self.pins_made}")
            return CreatePin(pins[-1], 1000)
        if self.random.random() < 0.3:
            return RenewPin(pins[0], 2000)
        return EndPin(pins.pop(self.random.randrange(len(pins))), "released")

    def mark(self, pins: list[str]) -> Control:
        state = self.store.state
        return CommitMark("consumer", Mark(state.takeover.find_history_at(state.high_seq), state.high_seq))

    def purge(self, pins: list[str]) -> Control:
        return Purge(self.random.randint(0, self.store.state.high_seq))


def read_points(lines: Iterator[str] | list[str], begun: Point) -> tuple[Point, Point]:
    """(last acknowledged, last intended) of what a writer told; `begun` is where it started."""
    acknowledged = intended = begun
    for line in lines:
        word, point = parse_line(line)
        if word == "intent":
            intended = point
        else:
            acknowledged = intended = point
    return acknowledged, intended
