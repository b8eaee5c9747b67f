"""The checker finds what it is there for: a sound history passes, and each one with a single fault is caught."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.history import Boundary, History, Outcome, PinnedRead, Sighting, Write, check

GROUP = (b"tx-1", b"tx-2")


def put(seq: int, key: bytes, write_id: bytes) -> Sighting:
    return Sighting(seq, key, write_id, is_delete=False)


def ack(number: int, one: Sighting, durability: int | str = "all", producer: str = "p") -> Write:
    return Write(
        producer, number, one.key, one.write_id, one.is_delete, durability, Outcome.ACKNOWLEDGED, one.seq, b"h1"
    )


OLD, NEW, OTHER = put(1, b"k", b"p/1"), put(4, b"k", b"p/3"), put(5, b"o", b"p/4")
FIRST, SECOND = put(2, b"tx-1", b"p/2"), put(3, b"tx-2", b"p/2")
FINAL = [FIRST, SECOND, NEW, OTHER]


def state_of(*sightings: Sighting) -> dict[bytes, Sighting]:
    return {one.key: one for one in sightings}


def make_history() -> History:
    """Two snapshots, a stream, a pin and a get of a log with one key overwritten and one transaction."""
    refused = Write("p", 6, b"k", b"p/5", False, "all", Outcome.REFUSED)
    return History(
        writes=[ack(1, OLD), ack(2, FIRST), ack(3, SECOND), ack(4, NEW), ack(5, OTHER), refused],
        boundaries={"c": [None, Boundary(0, 3, state_of(OLD, FIRST, SECOND)), Boundary(3, 5, state_of(*FINAL))]},
        streams={"m": [OLD, FIRST, SECOND, NEW, OTHER]},
        gets=[OLD, NEW],
        pins=[PinnedRead("pin", 3, (OLD, FIRST, SECOND))] * 2,
        marks={"c": [0, 3, 3, 5]},
        groups=[GROUP],
    )


def test_a_sound_history_passes() -> None:
    assert check(make_history(), FINAL) == []


def test_what_was_acknowledged_on_one_copy_may_be_gone_and_its_sequence_another_ones() -> None:
    history = make_history()
    history.note(ack(6, put(3, b"lost", b"q/6"), durability=1, producer="q"))
    assert check(history, FINAL) == []


def test_a_deleted_key_may_be_absent() -> None:
    history = make_history()
    tombstone = Sighting(6, b"o", b"p/7", is_delete=True)
    history.note(ack(7, tombstone))
    assert check(history, [FIRST, SECOND, NEW]) == []
    assert check(history, [FIRST, SECOND, NEW, tombstone]) == []


def lose(history: History) -> None:
    history.note(ack(7, put(6, b"gone", b"p/7")))


def lose_revision(history: History) -> None:
    history.note(ack(7, put(6, b"k", b"p/7")))


def lose_what_was_seen(history: History) -> None:
    history.note(replace(ack(7, put(6, b"gone", b"p/7")), outcome=Outcome.UNKNOWN, seq=0))
    history.gets.append(put(6, b"gone", b"p/7"))


def invent(history: History) -> None:
    history.gets.append(put(6, b"k", b"nobody"))


def show_refused(history: History) -> None:
    history.gets.append(put(6, b"k", b"p/5"))


def reorder_acknowledgements(history: History) -> None:
    history.note(ack(7, put(4, b"k", b"p/3")))


def reorder_stream(history: History) -> None:
    history.streams["m"] = [OLD, SECOND, FIRST, NEW, OTHER]


def reorder_gets(history: History) -> None:
    history.gets.append(OLD)


def double(history: History) -> None:
    history.gets.append(put(6, b"k", b"p/3"))


def fork(history: History) -> None:
    history.note(replace(ack(7, put(5, b"x", b"p/7")), outcome=Outcome.UNKNOWN))
    history.gets.append(put(5, b"x", b"p/7"))


def tear(history: History) -> None:
    history.boundaries["c"] = [None, Boundary(0, 2, state_of(OLD, FIRST))]


def tear_pin(history: History) -> None:
    history.pins = [PinnedRead("pin", 2, (OLD, FIRST))]


def miss_at_boundary(history: History) -> None:
    history.boundaries["c"][-1] = Boundary(3, 5, state_of(OLD, FIRST, SECOND, OTHER))


def skip(history: History) -> None:
    history.boundaries["c"][-1] = Boundary(4, 5, state_of(*FINAL))


def resume_elsewhere(history: History) -> None:
    history.boundaries["c"] += [None, Boundary(4, 5, state_of(*FINAL))]


def change_pin(history: History) -> None:
    history.pins[1] = PinnedRead("pin", 3, (FIRST, SECOND))


def move_mark_back(history: History) -> None:
    history.marks["c"] = [0, 3, 5, 3]


FAULTS: dict[Callable[[History], None], str] = {
    lose: "lost",
    lose_revision: "lost",
    lose_what_was_seen: "lost",
    invent: "phantom",
    show_refused: "phantom",
    reorder_acknowledgements: "reordered",
    reorder_stream: "reordered",
    reorder_gets: "reordered",
    double: "doubled",
    fork: "forked",
    tear: "torn",
    tear_pin: "torn",
    miss_at_boundary: "boundary",
    skip: "boundary",
    resume_elsewhere: "mark",
    change_pin: "boundary",
    move_mark_back: "mark",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_is_found(fault: Callable[[History], None]) -> None:
    history = make_history()
    fault(history)
    problems = check(history, FINAL)
    assert any(problem.startswith(FAULTS[fault]) for problem in problems), problems


def test_what_a_client_was_told_and_must_not_be_is_a_problem() -> None:
    history = make_history()
    history.note_trouble("c is told to roll back")
    assert check(history, FINAL) == ["c is told to roll back"]
