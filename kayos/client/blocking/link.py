"""One produce stream: payloads go out through a queue, answers come back on a thread of its own."""

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import grpc

from kayos.client.core.reader import STREAM_TIMEOUT_S
from kayos.errors import KayosError, Unavailable
from kayos.wire.methods import LOG_METHODS
from kayos.wire.status import error_from_rpc
from kayos.wire.v1 import log_pb2

CLOSE_S = 5.0


class Link:
    """`on_answer` and `on_broken` are called on the link's thread; `on_broken` exactly once, last."""

    def __init__(
        self,
        channel: grpc.Channel,
        *,
        on_answer: Callable[[log_pb2.ProduceResponse], None],
        on_broken: Callable[[KayosError], None],
    ) -> None:
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._on_answer = on_answer
        self._on_broken = on_broken
        stream: Any = channel.stream_stream(LOG_METHODS["ProduceStream"].path)
        self._call = stream(self._payloads(), timeout=STREAM_TIMEOUT_S)
        self._thread = threading.Thread(target=self._read, name="kayos-link", daemon=True)
        self._thread.start()

    def send(self, payload: bytes) -> None:
        self._outgoing.put(payload)

    def close(self) -> None:
        self._outgoing.put(None)
        self._call.cancel()

    def wait_closed(self) -> None:
        """Until the link's thread has ended, and let go of the call.

        Python ends its daemon threads wherever they stand. One that held the lock of its call would leave it locked,
        and gRPC, which takes that lock when the call object goes, would hang at the end of the interpreter."""
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_S)
            self._call = None

    def _payloads(self) -> Iterator[bytes]:
        while (payload := self._outgoing.get()) is not None:
            yield payload

    def _read(self) -> None:
        reason: KayosError = Unavailable("the server ended the stream")
        try:
            for encoded in self._call:
                self._on_answer(log_pb2.ProduceResponse.FromString(encoded))
        except grpc.RpcError as error:
            reason = error_from_rpc(error)
        finally:
            self._outgoing.put(None)
            self._on_broken(reason)
