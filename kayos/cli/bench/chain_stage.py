"""The stage of the chain's benchmarks: node processes on this machine, the file that makes them a chain, a client."""

import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kayos.cli.bench.stage import cpu_s, end_process, start_node, wait_ready
from kayos.cli.failure import Failure
from kayos.client.blocking.client import Client, connect

TOPIC = "bench"
_WAIT_S = 120.0


@dataclass(slots=True)
class ChainStage:
    """`serving` are the nodes of the chain, in order; `pids` those of all nodes, by name."""

    directory: Path
    client: Client
    addresses: dict[str, str]
    pids: dict[str, int]
    serving: list[str]
    tails: int
    epoch: int = 1

    def change(self, serving: list[str], *, learner: str = "", state: str = "waiting") -> None:
        self.serving = serving
        self.epoch += 1
        write_cluster_file(self.directory, self.addresses, serving, self.epoch, self.tails, learner, state)

    def cpu_s(self) -> dict[str, float]:
        return {name: cpu_s(pid) for name, pid in self.pids.items()}

    def wait_for(self, reached: Callable[[], bool], what: str) -> None:
        ends_at = time.monotonic() + _WAIT_S
        while not reached():
            if time.monotonic() > ends_at:
                raise Failure(f"the benchmark's chain did not get there in {_WAIT_S:g} s: {what}")
            time.sleep(0.01)


@contextmanager
def open_chain(directory: Path | None, *, nodes: int, serving: int = 0, tails: int = 1) -> Iterator[ChainStage]:
    """`nodes` processes, of which the first `serving` (default: all) form the chain."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kayos-bench-", dir=directory)))
        names = [f"n{number}" for number in range(1, nodes + 1)]
        addresses = dict(zip(names, free_addresses(nodes), strict=True))
        chain = names[: serving or nodes]
        write_cluster_file(scratch, addresses, chain, 1, tails)
        pids = {}
        for name in names:
            flags = ["--name", name, "--cluster-file", str(scratch / "cluster.toml"), "--listen", addresses[name]]
            process = start_node(scratch / name, flags)
            stack.callback(end_process, process)
            wait_ready(process)
            pids[name] = process.pid
        servers = ",".join(addresses[name] for name in chain)
        client = stack.enter_context(connect(servers, delivery_timeout_s=120))
        yield ChainStage(scratch, client, addresses, pids, chain, tails)


def free_addresses(count: int) -> list[str]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{bound.getsockname()[1]}" for bound in sockets]
    finally:
        for bound in sockets:
            bound.close()


def write_cluster_file(
    directory: Path,
    addresses: dict[str, str],
    serving: list[str],
    epoch: int,
    tails: int,
    learner: str = "",
    state: str = "waiting",
) -> None:
    members = [f'{{ node = "{name}" }}' for name in serving]
    if learner:
        members.append(f'{{ node = "{learner}", state = "{state}" }}')
    lines = [
        "[nodes]",
        *(f'{name} = "{address}"' for name, address in addresses.items()),
        f"[topics.{TOPIC}]",
        f"replicas = {len(addresses)}",
        f"tails = {tails}",
        "min_replicas = 1",
        "[[chains]]",
        f'topic = "{TOPIC}"',
        "shard = 0",
        f"epoch = {epoch}",
        f"tails = {min(tails, max(1, len(serving) - 1))}",
        f"members = [{', '.join(members)}]",
    ]
    scratch = directory / "cluster.toml.new"
    scratch.write_text("\n".join(lines) + "\n")
    scratch.replace(directory / "cluster.toml")
