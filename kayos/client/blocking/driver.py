"""Performs the core's steps with blocking calls. Any thread may drive; channels are shared."""

import threading
import time
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from kayos.client.core.guard import Guarded, closed_client
from kayos.client.core.settings import CHANNEL_OPTIONS
from kayos.client.core.steps import CloseStream, Invoke, OpenStream, Pause, ReadStream, Result, Step, Steps
from kayos.errors import DataLoss, KayosError
from kayos.wire.status import error_from_rpc


class Driver(Guarded):
    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._channels: dict[str, grpc.Channel] = {}

    def run(self, steps: Steps[Result]) -> Result:
        """The result of a piece of work, every step of it done here and now."""
        self.check_usable()
        reply: Any = None
        failure: KayosError | None = None
        while True:
            try:
                step = steps.throw(failure) if failure is not None else steps.send(reply)
            except StopIteration as done:
                result: Result = done.value
                return result
            reply = failure = None
            try:
                reply = self._perform(step)
            except grpc.RpcError as error:
                failure = error_from_rpc(error)
            except KayosError as error:
                failure = error
            except ValueError:
                # What gRPC raises for a call on a channel that `close` took away meanwhile.
                if not self.is_closed:
                    raise
                failure = closed_client()

    def channel(self, address: str) -> grpc.Channel:
        with self._lock:
            self.check_usable()
            if address not in self._channels:
                self._channels[address] = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
            return self._channels[address]

    def close(self) -> None:
        with self._lock:
            self.is_closed = True
            channels, self._channels = tuple(self._channels.values()), {}
        for channel in channels:
            channel.close()

    def _perform(self, step: Step) -> Any:
        match step:
            case Invoke():
                call: Any = self.channel(step.address).unary_unary(step.method.path)
                encoded = call(step.request.SerializeToString(), timeout=step.timeout_s)
                try:
                    return step.method.response_class.FromString(encoded)
                except DecodeError:
                    raise DataLoss(f"{step.address} sent an answer that cannot be read") from None
            case OpenStream():
                stream: Any = self.channel(step.address).unary_stream(step.method.path)
                return stream(step.request.SerializeToString(), timeout=step.timeout_s)
            case ReadStream():
                return next(step.stream, None)
            case CloseStream():
                return step.stream.cancel()
            case Pause():
                return time.sleep(step.seconds)
