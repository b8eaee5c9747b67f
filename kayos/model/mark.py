"""A consumer's high-water mark: what it has applied, and in whose history that stands."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """`snapshot_start_seq` and `snapshot_end_seq` name the snapshot that `seq` lies in.

    A mark at a boundary has `seq == snapshot_end_seq`. Sequence 0 is the beginning, in any history.
    """

    history_id: bytes
    seq: int
    snapshot_start_seq: int = 0
    snapshot_end_seq: int = 0


BEGINNING = Mark(b"", 0)
