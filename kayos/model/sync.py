"""Whether a copy is whole, and if not, what it has taken from whom."""

from dataclasses import dataclass
from enum import StrEnum


class SyncPhase(StrEnum):
    READY = "ready"
    CATCHING_UP = "catching_up"


@dataclass(frozen=True, slots=True)
class SyncState:
    """Whether the copy is whole; while it is not, it is neither readable nor promotable.

    During a catch-up everything in (`start_seq`, `through_seq`] was taken from the source, whose newest state
    used was at `end_seq`, written by `source_history`, and the first one at `first_end_seq`. What was taken makes sense
    only together with a source that holds exactly that state in its past: rows that the source had replaced by
    then were never sent.
    """

    phase: SyncPhase = SyncPhase.READY
    start_seq: int = 0
    through_seq: int = 0
    end_seq: int = 0
    first_end_seq: int = 0
    source_history: bytes = b""

    @property
    def is_ready(self) -> bool:
        return self.phase is SyncPhase.READY

    def misses_deletes(self, purge_seq: int) -> bool:
        """Whether the source purged a tombstone that this copy needed to see.

        Rows that the copy held at the start need the tombstones above it. A copy that began with nothing needs those
        that came after its first slice was read: a row of that slice may have been deleted and purged since."""
        return purge_seq > (self.start_seq or self.first_end_seq)


READY = SyncState()
