"""The newest batches of a log, in memory: what a downstream that was away for a moment is served from.

Batches chain up: each follows the one before it. Bounded in bytes, but what is not fsynced here yet stays, because
the store cannot serve it; that part is bounded by the writer's queue.
"""

from kayos.limits import WINDOW_BYTES_MAX, WINDOW_COUNT_MAX
from kayos.model.write import Batch


class Window:
    """`start_seq` is the sequence that the oldest batch follows, `end_seq` the last one of the newest."""

    __slots__ = ("_batches", "_size", "end_seq", "start_seq")

    def __init__(self, seq: int) -> None:
        self.start_seq = seq
        self.end_seq = seq
        self._batches: dict[int, tuple[Batch, int]] = {}
        self._size = 0

    def restart(self, seq: int) -> None:
        """The log changed by something else than a batch: what was kept does not lead to it."""
        self.start_seq = self.end_seq = seq
        self._batches.clear()
        self._size = 0

    def add(self, batch: Batch, *, durable_seq: int) -> None:
        assert batch.previous_seq == self.end_seq
        size = batch.size
        self._batches[batch.previous_seq] = (batch, size)
        self._size += size
        self.end_seq = batch.last_seq
        if self._size > WINDOW_BYTES_MAX or len(self._batches) > WINDOW_COUNT_MAX:
            self._shrink(durable_seq)

    def reaches(self, seq: int) -> bool:
        """Whether a downstream at `seq` can go on from here."""
        return seq == self.end_seq or seq in self._batches

    def find_after(self, seq: int) -> tuple[Batch, int] | None:
        """The batch that follows `seq`, with its size."""
        return self._batches.get(seq)

    def _shrink(self, durable_seq: int) -> None:
        while self._size > WINDOW_BYTES_MAX or len(self._batches) > WINDOW_COUNT_MAX:
            batch, size = self._batches[self.start_seq]
            if batch.last_seq > durable_seq:
                return
            del self._batches[self.start_seq]
            self._size -= size
            self.start_seq = batch.last_seq
