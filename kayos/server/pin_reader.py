"""Reading a pinned snapshot piece by piece: while one piece goes out, the next one is read."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from kayos.server.shard import Shard
from kayos.server.snapshot_reader import Columns, read_pinned


@dataclass(frozen=True, slots=True)
class PinRange:
    """The rows of a pin in (`after_seq`, `end_seq`], in pieces of about `chunk_bytes`."""

    pin_id: str
    after_seq: int
    end_seq: int
    chunk_bytes: int
    tombstones: bool


async def read_ahead(shard: Shard, wanted: PinRange) -> AsyncGenerator[Columns, None]:
    """Pieces that hold messages, ascending. Close it when leaving early: a read may be under way."""
    reading = asyncio.ensure_future(read_piece(shard, wanted, wanted.after_seq))
    try:
        while True:
            piece = await reading
            if not piece.complete:
                reading = asyncio.ensure_future(read_piece(shard, wanted, piece.through_seq))
            if piece.count:
                yield piece
            if piece.complete:
                return
    finally:
        reading.cancel()


async def read_piece(shard: Shard, wanted: PinRange, after_seq: int) -> Columns:
    return await shard.read(
        read_pinned,
        shard.store,
        wanted.pin_id,
        after_seq,
        end_seq=wanted.end_seq,
        chunk_bytes=wanted.chunk_bytes,
        tombstones=wanted.tombstones,
    )
