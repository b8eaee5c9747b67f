"""Drives the core's steps from a script: what each step is answered with stands in the test."""

from collections.abc import Iterator
from typing import Any

import google_crc32c

from kayos.client.core.calls import Directory
from kayos.client.core.settings import Settings
from kayos.client.core.steps import CloseStream, Invoke, OpenStream, Pause, ReadStream, Steps
from kayos.errors import KayosError
from kayos.wire.v1 import cluster_pb2, log_pb2, types_pb2

HISTORY = b"history-one-0001"
WIRE_VIEW = cluster_pb2.GetViewResponse(
    topic=cluster_pb2.Topic(name="t", shards=1),
    shards=[cluster_pb2.ShardView(shard=0, epoch=1, chain=["h:1"], tails=["x:1", "y:1"])],
)


class Script:
    """Streams as lists of events; an error in the list breaks the stream. Pauses move the clock."""

    def __init__(self, *streams: list[bytes | KayosError]) -> None:
        self.now = 0.0
        self.directory = Directory(Settings(("a:1",), timeout_s=10.0, delivery_timeout_s=60.0), lambda: self.now)
        self.requests: list[log_pb2.SubscribeRequest] = []
        self.opened_at: list[str] = []
        self.closed = 0
        self._streams = iter(streams)

    def run(self, steps: Steps[Any]) -> Any:
        reply: Any = None
        failure: KayosError | None = None
        while True:
            try:
                step = steps.throw(failure) if failure is not None else steps.send(reply)
            except StopIteration as done:
                return done.value
            reply, failure = None, None
            match step:
                case OpenStream(address, _, request):
                    self.opened_at.append(address)
                    self.requests.append(request)
                    reply = iter(next(self._streams))
                case ReadStream(stream):
                    found = next(stream, None)
                    reply, failure = (None, found) if isinstance(found, KayosError) else (found, None)
                case CloseStream():
                    self.closed += 1
                case Pause(seconds):
                    self.now += seconds
                case Invoke(_, method) if method.name == "GetView":
                    reply = WIRE_VIEW
                case _:
                    raise AssertionError(f"unexpected {step}")


def begin(start_seq: int, end_seq: int) -> bytes:
    row = types_pb2.TakeoverRow(history_id=HISTORY, start_seq=0, epoch=1)
    head = log_pb2.SnapshotBegin(start_seq=start_seq, end_seq=end_seq, takeover=[row])
    return log_pb2.SubscribeResponse(begin=head).SerializeToString()


def encoded_columns(*seqs: int, size: int = 1) -> bytes:
    return types_pb2.MessageColumns(
        seqs=seqs,
        timestamps_ms=[1000 + seq for seq in seqs],
        kinds=b"\x01" * len(seqs),
        keys=[b"k%d" % seq for seq in seqs],
        values=[b"v" * size for _ in seqs],
    ).SerializeToString()


def columns(*seqs: int, size: int = 1) -> bytes:
    return log_pb2.SubscribeResponse(columns=encoded_columns(*seqs, size=size)).SerializeToString()


def end(seq: int, *parts: bytes, count: int | None = None) -> bytes:
    """The end of a snapshot whose `columns` events were `parts`."""
    bodies = [log_pb2.SubscribeResponse.FromString(part).columns for part in parts]
    counted = sum(len(types_pb2.MessageColumns.FromString(body).seqs) for body in bodies)
    checksum = 0
    for body in bodies:
        checksum = google_crc32c.extend(checksum, body)
    mark = types_pb2.Mark(history_id=HISTORY, seq=seq, snapshot_end_seq=seq)
    boundary = log_pb2.SnapshotEnd(mark=mark, count=counted if count is None else count, checksum=checksum)
    return log_pb2.SubscribeResponse(end=boundary).SerializeToString()


def at_end(seq: int) -> bytes:
    mark = types_pb2.Mark(history_id=HISTORY if seq else b"", seq=seq)
    return log_pb2.SubscribeResponse(at_end=log_pb2.AtEnd(mark=mark)).SerializeToString()


def snapshot(start_seq: int, end_seq: int, *seqs: int) -> Iterator[bytes]:
    part = columns(*seqs)
    yield from (begin(start_seq, end_seq), part, end(end_seq, part))
