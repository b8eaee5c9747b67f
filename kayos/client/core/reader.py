"""One shard of a consumer: subscribe, follow the snapshots, come back after a broken stream.

Resuming. Between two snapshots a broken stream is opened again from the last boundary, and the caller sees
nothing. Inside a snapshot it depends on what the caller has seen: as long as the snapshot was not handed out, the
reader starts again from the last boundary. Once it was handed out, its rest cannot be had any more (the log has moved
on), so the caller gets SnapshotExpired, drops what it took from that snapshot, and asks for the next one, which begins
at the same boundary. Snapshots up to PREFETCH_BYTES are read whole before they are handed out, so only larger
ones can end so. A reader of single messages needs no boundary and resumes above the last message it gave.
"""

from typing import Any

from kayos.client.core.calls import Directory, explain_silence, get_view
from kayos.client.core.message import Message
from kayos.client.core.snapshot import Assembly, Phase, SnapshotHead
from kayos.client.core.start import Start, StartKind
from kayos.client.core.steps import CloseStream, OpenStream, Pause, ReadStream, Steps
from kayos.client.core.verdict import Backoff, Verdict, judge
from kayos.errors import Aborted, FailedPrecondition, KayosError, SnapshotExpired, Unavailable
from kayos.limits import KIB
from kayos.model.mark import Mark
from kayos.wire.methods import LOG_METHODS
from kayos.wire.v1 import log_pb2

PREFETCH_BYTES = 1024 * KIB
# A stream is renewed at a boundary after this time; its deadline leaves one snapshot as long again.
STREAM_RENEW_S = 1800.0
STREAM_TIMEOUT_S = 3600.0
# A stream that lived so long did reach a server, even if there was nothing to send.
STREAM_PROVEN_S = 10.0


class ShardReader:
    """`by_message`: resume above the last message given, rather than at the last boundary."""

    def __init__(
        self,
        directory: Directory,
        topic: str,
        shard: int,
        *,
        start: Start,
        consumer: str | None,
        stop_at_end: bool,
        by_message: bool = False,
    ) -> None:
        self._directory = directory
        self._start = start
        self._consumer = consumer
        self._stop_at_end = stop_at_end
        self._by_message = by_message
        self._assembly = Assembly(topic, shard)
        self._backoff = Backoff()
        self._turn = 0
        self._failing_since: float | None = None
        self._opened_at = 0.0
        self._was_connected = False
        self._prefetched: list[list[Message]] = []
        self._handed_out: SnapshotHead | None = None
        self.stream: Any = None
        self.position: Mark | None = None
        self.closed = False

    @property
    def topic(self) -> str:
        return self._assembly.topic

    @property
    def shard(self) -> int:
        return self._assembly.shard

    @property
    def is_inside(self) -> bool:
        """Whether a snapshot that was handed out has not been read to its end."""
        return self._handed_out is not None

    def settle_start(self) -> Steps[None]:
        """Turn "latest" into a position now, or what is sent before the first read would be skipped."""
        while self._start.kind is StartKind.LATEST and self.position is None:
            yield from self._take_event()
            if self._assembly.phase is Phase.ENDED:
                self.position = self._assembly.mark
            elif self._assembly.head is not None:  # a message came just now: the snapshot begins at the latest
                self.position = self._assembly.head.mark_at(self._assembly.head.start_seq)
        yield from self._drop_stream()
        self._assembly.restart()

    # The three acts of a snapshot

    def wait_begin(self) -> Steps[bool]:
        """Wait for the next snapshot to begin; False when there will be none."""
        if self.stream is not None and self._directory.clock() - self._opened_at > STREAM_RENEW_S:
            yield from self._drop_stream()
        while self._assembly.phase is not Phase.INSIDE:
            if self._assembly.phase is Phase.ENDED:
                self.position = self._assembly.mark
                yield from self._drop_stream()
                return False
            yield from self._take_event()
        return True

    def prefetch(self) -> Steps[SnapshotHead | None]:
        """Read a small snapshot whole, the first part of a large one; then it counts as handed out.

        None when the stream broke and there is no snapshot any more. A caller that was interrupted may call again."""
        size = 0
        while self._assembly.phase is Phase.INSIDE and size < PREFETCH_BYTES:
            length, messages = yield from self._take_event()
            size += length
            if messages:
                self._prefetched.append(messages)
            if self._assembly.head is None:
                size = 0
                if not (yield from self.wait_begin()):
                    return None
        self._handed_out = self._assembly.head
        return self._handed_out

    def read_batch(self) -> Steps[list[Message] | None]:
        """The next messages of the snapshot; None when it was given whole and its end is verified."""
        while self._prefetched or self._assembly.phase is Phase.INSIDE:
            if self._prefetched:
                messages = self._prefetched.pop(0)
            else:
                _, messages = yield from self._take_event()
            if messages:
                if self._by_message and self._handed_out is not None:
                    self.position = self._handed_out.mark_at(messages[-1].seq)
                return messages
        self._handed_out = None
        if self._assembly.head is not None:  # else a reader of single messages was cut short: its position stands
            self.position = self._assembly.mark
        return None

    # The stream

    def _take_event(self) -> Steps[tuple[int, list[Message]]]:
        """One event, its size and its messages. After a reconnect the assembly is between snapshots."""
        try:
            if self.stream is None:
                yield from self._connect()
            encoded = yield ReadStream(self.stream)
            if encoded is None:
                raise Unavailable("the server ended the stream")
            messages = self._assembly.take(encoded)
        except KayosError as error:
            yield from self._recover(error)
            return 0, []
        self._forget_failures()
        self._was_connected = True
        return len(encoded), messages

    def _connect(self) -> Steps[None]:
        self._check_open()
        view = yield from get_view(self._directory, self.topic)
        view.check_shard(self.shard)
        start = self._start
        if self.position is not None:
            start = Start.mark({self.shard: self.position})
        # A stream that stops at the end says where that is: so "latest" becomes a position.
        request = log_pb2.SubscribeRequest(
            shard=view.ref(self.shard), stop_at_end=self._stop_at_end or start.kind is StartKind.LATEST
        )
        start.fill(request, shard=self.shard, consumer=self._consumer)
        tail = view.tail(self.shard, self._turn)
        self._opened_at = self._directory.clock()
        self.stream = yield OpenStream(tail, LOG_METHODS["Subscribe"], request, STREAM_TIMEOUT_S)
        self._check_open()  # again: `close` from another thread may have come before there was a stream to cancel

    def _recover(self, error: KayosError) -> Steps[None]:
        """Drop the stream and wait a little, or raise when the error is the caller's to handle."""
        yield from self._drop_stream()
        self._assembly.restart()
        self._prefetched = []
        handed_out, self._handed_out = self._handed_out, None
        self._check_open()
        if isinstance(error, Aborted):
            error.fields["shard"] = self.shard  # whoever reads several must know which one to undo
        if judge(error) not in (Verdict.RETRY, Verdict.REROUTE) and not isinstance(error, SnapshotExpired):
            raise error
        if handed_out is not None and not self._by_message:
            raise SnapshotExpired(
                f"the stream of {self.topic}/{self.shard} broke inside the snapshot to {handed_out.end_seq} "
                f"({error.message}): drop what you took from it and ask for the next one, it begins at your mark",
                shard=self.shard,
            )
        self._check_patience(error)
        yield Pause(self._backoff.next_delay_s(error))
        self._turn += 1
        self._directory.forget_view(self.topic)

    def _check_open(self) -> None:
        if self.closed:
            raise FailedPrecondition("this consumer is closed: begin another one")

    def _check_patience(self, error: KayosError) -> None:
        """A reader that once worked looks for a server longer than one that never did."""
        now = self._directory.clock()
        settings = self._directory.settings
        if now - self._opened_at > STREAM_PROVEN_S:
            self._forget_failures()
        patience_s = settings.delivery_timeout_s if self._was_connected else settings.timeout_s
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since > patience_s:
            raise explain_silence(error, self._directory.all_servers, patience_s)

    def _forget_failures(self) -> None:
        self._backoff.reset()
        self._failing_since = None

    def _drop_stream(self) -> Steps[None]:
        stream, self.stream = self.stream, None
        if stream is not None:
            yield CloseStream(stream)
