"""The words in which the core asks a shell for IO.

A piece of work is a generator of steps. It yields what it wants done and is sent the outcome, or has the
error thrown into it as a KayosError. The blocking and the asyncio driver each perform these five steps and
know nothing else, so that every decision is written once.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import Message as WireMessage

from kayos.wire.methods import Method

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Invoke:
    """One unary call; the reply is the parsed response."""

    address: str
    method: Method
    request: WireMessage
    timeout_s: float


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Begin a streamed answer; the reply is the stream, opaque to the core."""

    address: str
    method: Method
    request: WireMessage
    timeout_s: float


@dataclass(frozen=True, slots=True)
class ReadStream:
    """The next response of a stream as bytes; None when the server ended it."""

    stream: Any


@dataclass(frozen=True, slots=True)
class CloseStream:
    stream: Any


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


Step = Invoke | OpenStream | ReadStream | CloseStream | Pause
Steps = Generator[Step, Any, Result]
