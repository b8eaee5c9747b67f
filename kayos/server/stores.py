"""Where the node meets the storage engine: opening a shard's store, and compacting it beside its work."""

import asyncio
from pathlib import Path

from kayos.errors import StoreFull
from kayos.model.topic import Topic
from kayos.server.config import NodeConfig
from kayos.server.shard import ServedStore, Shard
from kayos.storage.compaction import Compaction
from kayos.storage.interface import Identity
from kayos.storage.lmdb_store import LmdbStore, StoreOptions


def open_store(directory: Path, topic: Topic, index: int, config: NodeConfig) -> ServedStore:
    options = StoreOptions(
        map_bytes=config.map_bytes,
        full_fraction=config.full_fraction,
        disk_reserve_bytes_max=config.disk_reserve_bytes_max,
        verify=config.verify,
    )
    return LmdbStore.open(directory, Identity(topic.topic_id, index, topic.mode), options)


async def compact(shard: Shard) -> tuple[int, int]:
    """The file's bytes before and after. The copy is made while writes go on; the swap is the writer's."""
    store = shard.store
    assert isinstance(store, LmdbStore)
    await shard.read(check_room, store)
    compaction = await asyncio.to_thread(Compaction, store)
    try:
        await asyncio.to_thread(compaction.prepare)
        await shard.run_in_writer(compaction.swap)
    except BaseException:
        await asyncio.to_thread(compaction.abandon)
        raise
    shard.log.info("compacted", bytes_before=compaction.bytes_before, bytes_after=compaction.bytes_after)
    return compaction.bytes_before, compaction.bytes_after


def check_room(store: LmdbStore) -> None:
    """The copy must fit on the disk and leave the reserve that deletes and takeovers live on."""
    usage, room = store.usage(), store.disk_room()
    needed_bytes = usage.file_bytes - usage.free_bytes + room.reserve_bytes
    if room.free_bytes < needed_bytes:
        raise StoreFull(
            f"compaction needs {needed_bytes} bytes on the disk and {room.free_bytes} are free: make room first",
            retry_delay_ms=60_000,
        )
