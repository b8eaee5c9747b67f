"""The node: data directory, shards, services and the gRPC server, from start to drained end.

    run_node → lock the directory → open shards → serve → (signal) → not serving → drain → close stores → 0

The order of the end matters: health says "not serving" first, new calls are refused, long polls end with a
retryable reason, running calls get `drain_grace_s`, and stores close only when nobody can reach them any more.
"""

import asyncio
import os
import resource
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from kayos import limits
from kayos.cluster.coordinator import Coordinator
from kayos.cluster.static import StaticCoordinator
from kayos.cluster.static_cluster import StaticCluster
from kayos.errors import FailedPrecondition, KayosError
from kayos.model.topic import Topic
from kayos.server.cluster_service import ClusterService
from kayos.server.config import NodeConfig, is_loopback
from kayos.server.data_directory import DataDirectory
from kayos.server.hosting import Hosting
from kayos.server.log_service import LogService
from kayos.server.logs import get_log, set_up_logs
from kayos.server.loop import run_on_loop
from kayos.server.maintenance import Maintenance
from kayos.server.peers import Peers
from kayos.server.replication_service import ReplicationService
from kayos.server.rpc import DRAINING, Gate, bind_service
from kayos.server.shard import Place, ServedStore
from kayos.server.stores import compact, open_store
from kayos.wire.methods import CLUSTER_METHODS, LOG_METHODS, REPLICATION_METHODS

# For answers on their way out; a health watch never ends by itself, so this is the end of it.
LAST_ANSWERS_S = 0.5
SERVICES = ("kayos.v1.Log", "kayos.v1.Cluster", "kayos.v1.Replication")
OPTIONS = (
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", limits.METADATA_BYTES_MAX),
    ("grpc.max_concurrent_streams", limits.STREAMS_PER_CONNECTION_MAX),
    ("grpc.max_connection_idle_ms", limits.CONNECTION_IDLE_MS_MAX),
    ("grpc.server_handshake_timeout_ms", limits.HANDSHAKE_TIMEOUT_MS),
    # A frozen client is noticed by `ping_timeout_ms`; keepalive alone took 61 s.
    ("grpc.keepalive_time_ms", limits.KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", limits.PING_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", limits.PING_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
    # Two nodes on one port would share its connections in silence; the second must fail.
    ("grpc.so_reuseport", 0),
)


class Node:
    """`start`, then `run_until_stopped` by `stop`, then `close`."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._directory = DataDirectory(config.data)
        self._pool = ThreadPoolExecutor(limits.READ_THREADS, thread_name_prefix="read")
        self._gate = Gate({"Subscribe": config.subscribers_max})
        self._health = HealthServicer()
        self._server: aio.Server | None = None
        self._hosting: Hosting | None = None
        self._maintenance: Maintenance | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._peers = Peers()
        self._coordinator: Coordinator | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._log = get_log(node=self._directory.node_id)
        self.address = ""

    @property
    def node_id(self) -> str:
        return self._directory.node_id

    async def start(self) -> None:
        config = self._config
        server = self._make_server()
        port = listen(server, config)
        self.address = config.advertise or advertised_address(config, port)
        coordinator = self._coordinator = self._make_coordinator()
        place = Place(coordinator.node_name, self._pool, self._peers, self._fetch_view)
        hosting = Hosting(config.data, coordinator, self._open_store, place)
        self._hosting = hosting
        await hosting.open()
        maintenance = Maintenance(
            hosting,
            compact,
            interval_s=config.maintenance_interval_s,
            retained_bytes_max=config.pin_retained_bytes_max,
        )
        self._maintenance = maintenance
        cluster = ClusterService(coordinator, hosting, maintenance, node_id=self.node_id, address=self.address)
        log_handler = bind_service(LogService(hosting, config), LOG_METHODS, self._gate)
        cluster_handler = bind_service(cluster, CLUSTER_METHODS, self._gate)
        replication_handler = bind_service(ReplicationService(hosting), REPLICATION_METHODS, self._gate, is_raw=True)
        server.add_generic_rpc_handlers((log_handler, cluster_handler, replication_handler))
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        await server.start()
        self._tasks = [
            asyncio.create_task(maintenance.run(), name="maintenance"),
            asyncio.create_task(hosting.tick(), name="tick"),
            asyncio.create_task(self._hear_changes(coordinator, hosting), name="changes"),
        ]
        self._log.info("ready", address=self.address, data=str(config.data), pid=os.getpid())

    async def drain(self) -> None:
        """Stop taking calls, end the long ones, give the others their grace, then close everything."""
        self._log.info("draining", grace_s=self._config.drain_grace_s, running=self._gate.running.total())
        await self._health.enter_graceful_shutdown()
        self._gate.drain()
        if self._hosting is not None:
            self._hosting.refuse(DRAINING)
        # Meanwhile new calls are still answered, with "shutting down": gRPC itself would only cut them off.
        await self._gate.wait_idle(self._config.drain_grace_s)
        if self._server is not None:
            await self._server.stop(LAST_ANSWERS_S)
        await self.close()
        self._log.info("stopped")

    async def close(self) -> None:
        tasks = [*self._tasks, *([] if self._fetching is None else [self._fetching])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._maintenance is not None:
            await self._maintenance.close()
        if self._hosting is not None:
            await self._hosting.close(DRAINING)
        await self._peers.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._directory.close()

    def _make_server(self) -> aio.Server:
        server = aio.server(options=OPTIONS, maximum_concurrent_rpcs=self._config.concurrent_calls_max)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self._config.reflection:
            names = (*SERVICES, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, server)
        self._server = server
        return server

    async def _set_health(self, status: int) -> None:
        for service in ("", *SERVICES):
            await self._health.set(service, status)

    def _make_coordinator(self) -> Coordinator:
        config = self._config
        if config.cluster_file is not None:
            return StaticCluster(config.cluster_file, config.name, self._report_cluster_file)
        return StaticCoordinator(config.data, self.node_id, self.address)

    def _report_cluster_file(self, problem: str) -> None:
        self._log.error("the cluster file is not followed", reason=problem)

    def _fetch_view(self, epoch: int) -> None:
        """Somebody knows a later epoch: look again, once, however many say so."""
        if self._coordinator is not None and (self._fetching is None or self._fetching.done()):
            self._fetching = asyncio.create_task(self._coordinator.fetch(), name="fetch")

    async def _hear_changes(self, coordinator: Coordinator, hosting: Hosting) -> None:
        """For ever: pass on what the coordinator says."""
        async for _ in coordinator.changes():
            try:
                await hosting.refresh()
            except KayosError as error:
                self._log.warning("the change of the cluster cannot be followed yet", reason=error.message)

    def _open_store(self, directory: Path, topic: Topic, index: int) -> ServedStore:
        return open_store(directory, topic, index, self._config)


def listen(server: aio.Server, config: NodeConfig) -> int:
    try:
        port = server.add_insecure_port(config.listen)
    except RuntimeError:
        port = 0
    if not port:
        raise FailedPrecondition(f"cannot listen on {config.listen}: the port is taken or the host is not this one's")
    return port


def advertised_address(config: NodeConfig, port: int) -> str:
    """What clients are told: the address listened on, or this machine's name when that is every address."""
    host = config.host
    if not is_loopback(host) and host.strip("[]") in ("0.0.0.0", "::", ""):
        host = socket.gethostname()
    return f"{host}:{port}"


def run_node(config: NodeConfig, on_ready: Callable[[str], None] | None = None) -> int:
    """Run a node until a signal ends it; the exit code. Raises KayosError when it cannot start.

    `on_ready` is told the address once the node serves.
    """
    config.check()
    config.check_runnable()
    set_up_logs(level=config.log_level, log_format=config.log_format)
    # Whatever creates a file, it is private.
    os.umask(0o077)
    raise_file_limit()
    return run_on_loop(run_until_signal(config, on_ready))


async def run_until_signal(config: NodeConfig, on_ready: Callable[[str], None] | None) -> int:
    node = Node(config)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(on_signal, number, stopping))
    try:
        await node.start()
    except (KayosError, OSError):
        await node.close()
        raise
    if on_ready is not None:
        on_ready(node.address)
    await stopping.wait()
    await node.drain()
    return 0


def on_signal(number: int, stopping: asyncio.Event) -> None:
    """The first asks for a clean end, the second ends at once; LMDB needs no goodbye."""
    if stopping.is_set():
        os._exit(128 + number)
    stopping.set()


def raise_file_limit() -> None:
    """Every shard holds files open; take what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
