"""How a word of the replication protocol travels: sealed by its checksum, in parts when it is long.

The checksum is the message's last field. It covers every byte before its four, so the CRC32C over a sound message is
one constant, as with stored records, and verifying it is one call before anything is parsed.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import google_crc32c
from google.protobuf.message import DecodeError, Message

from kayos.errors import DamagedRecord, InvalidArgument, LimitReached
from kayos.limits import PART_BYTES_MAX
from kayos.model.record import CHECKSUM, CHECKSUM_RESIDUE, checksum_of
from kayos.wire.v1 import replication_pb2

# Field 15 of FollowRequest and FollowResponse, as fixed32.
_CHECKSUM_TAG = bytes((15 << 3 | 5,))


class Frame(Protocol):
    """FollowRequest or FollowResponse."""

    @property
    def part(self) -> replication_pb2.Part: ...

    def WhichOneof(self, oneof_group: str) -> str | None: ...


AnyFrame = TypeVar("AnyFrame", bound=Frame)


def seal_frame(message: Message) -> bytes:
    body = message.SerializeToString()
    checksum: int = google_crc32c.extend(checksum_of(body), _CHECKSUM_TAG)
    return b"".join((body, _CHECKSUM_TAG, CHECKSUM.pack(checksum)))


def cut_frame(sealed: bytes, make_part: Callable[[replication_pb2.Part], Message], *, bytes_max: int) -> list[bytes]:
    """A sealed word as the messages that carry it: itself, or its parts."""
    if len(sealed) <= PART_BYTES_MAX:
        return [sealed]
    if len(sealed) > bytes_max:
        raise LimitReached(f"a word of {len(sealed)} bytes is to be sent, {bytes_max} are the most")
    ends_at = len(sealed)
    return [
        seal_frame(
            make_part(replication_pb2.Part(data=sealed[at : at + PART_BYTES_MAX], last=at + PART_BYTES_MAX >= ends_at))
        )
        for at in range(0, ends_at, PART_BYTES_MAX)
    ]


class Joiner(Generic[AnyFrame]):
    """Turns the messages of one stream back into words: parsed, their checksums verified."""

    __slots__ = ("_bytes_max", "_parse", "_parts", "_size")

    def __init__(self, parse: Callable[[bytes], AnyFrame], *, bytes_max: int) -> None:
        self._parse = parse
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, received: bytes) -> tuple[str, AnyFrame] | None:
        """The word's name and its message; None while parts are missing."""
        name, frame = self._open(received)
        if name != "part":
            if self._parts:
                raise InvalidArgument(f"{name} comes between the parts of a word")
            return name, frame
        return self._join(frame.part)

    def _join(self, part: replication_pb2.Part) -> tuple[str, AnyFrame] | None:
        self._size += len(part.data)
        if not part.data or self._size > self._bytes_max:
            raise InvalidArgument(f"a word in parts has {self._size} bytes so far: 1 to {self._bytes_max} are allowed")
        self._parts.append(part.data)
        if not part.last:
            return None
        joined = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        name, frame = self._open(joined)
        if name == "part":
            raise InvalidArgument("the parts of a word are a part again")
        return name, frame

    def _open(self, received: bytes) -> tuple[str, AnyFrame]:
        if checksum_of(received) != CHECKSUM_RESIDUE:
            raise DamagedRecord(f"a word of {len(received)} bytes fails its checksum: it was changed on the way")
        try:
            frame = self._parse(received)
        except DecodeError as error:
            raise InvalidArgument("a word does not parse: the sender runs another version") from error
        name = frame.WhichOneof("word")
        if name is None:
            raise InvalidArgument("a word is of no known kind: the sender runs another version")
        return name, frame
