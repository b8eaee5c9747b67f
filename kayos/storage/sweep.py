"""Freeing the retained rows that no living pin needs, a bounded number at a time.

When a pin ends, the rows it alone needed are not searched for at once: that would hold up the writer. The
sweep walks the table in steps between commits and remembers where it stands; another end starts it over.
"""

from collections.abc import Mapping

from kayos.model.pin import Pin
from kayos.storage.changes import Changes
from kayos.storage.layout import unpack_retained


class Sweep:
    """`position` is the key to go on from; None when the table was seen to its end since the last pin ended."""

    def __init__(self) -> None:
        self.position: bytes | None = b""

    def pins_changed(self, before: Mapping[str, Pin], now: Mapping[str, Pin]) -> None:
        """When a pin ended, rows anywhere may have lost their last one: walk from the beginning."""
        living = {pin_id for pin_id, pin in now.items() if pin.is_alive}
        if any(pin.is_alive and pin_id not in living for pin_id, pin in before.items()):
            self.position = b""

    @property
    def is_done(self) -> bool:
        return self.position is None

    def step(self, changes: Changes, rows_max: int) -> bytes | None:
        """Look at `rows_max` rows, or drop all at once when no pin lives; the position once that is committed."""
        assert self.position is not None
        living = [pin.seq for pin in changes.pins.values() if pin.is_alive]
        if living:
            return _sweep_rows(changes, self.position, living, rows_max)
        changes.drop_all_retained()
        return None


def _sweep_rows(changes: Changes, start: bytes, living: list[int], rows_max: int) -> bytes | None:
    """Look at some retained rows; where to go on, or None when the table was seen to its end."""
    cursor = changes.txn.cursor(changes.tables.retained)
    found = cursor.set_range(start) if start else cursor.first()
    gone: list[tuple[bytes, bytes]] = []
    next_start: bytes | None = None
    if found:
        for index, (seq_key, row) in enumerate(cursor.iternext()):
            if index >= rows_max:
                next_start = seq_key
                break
            replaced_by, record = unpack_retained(seq_key, row)
            seq = int.from_bytes(record[:8], "big")
            if not any(seq <= pin_seq < replaced_by for pin_seq in living):
                gone.append((seq_key, row))
    for seq_key, row in gone:
        changes.drop_retained(seq_key, row)
    return next_start
