"""A stream of lines into a topic: sent without waiting, answered in order, bounded in between.

What was read is delivered or counted as failed; nothing is dropped in silence. A failure that is one message's own (its
condition was not met) lets the others go on; any other ends the reading.
"""

from collections import deque
from concurrent.futures import Future
from typing import IO, TYPE_CHECKING

from kayos.cli.failure import Failure, exit_code_of
from kayos.cli.lines import Line, LineError, LineParser
from kayos.cli.output import flush_out, say, to_json, write_out
from kayos.cli.progress import progress
from kayos.errors import ConditionFailed, InvalidArgument, KayosError

if TYPE_CHECKING:
    from kayos.client.blocking.client import Client
    from kayos.client.core.delivery import Delivery

WAITING_MAX = 50_000
FAILURES_SHOWN_MAX = 10
PROGRESS_STEP_BYTES = 64 * 1024


class Feed:
    def __init__(
        self, client: "Client", topic: str, defaults: Line, durability: int | str, *, per_message: bool
    ) -> None:
        self._client = client
        self._topic = topic
        self._defaults = defaults
        self._durability = durability
        self._per_message = per_message
        self._waiting: deque[tuple[int, Future[Delivery]]] = deque()
        self._bad_line: LineError | None = None
        self._cause: KayosError | None = None
        self._must_stop = False
        self.delivered = 0
        self.failed = 0

    def run(self, parser: LineParser, source: IO[bytes], *, total_bytes: int | None) -> None:
        """Send all there is, or up to the first line that cannot be sent; every answer is there at the end."""
        unshown_bytes = 0
        with progress(f"producing to {self._topic}", total=total_bytes, unit="bytes") as advance:
            try:
                for number, size, line in parser.read(source):
                    self._send(number, line)
                    unshown_bytes += size
                    if unshown_bytes >= PROGRESS_STEP_BYTES:
                        advance(unshown_bytes)
                        unshown_bytes = 0
                    if self._must_stop:
                        break
            except LineError as error:
                self._bad_line = error
            except KeyboardInterrupt:
                self._settle(wait=False)
                say(f"interrupted: {self.delivered} messages were delivered, {len(self._waiting)} have no answer yet")
                raise
            self._settle(wait=True)

    def check(self) -> None:
        """Fail as the outcome demands, once it was shown."""
        if self._bad_line is not None:
            raise Failure(
                f"{self._bad_line}; reading ended there, of the messages before it {self.delivered} were "
                f"delivered and {self.failed} were not",
                Failure.USAGE,
            )
        if self._cause is not None:
            ended = "; reading ended there" if self._must_stop else ""
            code = Failure.FAILED if self.delivered else exit_code_of(self._cause)
            raise Failure(f"of the messages {self.failed} were not delivered and {self.delivered} were{ended}", code)

    def _send(self, number: int, line: Line) -> None:
        defaults = self._defaults
        ttl_ms = line.ttl_ms if line.ttl_ms is not None or line.value is None else defaults.ttl_ms
        try:
            future = self._client.send(
                self._topic,
                line.value,
                key=line.key,
                headers=line.headers or defaults.headers,
                ttl_ms=ttl_ms,
                expected_seq=defaults.expected_seq if line.expected_seq is None else line.expected_seq,
                route=defaults.route if line.route is None else line.route,
                durability=self._durability,
            )
        except InvalidArgument as error:
            raise LineError(number, error.message) from error
        except KayosError as error:
            if not (self._waiting or self.delivered or self.failed):
                raise  # nothing was ever sent: this is about the topic or the servers, not about a line
            self._note_failure(number, error)
            return
        self._waiting.append((number, future))
        self._settle(wait=False)

    def _settle(self, *, wait: bool) -> None:
        """Take the answers in the order of the lines: those that are there and those beyond the bound, or all."""
        while self._waiting:
            number, future = self._waiting[0]
            if not (wait or future.done() or len(self._waiting) > WAITING_MAX):
                break
            self._waiting.popleft()
            error = future.exception()
            if error is None:
                self._note_delivery(number, future.result())
            elif isinstance(error, KayosError):
                self._note_failure(number, error)
            else:
                raise error
        if self._per_message:
            flush_out()

    def _note_delivery(self, number: int, delivery: "Delivery") -> None:
        self.delivered += 1
        if self._per_message:
            row = {"line": number, **delivery._asdict(), "history_id": delivery.history_id.hex()}
            write_out(f"{to_json(row)}\n".encode())

    def _note_failure(self, number: int, error: KayosError) -> None:
        self.failed += 1
        self._cause = self._cause or error
        self._must_stop = self._must_stop or not isinstance(error, ConditionFailed)
        if self.failed <= FAILURES_SHOWN_MAX:
            say(f"line {number}: {error.message}")
        elif self.failed == FAILURES_SHOWN_MAX + 1:
            say("more lines failed and are only counted")
