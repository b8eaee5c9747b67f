"""Performs the core's steps on the running event loop."""

import asyncio
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc.aio import UsageError

from kayos.client.core.guard import Guarded, closed_client
from kayos.client.core.settings import CHANNEL_OPTIONS
from kayos.client.core.steps import CloseStream, Invoke, OpenStream, Pause, ReadStream, Result, Step, Steps
from kayos.errors import DataLoss, KayosError, Unavailable
from kayos.wire.status import error_from_rpc


def error_from_call(error: BaseException) -> KayosError:
    """What a failed call means. grpc.aio tells of a call that the other side or `cancel` ended by CancelledError."""
    if isinstance(error, grpc.RpcError):
        return error_from_rpc(error)
    return Unavailable("the call was cancelled")


class Driver(Guarded):
    def __init__(self) -> None:
        super().__init__()
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def run(self, steps: Steps[Result]) -> Result:
        """The result of a piece of work, every step of it awaited."""
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
                reply = await self._perform(step)
            except grpc.RpcError as error:
                failure = error_from_call(error)
            except KayosError as error:
                failure = error
            except asyncio.CancelledError:
                if not isinstance(step, ReadStream) or not step.stream.cancelled() or is_being_cancelled():
                    raise
                failure = Unavailable("the stream was cancelled")
            except UsageError:
                # What gRPC raises for a call on a channel that `close` took away meanwhile.
                failure = closed_client()

    def channel(self, address: str) -> grpc.aio.Channel:
        self.check_usable()
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        return self._channels[address]

    async def close(self) -> None:
        self.is_closed = True
        channels, self._channels = tuple(self._channels.values()), {}
        for channel in channels:
            await channel.close()

    async def _perform(self, step: Step) -> Any:
        match step:
            case Invoke():
                call: Any = self.channel(step.address).unary_unary(step.method.path)
                encoded = await call(step.request.SerializeToString(), timeout=step.timeout_s)
                try:
                    return step.method.response_class.FromString(encoded)
                except DecodeError:
                    raise DataLoss(f"{step.address} sent an answer that cannot be read") from None
            case OpenStream():
                stream: Any = self.channel(step.address).unary_stream(step.method.path)
                return stream(step.request.SerializeToString(), timeout=step.timeout_s)
            case ReadStream():
                encoded = await step.stream.read()
                return None if encoded is grpc.aio.EOF else encoded
            case CloseStream():
                return step.stream.cancel()
            case Pause():
                return await asyncio.sleep(step.seconds)


def is_being_cancelled() -> bool:
    """Whether somebody cancelled the task that runs now, as opposed to the call that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
