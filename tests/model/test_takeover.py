"""The takeover table: which history wrote which sequences, and which positions a reader may go on from."""

import pytest

from kayos.errors import KayosError, ResetRequired, RollbackRequired
from kayos.limits import TAKEOVER_ROWS_MAX
from kayos.model.takeover import TakeoverRow, TakeoverTable, find_divergence

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


def named(*rows: tuple[str, int]) -> TakeoverTable:
    return table(*((name.encode() * 16, start) for name, start in rows))


@pytest.mark.parametrize(
    ("upstream", "up_high", "downstream", "down_high", "point"),
    [
        # The same table: the shorter log is a prefix of the longer.
        (named(("a", 0)), 10, named(("a", 0)), 10, 10),
        (named(("a", 0)), 10, named(("a", 0)), 7, 7),
        (named(("a", 0)), 7, named(("a", 0)), 10, 7),
        # Nothing yet.
        (named(("a", 0)), 10, named(), 0, 0),
        (named(), 0, named(), 0, 0),
        # One is a prefix of the other.
        (named(("a", 0), ("b", 5)), 10, named(("a", 0)), 5, 5),
        (named(("a", 0), ("b", 5)), 10, named(("a", 0)), 3, 3),
        (named(("a", 0), ("b", 5)), 10, named(("a", 0)), 8, 5),
        (named(("a", 0)), 4, named(("a", 0), ("b", 5)), 9, 4),
        (named(("a", 0)), 9, named(("a", 0), ("b", 5)), 8, 5),
        # Both left the common history, at different places: the smaller end counts, whoever's it is.
        (named(("a", 0), ("b", 5)), 9, named(("a", 0), ("c", 3)), 9, 3),
        (named(("a", 0), ("b", 3)), 9, named(("a", 0), ("c", 5)), 9, 3),
        # … and at the same place.
        (named(("a", 0), ("b", 5)), 9, named(("a", 0), ("c", 5)), 9, 5),
        (named(("a", 0), ("b", 5)), 5, named(("a", 0), ("c", 5)), 5, 5),
        # Three and more rows: the newest common history decides.
        (named(("a", 0), ("b", 5), ("c", 9)), 12, named(("a", 0), ("b", 5), ("d", 8)), 11, 8),
        (named(("a", 0), ("b", 5), ("c", 9), ("d", 12)), 15, named(("a", 0), ("b", 5), ("c", 9)), 20, 12),
        (
            named(("a", 0), ("b", 5), ("c", 9), ("d", 12), ("e", 14)),
            20,
            named(("a", 0), ("b", 5), ("c", 9), ("d", 12), ("f", 13)),
            13,
            13,
        ),
        (named(("a", 0), ("b", 5), ("c", 9), ("d", 12), ("e", 14)), 20, named(("a", 0), ("x", 2)), 30, 2),
        (named(("a", 0), ("x", 2)), 30, named(("a", 0), ("b", 5), ("c", 9), ("d", 12), ("e", 14)), 20, 2),
        # Truncated tables: what is left of them is enough while something is common.
        (named(("c", 9), ("d", 12)), 15, named(("a", 0), ("b", 5), ("c", 9)), 11, 11),
        (named(("a", 0), ("b", 5), ("c", 9)), 11, named(("c", 9), ("d", 12)), 15, 11),
        (named(("d", 12), ("e", 14)), 20, named(("a", 0), ("b", 5)), 8, None),
        # No common history.
        (named(("a", 0)), 9, named(("b", 0)), 9, None),
        (named(), 0, named(("b", 0)), 9, None),
        (named(("a", 0), ("b", 4)), 9, named(("c", 0), ("d", 4)), 9, None),
        # A history that wrote nothing, on either side.
        (named(("a", 0), ("c", 15)), 15, named(("a", 0), ("b", 15)), 15, 15),
    ],
)
def test_where_two_histories_part(
    upstream: TakeoverTable, up_high: int, downstream: TakeoverTable, down_high: int, point: int | None
) -> None:
    assert find_divergence(upstream, downstream, up_high=up_high, down_high=down_high) == point
