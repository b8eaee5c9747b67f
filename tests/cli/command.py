"""The real `kayos` executable for tests: run to its end, started and awaited, or seated at a pseudo-terminal."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

EXECUTABLE = Path(sys.executable).parent / "kayos"
TIMEOUT_S = 30.0
QUESTION = b"[y/N]: "
# A terminal sends Ctrl-C to the processes that it controls, so the command must first be one of them.
TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


@dataclass(frozen=True)
class Result:
    code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Kayos:
    """Runs `kayos ARGUMENTS` against the servers; a bytes argument reaches the process as it is."""

    servers: str

    def __call__(self, *arguments: str | bytes, stdin: bytes = b"", env: dict[str, str] | None = None) -> Result:
        done = subprocess.run(
            [EXECUTABLE, *arguments],
            input=stdin,
            capture_output=True,
            env=self.environment(env),
            timeout=TIMEOUT_S,
        )
        return Result(done.returncode, done.stdout, done.stderr.decode())

    def ok(self, *arguments: str | bytes, stdin: bytes = b"") -> Result:
        result = self(*arguments, stdin=stdin)
        assert result.code == 0, (arguments, result)
        return result

    def start(self, *arguments: str, env: dict[str, str] | None = None, **streams: Any) -> "Running":
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return Running(subprocess.Popen([EXECUTABLE, *arguments], env=self.environment(env), **(pipes | streams)))

    def on_terminal(self, *arguments: str, answer: str = "", stdout: Any = None) -> Result:
        """At a terminal of 100 columns; `out` is all that it showed. The answer is typed once a question is there.
        `stdout` may go elsewhere, as with `> FILE`."""
        master, slave = pty.openpty()
        environment = self.environment({"TERM": "xterm", "COLUMNS": "100"})
        process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, EXECUTABLE, *arguments],
            stdin=slave,
            stdout=stdout or slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        try:
            shown = read_terminal(master, answer.encode())
        finally:
            os.close(master)
        return Result(process.wait(TIMEOUT_S), shown, "")

    def environment(self, more: dict[str, str] | None = None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KAYOS_")}
        return {**kept, "KAYOS_SERVERS": self.servers, **(more or {})}


class Running:
    """A `kayos` that goes on until it is told to end; killed when the block ends, if it still runs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._pending = b""

    def __enter__(self) -> "Running":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def read_line(self) -> bytes:
        """The next line of its stdout."""
        assert self.process.stdout is not None
        ends_at = time.monotonic() + TIMEOUT_S
        while b"\n" not in self._pending:
            left = max(0.0, ends_at - time.monotonic())
            assert select.select([self.process.stdout], [], [], left)[0], f"no line in time, only {self._pending!r}"
            piece = os.read(self.process.stdout.fileno(), 65_536)
            assert piece, f"stdout ended after {self._pending!r}"
            self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        return self.process.wait(TIMEOUT_S)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


def read_terminal(master: int, answer: bytes) -> bytes:
    """All that the other side shows until it is gone."""
    shown = b""
    ends_at = time.monotonic() + TIMEOUT_S
    while select.select([master], [], [], max(0.0, ends_at - time.monotonic()))[0]:
        try:
            piece = os.read(master, 65_536)
        except OSError:  # how Linux says that nobody holds the other side any more
            return shown
        shown += piece
        if answer and QUESTION in shown:
            os.write(master, answer)
            answer = b""
    raise AssertionError(f"the terminal stayed open: {shown!r}")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """For what only the system can tell, by asking it again."""
    ends_at = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < ends_at, f"in vain: {what}"
        time.sleep(0.02)
