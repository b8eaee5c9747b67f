"""A chain whose nodes share this process: real stores, real gRPC, and hands inside each of them."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from grpc import aio

from kayos.cluster.coordinator import ShardView
from kayos.errors import ShuttingDown
from kayos.model.chain import ChainView, Member
from kayos.model.topic import Topic
from kayos.server.config import NodeConfig
from kayos.server.data_directory import make_private
from kayos.server.hosting import Hosting
from kayos.server.log_service import LogService
from kayos.server.peers import Peers
from kayos.server.replication_service import ReplicationService
from kayos.server.rpc import Gate, bind_service
from kayos.server.shard import Place, Shard
from kayos.server.stores import open_store
from kayos.wire.methods import LOG_METHODS, REPLICATION_METHODS

TOPIC = Topic("t", "0123456789abcdef", replicas=3, min_durable=3, min_replicas=1)


class GivenViews:
    """The coordinator: what the test says."""

    def __init__(self, view: ChainView, addresses: dict[str, str]) -> None:
        self.view = view
        self.addresses = addresses

    async def list_topics(self) -> list[Topic]:
        return [TOPIC]

    async def find_view(self, topic: Topic, shard: int) -> ShardView:
        return ShardView(shard, self.view, self.addresses)


class InProcessChain:
    def __init__(self, views: GivenViews) -> None:
        self.views = views
        self.hostings: dict[str, Hosting] = {}

    def shard(self, node: str) -> Shard:
        return self.hostings[node].find_shard(TOPIC.name, 0, 0)

    def address(self, node: str) -> str:
        return self.views.addresses[node]

    async def change(self, view: ChainView) -> None:
        self.views.view = view
        for hosting in self.hostings.values():
            await hosting.refresh()


@asynccontextmanager
async def open_chain(directory: Path, nodes: str = "abc", *, tails: int = 1) -> AsyncIterator[InProcessChain]:
    servers = {node: aio.server() for node in nodes}
    addresses = {node: f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}" for node, server in servers.items()}
    view = ChainView(1, tuple(Member(node) for node in nodes), tails=tails, min_durable=len(nodes))
    chain = InProcessChain(GivenViews(view, addresses))
    config = NodeConfig(map_bytes=1 << 28)
    with ThreadPoolExecutor(4) as pool:
        peers = Peers()
        try:
            for node, server in servers.items():
                place = Place(node, pool, peers, lambda _: None)
                await start_node(chain, server, directory / node, place, config)
            yield chain
        finally:
            for node, server in servers.items():
                await chain.hostings[node].close(ShuttingDown("the test ends"))
                await server.stop(None)
            await peers.close()


async def start_node(chain: InProcessChain, server: aio.Server, data: Path, place: Place, config: NodeConfig) -> None:
    make_private(data)
    views: Any = chain.views
    hosting = Hosting(data, views, lambda path, topic, index: open_store(path, topic, index, config), place)
    chain.hostings[place.node] = hosting
    await hosting.open()
    log = bind_service(LogService(hosting, config), LOG_METHODS, Gate({}))
    replication = bind_service(ReplicationService(hosting), REPLICATION_METHODS, Gate({}), is_raw=True)
    server.add_generic_rpc_handlers((log, replication))
    await server.start()
