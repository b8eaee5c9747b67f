"""The takeover table: which head wrote which run of sequences.

A row says that from `start_seq` (exclusive) on, `history_id` wrote, until the next row's `start_seq`
(inclusive) or, for the last row, until now. Rows are sorted by `start_seq`, strictly ascending, and every
history stands once. A history that wrote nothing is dropped when the next one begins, since no sequence
and so no mark can belong to it.
"""

from dataclasses import dataclass

from kayos.errors import ResetRequired, RollbackRequired
from kayos.limits import TAKEOVER_ROWS_MAX

HISTORY_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class TakeoverRow:
    history_id: bytes
    start_seq: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TakeoverTable:
    rows: tuple[TakeoverRow, ...] = ()

    @property
    def current_history_id(self) -> bytes:
        return self.rows[-1].history_id if self.rows else b""

    def with_takeover(self, row: TakeoverRow) -> "TakeoverTable":
        """The table after a new head took over; the oldest rows go when it is full."""
        kept = tuple(old for old in self.rows if old.start_seq < row.start_seq)
        return TakeoverTable((*kept, row)[-TAKEOVER_ROWS_MAX:])

    def find_history_at(self, seq: int) -> bytes:
        """The history that wrote `seq`; empty when the table no longer reaches back that far."""
        for row in reversed(self.rows):
            if row.start_seq < seq:
                return row.history_id
        return b""

    def find_end(self, history_id: bytes, *, high_seq: int) -> int | None:
        """The last sequence of a history, or None when the table does not know it."""
        for index, row in enumerate(self.rows):
            if row.history_id == history_id:
                is_last = index + 1 == len(self.rows)
                return high_seq if is_last else self.rows[index + 1].start_seq
        return None

    def is_sound(self) -> bool:
        starts = [row.start_seq for row in self.rows]
        histories = {row.history_id for row in self.rows}
        return (
            starts == sorted(set(starts))
            and len(histories) == len(self.rows)
            and all(len(row.history_id) == HISTORY_ID_BYTES for row in self.rows)
        )

    def check_position(self, *, history_id: bytes, seq: int, high_seq: int, floor_seq: int) -> None:
        """Refuse a reader's position that this log cannot continue.

        Position 0 always continues. `floor_seq` is the sequence at or below which deletes or messages are
        gone for good. A position above an open history's end is merely ahead: the caller waits.
        """
        if seq == 0:
            return
        if seq < floor_seq:
            raise ResetRequired(
                f"sequence {seq} is below {floor_seq}, up to which records were removed: "
                "drop what you hold and read from 0",
                purge_seq=floor_seq,
            )
        end = self.find_end(history_id, high_seq=max(high_seq, seq))
        if end is None:
            raise ResetRequired(
                f"history {history_id.hex() or '(none)'} of sequence {seq} is not known here: "
                "drop what you hold and read from 0",
                purge_seq=floor_seq,
            )
        if end < seq:
            raise RollbackRequired(
                f"the history of sequence {seq} ended at {end}: undo what came after {end} and read on from it",
                seq=end,
            )


def find_divergence(upstream: TakeoverTable, downstream: TakeoverTable, *, up_high: int, down_high: int) -> int | None:
    """The last sequence that two logs share, by their tables; None when they have no history in common.

    The newest common history ends somewhere in each table (an open one at that log's high sequence), and the smaller
    end is the point. One table is not enough: the downstream may have left the history before the upstream did.
    """
    if not down_high:
        return 0
    for row in reversed(downstream.rows):
        up_end = upstream.find_end(row.history_id, high_seq=up_high)
        if up_end is not None:
            down_end = downstream.find_end(row.history_id, high_seq=down_high)
            assert down_end is not None
            return min(up_end, down_end)
    return None
