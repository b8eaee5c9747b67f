"""The takeover table: which history wrote which sequences, and which positions a reader may go on from."""

import pytest

from kayos.errors import KayosError, ResetRequired, RollbackRequired
from kayos.limits import TAKEOVER_ROWS_MAX
from kayos.model.takeover import TakeoverRow, TakeoverTable

A, B, C, D = (bytes([letter]) * 16 for letter in b"ABCD")


def table(*rows: tuple[bytes, int]) -> TakeoverTable:
    return TakeoverTable(tuple(TakeoverRow(history, start, epoch) for epoch, (history, start) in enumerate(rows, 1)))


def test_the_table_of_the_paper() -> None:
    """A first master at 0; after 3000 messages the node restarts and takes over again."""
    first = TakeoverTable().with_takeover(TakeoverRow(A, 0, 1))
    second = first.with_takeover(TakeoverRow(B, 3000, 2))
    assert second.rows == (TakeoverRow(A, 0, 1), TakeoverRow(B, 3000, 2))
    assert [second.find_history_at(seq) for seq in (1, 3000, 3001)] == [A, A, B]
    assert second.find_end(A, high_seq=3500) == 3000
    assert second.find_end(B, high_seq=3500) == 3500


def test_a_history_that_wrote_nothing_is_dropped_by_the_next() -> None:
    taken = table((A, 0), (B, 7)).with_takeover(TakeoverRow(C, 7, 3))
    assert [(row.history_id, row.start_seq) for row in taken.rows] == [(A, 0), (C, 7)]
    assert taken.is_sound()


def test_the_oldest_rows_go_when_the_table_is_full() -> None:
    full = TakeoverTable()
    for number in range(TAKEOVER_ROWS_MAX + 5):
        full = full.with_takeover(TakeoverRow(number.to_bytes(16, "big"), number, number))
    assert len(full.rows) == TAKEOVER_ROWS_MAX
    assert full.rows[0].start_seq == 5
    assert full.find_history_at(3) == b""
    assert full.is_sound()


POSITIONS = [
    # table, high, floor, history, seq, expected
    (table((A, 0)), 10, 0, A, 10, None),
    (table((A, 0)), 10, 0, b"", 0, None),
    (table((A, 0)), 10, 0, A, 12, None),  # merely ahead: the caller waits
    (table((A, 0)), 10, 5, A, 5, None),
    (table((A, 0)), 10, 5, A, 4, ResetRequired),
    (table((A, 0)), 10, 5, b"", 0, None),
    (table((A, 0), (B, 7)), 10, 0, A, 7, None),
    (table((A, 0), (B, 7)), 10, 0, A, 8, RollbackRequired),
    (table((A, 0), (B, 7)), 10, 0, B, 8, None),
    (table((A, 0), (B, 7), (C, 9)), 10, 0, B, 12, RollbackRequired),
    (table((A, 0), (B, 7), (C, 9)), 10, 0, A, 1, None),
    (table((A, 0)), 10, 0, D, 3, ResetRequired),
    (table((A, 0)), 10, 0, b"", 3, ResetRequired),
    (table((B, 7), (C, 9)), 10, 0, A, 3, ResetRequired),  # the table no longer reaches back
    (table(), 0, 0, A, 3, ResetRequired),
]


@pytest.mark.parametrize(("rows", "high_seq", "floor_seq", "history_id", "seq", "expected"), POSITIONS)
def test_positions(
    rows: TakeoverTable, high_seq: int, floor_seq: int, history_id: bytes, seq: int, expected: type[KayosError] | None
) -> None:
    def check() -> None:
        rows.check_position(history_id=history_id, seq=seq, high_seq=high_seq, floor_seq=floor_seq)

    if expected is None:
        check()
    else:
        with pytest.raises(expected):
            check()


def test_a_rollback_names_where_to() -> None:
    with pytest.raises(RollbackRequired) as caught:
        table((A, 0), (B, 7)).check_position(history_id=A, seq=9, high_seq=20, floor_seq=0)
    assert caught.value.seq == 7


@pytest.mark.parametrize(
    "rows",
    [table((A, 5), (B, 3)), table((A, 3), (B, 3)), table((A, 0), (A, 3)), table((b"short", 0))],
    ids=["falling", "equal starts", "one history twice", "short id"],
)
def test_unsound_tables_are_recognized(rows: TakeoverTable) -> None:
    assert not rows.is_sound()
