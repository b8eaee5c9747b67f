"""The stage of a benchmark: a scratch directory, a node process on it, and a client to that."""

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kayos.cli.failure import Failure
from kayos.client.blocking.client import Client, connect

KEY_BYTES = 16
_START_S = 30.0
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Stage:
    directory: Path
    client: Client
    node_pid: int

    def node_cpu_s(self) -> float:
        return cpu_s(self.node_pid)

    def node_resident_bytes(self) -> int:
        """Memory of the node without the mapped file, which the system may take back at any time."""
        _, resident, shared, *_ = map(int, Path(f"/proc/{self.node_pid}/statm").read_text().split())
        return (resident - shared) * _PAGE_BYTES


@contextmanager
def open_stage(directory: Path | None) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="kayos-bench-", dir=directory) as scratch:
        process = start_node(Path(scratch) / "data", ["--standalone", "--listen", "127.0.0.1:0"])
        try:
            with connect(wait_ready(process), delivery_timeout_s=120) as client:
                yield Stage(Path(scratch), client, process.pid)
        finally:
            end_process(process)


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS


def end_process(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def start_node(data: Path, flags: list[str]) -> "subprocess.Popen[bytes]":
    program = "import sys; from kayos.cli.main import main; sys.exit(main())"
    common = ["--data", str(data), "--log-format", "json"]
    return subprocess.Popen(
        [sys.executable, "-c", program, "node", "run", *flags, *common],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def wait_ready(process: "subprocess.Popen[bytes]") -> str:
    """The node's address, once it says in its log that it is ready; the rest of its log goes nowhere."""
    assert process.stderr is not None
    # A node that says nothing is ended, and so is the wait for its next line.
    patience = threading.Timer(_START_S, process.kill)
    patience.start()
    try:
        for line in process.stderr:
            event = parse_event(line)
            if event.get("event") == "ready":
                drain_in_background(process)
                return str(event["address"])
    finally:
        patience.cancel()
    raise Failure("the benchmark's node did not start: try 'kayos dev' and read what it says")


def parse_event(line: bytes) -> dict[str, Any]:
    """A line of the node's log; empty when it is something else."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def drain_in_background(process: "subprocess.Popen[bytes]") -> None:
    """A full pipe would stop the node."""

    def drain() -> None:
        assert process.stderr is not None
        for _ in process.stderr:
            """Read and forgotten."""

    threading.Thread(target=drain, name="bench-node-log", daemon=True).start()


def random_keys(count: int, *, distinct: int) -> list[bytes]:
    """Keys of 16 bytes, drawn evenly, the same in every run."""
    source = random.Random(1)
    return [b"%0*d" % (KEY_BYTES, source.randrange(distinct)) for _ in range(count)]


def batches_of(keys: list[bytes], size: int) -> list[list[bytes]]:
    return [keys[start : start + size] for start in range(0, len(keys), size)]


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
