"""The newest batches in memory: they chain up, they are bounded, and what is not fsynced stays."""

import pytest

from kayos.model.write import Batch
from kayos.stream import window as window_module
from kayos.stream.window import Window


def batch(previous_seq: int, last_seq: int, size: int = 10) -> Batch:
    return Batch(1, previous_seq, last_seq, 1, (bytes(size),))


def filled(*ends: int, start: int = 0, durable_seq: int = 1_000_000, size: int = 10) -> Window:
    window, previous = Window(start), start
    for end in ends:
        window.add(batch(previous, end, size), durable_seq=durable_seq)
        previous = end
    return window


def test_an_empty_one_reaches_its_end_only() -> None:
    window = Window(5)
    assert (window.start_seq, window.end_seq) == (5, 5)
    assert [seq for seq in range(10) if window.reaches(seq)] == [5]
    assert window.find_after(5) is None


def test_it_reaches_where_a_batch_begins_and_nowhere_in_between() -> None:
    window = filled(3, 4, 9)
    assert [seq for seq in range(12) if window.reaches(seq)] == [0, 3, 4, 9]
    assert window.find_after(3) == (batch(3, 4), 10)
    assert window.find_after(5) is None
    assert window.find_after(9) is None


def test_a_batch_that_does_not_follow_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        filled(3).add(batch(4, 5), durable_seq=0)


def test_a_restart_forgets_what_does_not_lead_here() -> None:
    window = filled(3, 4, 9)
    window.restart(7)
    assert [seq for seq in range(12) if window.reaches(seq)] == [7]
    window.add(batch(7, 8), durable_seq=7)
    assert window.find_after(7) is not None


def test_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_module, "WINDOW_BYTES_MAX", 35)
    window = filled(1, 2, 3, 4, 5)
    assert (window.start_seq, window.end_seq) == (2, 5)
    assert not window.reaches(1) and window.find_after(1) is None
    # One batch that is larger than everything leaves nothing, and the window goes on.
    window.add(batch(5, 6, size=100), durable_seq=6)
    assert (window.start_seq, window.end_seq) == (6, 6)
    window.add(batch(6, 7), durable_seq=7)
    assert window.find_after(6) == (batch(6, 7), 10)


def test_the_count_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_module, "WINDOW_COUNT_MAX", 3)
    window = filled(1, 2, 3, 4, 5, size=0)
    assert [seq for seq in range(7) if window.reaches(seq)] == [2, 3, 4, 5]


def test_what_is_not_fsynced_stays_because_the_store_cannot_serve_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_module, "WINDOW_BYTES_MAX", 35)
    window = filled(1, 2, 3, 4, 5, durable_seq=1)
    assert window.start_seq == 1
    window.add(batch(5, 6), durable_seq=4)
    assert (window.start_seq, window.end_seq) == (3, 6)
