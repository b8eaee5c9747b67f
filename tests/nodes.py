"""Real node processes for tests: started on a free loopback port, ended by their own pid, always bounded.

    with NodeProcess.start(tmp_path / "data") as node:
        channel = grpc.insecure_channel(node.address)

Ready means that the node said so in its log; nothing sleeps.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parent.parent

MAIN = """
import json, sys
from kayos.server.config import load_config
from kayos.server.node import run_node
sys.exit(run_node(load_config(None, {}, json.loads(sys.argv[1]))))
"""


class NodeFailed(Exception):
    """The node ended before it was ready; the message holds its log."""


class NodeProcess:
    """One node. `log` holds the parsed lines of its log, newest last (the last 10,000)."""

    def __init__(self, process: subprocess.Popen[bytes], data: Path) -> None:
        self.process = process
        self.data = data
        self.address = ""
        self.log: list[dict[str, Any]] = []
        self._reader: threading.Thread | None = None
        self._logged = threading.Condition()

    @classmethod
    def start(
        cls, data: Path, *, listen: str = "127.0.0.1:0", timeout: float = 30.0, env: Any = None, **settings: Any
    ) -> "NodeProcess":
        """Start and wait until ready. `settings` are fields of NodeConfig."""
        flags = {"listen": listen, "data": str(data), "standalone": True, "log_format": "json", **settings}
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, json.dumps(flags)],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
        )
        node = cls(process, data)
        try:
            node._wait_ready(timeout)
        except BaseException:
            node.kill()
            raise
        node._reader = threading.Thread(target=node._drain, daemon=True)
        node._reader.start()
        return node

    @property
    def pid(self) -> int:
        return self.process.pid

    def terminate(self) -> None:
        """Ask for a clean end (SIGTERM); `wait` for it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout: float = 30.0) -> int:
        """The exit code, once the process ended."""
        code = self.process.wait(timeout)
        if self._reader is not None:
            self._reader.join(timeout)
        return code

    def stop(self, timeout: float = 30.0) -> int:
        self.terminate()
        return self.wait(timeout)

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    def wait_for_event(self, event: str, timeout: float = 30.0) -> dict[str, Any]:
        """The newest line of the log with that event, once there is one."""

        def find() -> dict[str, Any] | None:
            return next((entry for entry in reversed(self.log) if entry.get("event") == event), None)

        with self._logged:
            found = self._logged.wait_for(find, timeout)
        if found is None:
            raise NodeFailed(f"no event {event!r} within {timeout} s: {self.log[-20:]}")
        return found

    def resident_bytes(self) -> int:
        """The node's own memory, without the mapped file, whose pages the system takes back when it likes."""
        _, resident, shared, *_ = map(int, Path(f"/proc/{self.pid}/statm").read_text().split())
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self) -> "NodeProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()

    def _wait_ready(self, timeout: float) -> None:
        assert self.process.stderr is not None
        descriptor = self.process.stderr.fileno()
        ends_at = time.monotonic() + timeout
        pending = b""
        while True:
            left = ends_at - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise NodeFailed(f"the node was not ready within {timeout} s: {self.log}")
            piece = os.read(descriptor, 65_536)
            if not piece:
                raise NodeFailed(f"the node ended with {self.process.wait(timeout)} before it was ready: {self.log}")
            *lines, pending = (pending + piece).split(b"\n")
            for line in lines:
                self._take(line)
                if self.log[-1].get("event") == "ready":
                    self.address = self.log[-1]["address"]
                    return

    def _drain(self) -> None:
        """Keep reading, so that a full pipe never stops the node."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._take(line)
        self.process.stderr.close()

    def _take(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
        except ValueError:
            entry = {"event": line.decode(errors="replace").rstrip()}
        with self._logged:
            self.log.append(entry)
            del self.log[:-10_000]
            self._logged.notify_all()
