"""Binding the schema's methods to services: bytes in, parsed here; errors out, mapped here.

A method `CommitMark` is served by the coroutine `commit_mark(request, call)` of a service object. Requests
are parsed in our code, so that a malformed one is INVALID_ARGUMENT. A KayosError becomes its status with
details; any other exception is a bug: INTERNAL with an error id, its text only in the log, because gRPC would
send the text of an exception to the caller.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from kayos.errors import InternalError, InvalidArgument, KayosError, LimitReached, ShuttingDown
from kayos.server.logs import get_log
from kayos.wire.methods import Method
from kayos.wire.status import DETAILS_KEY, error_to_bytes, grpc_code

ABORT_S = 2.0
DRAINING = ShuttingDown("the node is shutting down: send again, to another node or later", retry_delay_ms=1000)

Context = Any


class Gate:
    """Which calls may come in. `running` counts those inside, by method; `limits` bounds some of them."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self.running: Counter[str] = Counter()
        self._idle = asyncio.Event()
        self._idle.set()
        self._limits = limits
        self._closing: list[Callable[[], object]] = []
        self.is_draining = False

    def enter(self, name: str) -> None:
        if self.is_draining:
            raise ShuttingDown(DRAINING.message, **DRAINING.fields)
        most = self._limits.get(name)
        if most is not None and self.running[name] >= most:
            raise LimitReached(f"{most} {name} calls are running, the node's most: try later", retry_delay_ms=1000)
        self.running[name] += 1
        self._idle.clear()

    def leave(self, name: str) -> None:
        self.running[name] -= 1
        if not self.running.total():
            self._idle.set()

    async def wait_idle(self, timeout_s: float) -> None:
        """Until no call is inside, or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()

    def drain(self) -> None:
        """Refuse new calls and tell long-lived ones to end."""
        self.is_draining = True
        for close in list(self._closing):
            close()

    def on_drain(self, close: Callable[[], object]) -> Callable[[], None]:
        """Call `close` when the drain begins; returns how to take that back."""
        self._closing.append(close)
        return lambda: self._closing.remove(close)


class Call:
    """What a service may know of its call: how to send, and whether the node is closing."""

    def __init__(self, context: Context, gate: Gate) -> None:
        self._context = context
        self.gate = gate

    async def write(self, encoded: bytes) -> None:
        await self._context.write(encoded)


def bind_service(
    service: object, methods: Mapping[str, Method], gate: Gate, *, is_raw: bool = False
) -> grpc.GenericRpcHandler:
    """A generic handler for all methods of one service. A raw service parses the bytes of its streams itself."""
    handlers: dict[str, Any] = {}
    for method in methods.values():
        serve = getattr(service, method.handler_name)
        if method.client_streams:
            bind = bind_raw_streams if is_raw else bind_streams
            handlers[method.name] = grpc.stream_stream_rpc_method_handler(bind(method, serve, gate))
        elif method.server_streams:
            handlers[method.name] = grpc.unary_stream_rpc_method_handler(bind_stream(method, serve, gate))
        else:
            handlers[method.name] = grpc.unary_unary_rpc_method_handler(bind_unary(method, serve, gate))
    name = next(iter(methods.values())).service
    return grpc.method_handlers_generic_handler(name, handlers)


def bind_unary(method: Method, serve: Callable[..., Awaitable[Message]], gate: Gate) -> Callable[..., Any]:
    async def handle(encoded: bytes, context: Context) -> bytes:
        response = b""

        async def run() -> None:
            nonlocal response
            response = (await serve(parse(method, encoded), Call(context, gate))).SerializeToString()

        failure = await guard(method, gate, run)
        if failure is not None:
            set_status(context, failure)
        return response

    return handle


def bind_stream(method: Method, serve: Callable[..., Awaitable[None]], gate: Gate) -> Callable[..., Any]:
    async def handle(encoded: bytes, context: Context) -> None:
        failure = await guard(method, gate, lambda: serve(parse(method, encoded), Call(context, gate)))
        if failure is not None:
            await abort(context, failure)

    return handle


def bind_raw_streams(method: Method, serve: Callable[..., Awaitable[None]], gate: Gate) -> Callable[..., Any]:
    async def handle(encoded_requests: AsyncIterator[bytes], context: Context) -> None:
        failure = await guard(method, gate, lambda: serve(encoded_requests, Call(context, gate)))
        if failure is not None:
            await abort(context, failure)

    return handle


def bind_streams(method: Method, serve: Callable[..., Awaitable[None]], gate: Gate) -> Callable[..., Any]:
    async def handle(encoded_requests: AsyncIterator[bytes], context: Context) -> None:
        async def requests() -> AsyncIterator[Message]:
            async for encoded in encoded_requests:
                yield parse(method, encoded)

        failure = await guard(method, gate, lambda: serve(requests(), Call(context, gate)))
        if failure is not None:
            await abort(context, failure)

    return handle


async def guard(method: Method, gate: Gate, run: Callable[[], Awaitable[None]]) -> KayosError | None:
    """Count the call and run it; why it failed, for the caller. No exception gets out but a cancellation."""
    try:
        gate.enter(method.name)
        try:
            await run()
        finally:
            gate.leave(method.name)
    except KayosError as error:
        return without_trace(error)
    except Exception:
        return internal_error(method)
    return None


def without_trace(error: KayosError) -> KayosError:
    """The error for its caller. Its traceback holds the frames it passed, and those hold the request and, through
    the futures in them, the error itself: such a ring of megabytes would wait for the garbage collector."""
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


def internal_error(method: Method) -> InternalError:
    """Call it while the exception is being handled; the log gets its text."""
    error_id = secrets.token_hex(8)
    get_log().exception("internal error", method=method.name, error_id=error_id)
    return InternalError(
        f"internal error {error_id}: a bug, please report it with the node's log of that id", error_id=error_id
    )


def parse(method: Method, encoded: bytes) -> Message:
    try:
        return method.request_class.FromString(encoded)
    except (DecodeError, ValueError, RecursionError):
        raise InvalidArgument(
            f"the request is not a well-formed {method.request_class.DESCRIPTOR.full_name}: check the client's schema"
        ) from None


def set_status(context: Context, error: KayosError) -> None:
    """The status of a unary call whose handler returns now. `abort` would do the same by an exception, which gRPC
    keeps in a ring of references with our frames: each refused request would stay until a garbage collection."""
    context.set_trailing_metadata(((DETAILS_KEY, error_to_bytes(error)),))
    context.set_code(grpc_code(error))
    context.set_details(error.message)


async def abort(context: Context, error: KayosError) -> None:
    """End a stream with the error's status.

    A client that reads nothing also takes no status; after `ABORT_S` the call is dropped instead (the client
    sees it cancelled), so that neither the handler nor the unread message stays.
    """
    context.set_trailing_metadata(((DETAILS_KEY, error_to_bytes(error)),))
    try:
        async with asyncio.timeout(ABORT_S):
            await context.abort(grpc_code(error), error.message)
    except TimeoutError:
        raise asyncio.CancelledError from None
