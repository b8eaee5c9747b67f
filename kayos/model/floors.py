"""What was removed for good, as numbers that never fall."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Floors:
    """What was removed for good; none of these ever falls.

    `removal_seq` is the sequence of the last control record that removed messages: a replica that
    diverged below it cannot be rolled back row by row, because rows below the divergence point are gone.
    """

    purge_seq: int = 0
    trim_seq: int = 0
    aged_seq: int = 0
    expired_ms: int = 0
    expired_seq: int = 0
    removal_seq: int = 0

    @property
    def reader_seq(self) -> int:
        """A reader that starts below this (and not at 0) may have missed a delete or a message."""
        return max(self.purge_seq, self.trim_seq)
