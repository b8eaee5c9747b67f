"""The pinned rows of one shard, in a range of sequences."""

from typing import Any

import google_crc32c

from kayos.client.core.calls import Directory, explain_silence, get_view
from kayos.client.core.message import Message, messages_from_columns
from kayos.client.core.pins import ShardPin
from kayos.client.core.reader import STREAM_TIMEOUT_S
from kayos.client.core.steps import CloseStream, OpenStream, Pause, ReadStream, Steps
from kayos.client.core.verdict import Backoff, Verdict, judge
from kayos.errors import DataLoss, KayosError, Unavailable
from kayos.wire.methods import LOG_METHODS
from kayos.wire.v1 import log_pb2


class PinReader:
    """One range of a pinned shard. The snapshot never changes, so a broken stream goes on where it was."""

    def __init__(self, directory: Directory, pin: ShardPin, *, after_seq: int, end_seq: int, tombstones: bool) -> None:
        self._directory = directory
        self._pin = pin
        self._after_seq = after_seq
        self._end_seq = end_seq
        self._tombstones = tombstones
        self._backoff = Backoff()
        self._failing_since: float | None = None
        self._turn = 0
        self._count = 0
        self._checksum = 0
        self._done = False
        self.stream: Any = None

    def read_batch(self) -> Steps[list[Message] | None]:
        """The next messages; None at the verified end."""
        while not self._done:
            try:
                if self.stream is None:
                    yield from self._connect()
                encoded = yield ReadStream(self.stream)
                if encoded is None:
                    raise Unavailable("the server ended the stream before its end")
            except KayosError as error:
                yield from self._recover(error)
                continue
            self._failing_since = None
            response = log_pb2.ReadPinResponse.FromString(encoded)
            messages = self._take(response.columns)
            if response.HasField("end"):
                self._check_end(response.end)
                self._done = True
                yield from self._drop_stream()
            if messages:
                return messages
        return None

    def _connect(self) -> Steps[None]:
        view = yield from get_view(self._directory, self._pin.topic)
        view.check_shard(self._pin.shard)
        request = log_pb2.ReadPinRequest(
            shard=view.ref(self._pin.shard),
            pin_id=self._pin.pin_id,
            after_seq=self._after_seq,
            end_seq=self._end_seq,
            tombstones=self._tombstones,
            min_seq=self._pin.seq,
        )
        self._count = self._checksum = 0
        tail = view.tail(self._pin.shard, self._turn)
        self.stream = yield OpenStream(tail, LOG_METHODS["ReadPin"], request, STREAM_TIMEOUT_S)

    def _take(self, columns: bytes) -> list[Message]:
        if not columns:
            return []
        messages = messages_from_columns(self._pin.topic, self._pin.shard, columns)
        self._checksum = google_crc32c.extend(self._checksum, columns)
        self._count += len(messages)
        if messages:
            self._after_seq = messages[-1].seq
        return messages

    def _check_end(self, end: log_pb2.ReadPinEnd) -> None:
        if end.count != self._count or end.checksum != self._checksum:
            raise DataLoss(
                f"pin {self._pin.pin_id!r} of {self._pin.topic}/{self._pin.shard} arrived damaged: read it again"
            )

    def _recover(self, error: KayosError) -> Steps[None]:
        yield from self._drop_stream()
        if judge(error) not in (Verdict.RETRY, Verdict.REROUTE):
            raise error
        now = self._directory.clock()
        patience_s = self._directory.settings.timeout_s
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since > patience_s:
            raise explain_silence(error, self._directory.all_servers, patience_s)
        yield Pause(self._backoff.next_delay_s(error))
        self._turn += 1
        self._directory.forget_view(self._pin.topic)

    def _drop_stream(self) -> Steps[None]:
        stream, self.stream = self.stream, None
        if stream is not None:
            yield CloseStream(stream)
