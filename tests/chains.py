"""Real chains for tests: node processes on loopback and the operator who writes their cluster file.

    with Cluster.start(tmp_path, nodes="abc") as cluster:
        cluster.kill("a")
        cluster.remove("a")            # the next epoch is without it
        cluster.restart("a")
        cluster.join("a")              # waiting → syncing → serving, each step when the chain is ready for it

The operator does by hand what a manager will do: survivors keep their order, a newcomer enters at the end.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import grpc

from kayos.storage.compare import compare_stores
from kayos.wire.methods import CLUSTER_METHODS, LOG_METHODS, Method
from kayos.wire.status import error_from_rpc
from kayos.wire.v1 import cluster_pb2, log_pb2
from tests.nodes import NodeProcess
from tests.ports import lasting_addresses

TOPIC = "t"
WAIT_S = 60.0


@dataclass
class Chain:
    """What the file says of the one shard."""

    epoch: int
    serving: list[str]
    tails: int = 1
    learner: str = ""
    learner_state: str = "waiting"
    lives: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Cluster:
    directory: Path
    addresses: dict[str, str]
    chain: Chain
    topic: dict[str, Any]
    settings: dict[str, Any]
    nodes: dict[str, NodeProcess] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def start(
        cls,
        directory: Path,
        *,
        nodes: str = "abc",
        chain: str | None = None,
        run: str | None = None,
        tails: int = 1,
        topic: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Iterator["Cluster"]:
        """`chain` names those that serve from the start, the others wait to join; `run` those that are started."""
        serving = list(nodes if chain is None else chain)
        addresses = dict(zip(nodes, lasting_addresses(len(nodes)), strict=True))
        described = {"replicas": len(serving), **(topic or {})}
        cluster = cls(directory, addresses, Chain(1, serving, tails), described, settings)
        cluster.write()
        try:
            for name in nodes if run is None else run:
                cluster.restart(name)
            yield cluster
        finally:
            for node in cluster.nodes.values():
                node.__exit__(None, None, None)

    # Processes

    @property
    def servers(self) -> str:
        return ",".join(self.addresses.values())

    def data(self, name: str) -> Path:
        return self.directory / name

    def restart(self, name: str) -> NodeProcess:
        node = self.nodes[name] = NodeProcess.start(
            self.data(name),
            listen=self.addresses[name],
            standalone=False,
            name=name,
            cluster_file=str(self.file),
            **self.settings,
        )
        return node

    def kill(self, name: str) -> None:
        self.nodes[name].kill()

    def freeze(self, name: str) -> None:
        """SIGSTOP: the process is there and does nothing."""
        self.nodes[name].process.send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.nodes[name].process.send_signal(signal.SIGCONT)

    def call(self, name: str, method: Method, request: Any) -> Any:
        """One bare call of this very node."""
        with grpc.insecure_channel(self.addresses[name]) as channel:
            try:
                encoded = channel.unary_unary(method.path)(request.SerializeToString(), timeout=10.0)
            except grpc.RpcError as failure:
                raise error_from_rpc(failure) from None
        return method.response_class.FromString(encoded)

    def write_to(self, name: str, key: bytes, value: bytes, *, epoch: int, **fields: Any) -> log_pb2.ProduceResponse:
        """One write to this very node, as a client sends it that has a view of that epoch."""
        ref = log_pb2.ShardRef(topic=TOPIC, shard=0, epoch=epoch)
        request = log_pb2.ProduceRequest(shard=ref, keys=[key], values=[value], **fields)
        response: log_pb2.ProduceResponse = self.call(name, LOG_METHODS["Produce"], request)
        return response

    def stop_all(self) -> None:
        """Cleanly, so that their stores can be compared."""
        for node in self.nodes.values():
            if node.process.poll() is None:
                assert node.stop() == 0

    def store(self, name: str) -> Path:
        (store,) = (self.data(name) / "shards").iterdir()
        return store

    def check_equal(self) -> None:
        """Every serving member's store is sound and equal to the others'; call it when all have stopped."""
        for one, other in combinations(self.chain.serving, 2):
            found = compare_stores(self.store(one), self.store(other))
            assert found.is_equal, (one, other, found)

    # The operator

    @property
    def file(self) -> Path:
        return self.directory / "cluster.toml"

    def write(self) -> None:
        chain = self.chain
        members = [
            f'{{ node = "{name}", incarnation = "{chain.lives.get(name, b"").hex()}" }}' for name in chain.serving
        ]
        if chain.learner:
            members.append(f'{{ node = "{chain.learner}", state = "{chain.learner_state}" }}')
        lines = ["[nodes]", *(f'{name} = "{address}"' for name, address in self.addresses.items()), f"[topics.{TOPIC}]"]
        lines += [f"{name} = {quote(value)}" for name, value in self.topic.items()]
        lines += ["[[chains]]", f'topic = "{TOPIC}"', "shard = 0", f"epoch = {chain.epoch}", f"tails = {chain.tails}"]
        lines += [f"members = [{', '.join(members)}]"]
        scratch = self.file.with_suffix(".new")
        self.directory.mkdir(parents=True, exist_ok=True)
        scratch.write_text("\n".join(lines) + "\n")
        scratch.replace(self.file)

    def change(self, serving: list[str], *, tails: int = 0, learner: str = "", state: str = "waiting") -> None:
        most = max(1, len(serving) - 1)
        self.chain = Chain(self.chain.epoch + 1, serving, min(tails or self.chain.tails, most), learner, state)
        self.write()

    def name_lives(self) -> None:
        """The next epoch names the lives that the members have now, and nobody else can take their places."""
        lives = {name: self.status(name).incarnation for name in self.chain.serving}
        self.chain = replace(self.chain, epoch=self.chain.epoch + 1, lives=lives)
        self.write()

    def remove(self, *names: str) -> None:
        self.change([name for name in self.chain.serving if name not in names])

    def join(self, name: str, *, tails: int = 0) -> None:
        """Bring a node in at the end, and wait until it serves."""
        serving = self.chain.serving
        self.change(serving, learner=name, state="waiting")
        self.wait_for(lambda: self.last_status().learner.is_close, f"{name} streams")
        self.change(serving, learner=name, state="syncing")
        self.wait_for(lambda: self.last_status().learner.is_ready, f"{name} holds all")
        self.change([*serving, name], tails=tails)
        self.wait_until_serving()

    def last_status(self) -> cluster_pb2.ShardStatus:
        """Of the last serving member, whom a newcomer follows."""
        return self.status(self.chain.serving[-1])

    # Looking

    def internal_errors(self, name: str) -> list[dict[str, Any]]:
        """What a node logged as a bug of its own since its last start."""
        return [entry for entry in self.nodes[name].log if "error_id" in entry]

    def status(self, name: str) -> cluster_pb2.ShardStatus:
        """What a node says of its replica; an empty status when it does not answer or knows of another epoch."""
        method = CLUSTER_METHODS["GetStatus"]
        try:
            with grpc.insecure_channel(self.addresses[name]) as channel:
                encoded = channel.unary_unary(method.path)(b"", timeout=5.0)
        except grpc.RpcError:
            return cluster_pb2.ShardStatus()
        response = cluster_pb2.GetStatusResponse.FromString(encoded)
        for status in response.shards:
            if status.epoch == self.chain.epoch:
                return status
        return cluster_pb2.ShardStatus()

    def wait_for(self, reached: Callable[[], bool], what: str) -> None:
        ends_at = time.monotonic() + WAIT_S
        while not reached():
            assert time.monotonic() < ends_at, f"not within {WAIT_S} s: {what}; {self.describe()}"
            time.sleep(0.02)

    def wait_until_serving(self) -> None:
        """Until every serving member has its place, writes or not."""

        def is_serving() -> bool:
            return {self.status(name).phase for name in self.chain.serving} <= {"serving", "streaming"}

        self.wait_for(is_serving, "the chain serves")

    def wait_until_whole(self) -> None:
        """Once nobody writes: until every serving member has the same end and all of it is committed."""

        def is_whole() -> bool:
            statuses = [self.status(name) for name in self.chain.serving]
            ends = {(status.high_seq, status.durable_seq, status.commit_point) for status in statuses}
            phases = {status.phase for status in statuses}
            return len(ends) == 1 and len(set(next(iter(ends)))) == 1 and phases <= {"serving", "streaming"}

        self.wait_for(is_whole, "the chain is whole")

    def describe(self) -> str:
        found = [(name, self.status(name)) for name in self.addresses]
        return "; ".join(
            f"{name}: {status.role} {status.phase} {status.high_seq}/{status.durable_seq}/{status.commit_point} "
            f"{status.problem}"
            for name, status in found
        )


def quote(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
