"""From stored records to columns on the wire: the blocking half of every reader, run in the read pool.

Encoding happens in the same job as the read, so that the event loop never spends time on a batch.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from kayos.server.reads import Reads
from kayos.storage.interface import Store
from kayos.wire.codec import columns_from_records


@dataclass(frozen=True, slots=True)
class Columns:
    """Some messages of a snapshot, encoded; all of it up to `through_seq` was read."""

    encoded: bytes
    count: int
    through_seq: int
    complete: bool


@dataclass(frozen=True, slots=True)
class CopiedSnapshot:
    """A whole snapshot in memory; when `complete` is False it was too large and `chunks` is empty."""

    end_seq: int
    complete: bool
    count: int
    chunks: tuple[bytes, ...]

    @property
    def size(self) -> int:
        return sum(map(len, self.chunks))


def copy_snapshot(store: Reads, after_seq: int, *, bytes_max: int, chunk_bytes: int) -> CopiedSnapshot:
    """All above `after_seq` in one read transaction, if it fits."""
    found = store.read_log(after_seq, bytes_max=bytes_max)
    if not found.complete:
        return CopiedSnapshot(found.end_seq, complete=False, count=0, chunks=())
    chunks = tuple(columns_from_records(part) for part in split_by_bytes(found.records, chunk_bytes))
    return CopiedSnapshot(found.end_seq, complete=True, count=len(found.records), chunks=chunks)


def read_pinned(
    store: Store, pin_id: str, after_seq: int, *, end_seq: int, chunk_bytes: int, tombstones: bool
) -> Columns:
    """The next piece of a pinned snapshot."""
    found = store.read_pin(pin_id, after_seq, bytes_max=chunk_bytes, end_seq=end_seq, tombstones=tombstones)
    encoded = columns_from_records(found.records) if found.records else b""
    return Columns(encoded, len(found.records), found.through_seq, found.complete)


def split_by_bytes(records: Sequence[bytes], bytes_max: int) -> Iterator[Sequence[bytes]]:
    """Runs of records of at most `bytes_max` each, and of at least one record."""
    ends = list(accumulate(map(len, records)))
    start = 0
    while start < len(records):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, bisect_right(ends, before + bytes_max, lo=start))
        yield records[start:stop]
        start = stop
