"""One shard in this process: the real driver over a real store, without gRPC around it."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kayos.errors import ShuttingDown
from kayos.model.chain import ChainView, Member
from kayos.model.topic import Mode, Topic
from kayos.model.write import WriteRequest
from kayos.server.config import NodeConfig
from kayos.server.peers import Peers
from kayos.server.shard import Place, Shard
from kayos.server.stores import open_store


@asynccontextmanager
async def open_shard(directory: Path, *, mode: Mode = Mode.COMPACT, **topic: Any) -> AsyncIterator[Shard]:
    described = Topic(name="t", topic_id="0123456789abcdef", mode=mode, **topic)
    store = open_store(directory, described, 0, NodeConfig(map_bytes=1 << 28))
    with ThreadPoolExecutor(2) as pool:
        place = Place("n", pool, Peers(), lambda epoch: None)
        shard = Shard(described, 0, store, place)
        shard.adopt(ChainView(1, (Member("n"),)), {"n": "127.0.0.1:1"})
        await shard.settle()
        try:
            yield shard
        finally:
            await shard.close(ShuttingDown("the test ends"))


def puts(values: dict[bytes, bytes], **fields: Any) -> WriteRequest:
    return WriteRequest(keys=list(values), values=list(values.values()), **fields)


async def put(shard: Shard, values: dict[bytes, bytes], **fields: Any) -> int:
    """The last sequence."""
    return (await shard.write(puts(values, **fields), 1_000)).result.last_seq
