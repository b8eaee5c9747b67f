"""What readers of a shard get: slices of a snapshot (`start_seq`, `end_seq`]."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Verified records in stored form, ascending, all of one committed state.

    They are every live record in (`after_seq`, `through_seq`]. `complete` says that nothing is left up to
    `end_seq`, the boundary: then `through_seq == end_seq`.
    """

    after_seq: int
    through_seq: int
    end_seq: int
    complete: bool
    records: tuple[bytes, ...]
