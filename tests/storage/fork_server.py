"""A process that forks a fresh child for every job: started in a millisecond, and its death is seen.

The server itself opens no store, so that nothing of LMDB crosses the fork. Parent's side: `ForkServer`. Server's
side: `python -m storage.fork_server module:function`, a job per line of JSON on stdin. The child's function gets
the job and `tell`, which sends a line up; lines are short enough for a pipe to take each whole or not at all.
"""

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent.parent


def child_environment() -> dict[str, str]:
    """So that a child finds this package, and Kayos without an installation."""
    inherited = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent), inherited])}


class Child:
    """One job. `lines` gives what it tells until it ends; then `exit_code` is set, negative for a signal."""

    def __init__(self, stream: Iterator[str]) -> None:
        self._stream = stream
        self.pid = int(next(stream).removeprefix("pid "))
        self.exit_code: int | None = None

    def lines(self) -> Iterator[str]:
        for line in self._stream:
            if line.startswith("exit "):
                self.exit_code = int(line.removeprefix("exit "))
                return
            yield line
        raise AssertionError("the fork server died")


class ForkServer:
    def __init__(self, function: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "storage.fork_server", function],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=TESTS,
            env=child_environment(),
        )

    def start(self, **job: object) -> Child:
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return Child(iter(self._process.stdout))

    def run(self, **job: object) -> tuple[list[str], int]:
        """What a job told, and its exit code."""
        child = self.start(**job)
        lines = list(child.lines())
        assert child.exit_code is not None
        return lines, child.exit_code

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


def tell(line: str) -> None:
    os.write(1, line.encode())


def serve(name: str) -> None:
    module_name, function_name = name.split(":")
    function = getattr(importlib.import_module(module_name), function_name)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                tell(f"pid {os.getpid()}\n")
                function(json.loads(line), tell)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        tell(f"exit {os.waitstatus_to_exitcode(status)}\n")


if __name__ == "__main__":
    serve(sys.argv[1])
