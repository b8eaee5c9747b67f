"""One row of the table of bad requests: what is sent, and what must be answered."""

from dataclasses import dataclass

from google.protobuf.message import Message

from kayos.wire.v1 import log_pb2

GOOD = log_pb2.ShardRef(topic="good")
BIG = 2**64 - 1


@dataclass(frozen=True)
class Bad:
    """`advice` is a part of the message that tells the caller what to do."""

    name: str
    method: str
    request: Message | bytes
    status: str
    code: str
    advice: str


def invalid(name: str, method: str, request: Message | bytes, advice: str) -> Bad:
    return Bad(name, method, request, "INVALID_ARGUMENT", "INVALID_ARGUMENT", advice)
