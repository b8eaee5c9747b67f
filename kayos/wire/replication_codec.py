"""Between the words of the conversation and the bytes of a Follow stream.

Every word becomes one or more serialized messages, ready for a stream with identity serializers; an assembler per
stream turns them back. Whatever bytes come in, an assembler answers with a word that was checked whole, with None while
parts are missing, or with a KayosError; after an error the stream is to be ended.
"""

from kayos.errors import InvalidArgument
from kayos.limits import DOWNWARD_BYTES_MAX, NUMBER_MAX, UPWARD_BYTES_MAX
from kayos.stream.messages import Downward, Upward
from kayos.wire.replication_downward import read_downward, write_downward
from kayos.wire.replication_frames import Joiner, cut_frame, seal_frame
from kayos.wire.replication_upward import ShardKey, read_key, read_upward, write_upward
from kayos.wire.v1 import replication_pb2 as pb

__all__ = ["DownwardAssembler", "ShardKey", "UpwardAssembler", "encode_downward", "encode_upward"]


def encode_upward(message: Upward, key: ShardKey) -> list[bytes]:
    """Only Hello names the shard."""
    frame = pb.FollowRequest(session=message.session, epoch=message.epoch)
    write_upward(frame, message, key)
    return cut_frame(seal_frame(frame), lambda part: pb.FollowRequest(part=part), bytes_max=UPWARD_BYTES_MAX)


def encode_downward(message: Downward) -> list[bytes]:
    """Raises LimitReached for what is too long to be sent."""
    frame = pb.FollowResponse(session=message.session, epoch=message.epoch)
    write_downward(frame, message)
    return cut_frame(seal_frame(frame), lambda part: pb.FollowResponse(part=part), bytes_max=DOWNWARD_BYTES_MAX)


class UpwardAssembler:
    """One downstream's stream. `key` is what its Hello named, None before it."""

    __slots__ = ("_joiner", "key")

    def __init__(self) -> None:
        self._joiner = Joiner(pb.FollowRequest.FromString, bytes_max=UPWARD_BYTES_MAX)
        self.key: ShardKey | None = None

    def feed(self, received: bytes) -> Upward | None:
        opened = self._joiner.feed(received)
        if opened is None:
            return None
        name, frame = opened
        if name == "hello":
            self._note_key(read_key(frame.hello.shard))
        elif self.key is None:
            raise InvalidArgument(f"the stream begins with {name}: say Hello first")
        return read_upward(name, *_head_of(frame), frame)

    def _note_key(self, key: ShardKey) -> None:
        if self.key is not None and self.key != key:
            raise InvalidArgument("the stream is of another shard: open one for each")
        self.key = key


class DownwardAssembler:
    """The upstream's stream."""

    __slots__ = ("_joiner",)

    def __init__(self) -> None:
        self._joiner = Joiner(pb.FollowResponse.FromString, bytes_max=DOWNWARD_BYTES_MAX)

    def feed(self, received: bytes) -> Downward | None:
        opened = self._joiner.feed(received)
        if opened is None:
            return None
        name, frame = opened
        return read_downward(name, *_head_of(frame), frame)


def _head_of(frame: pb.FollowRequest | pb.FollowResponse) -> tuple[int, int]:
    session, epoch = frame.session, frame.epoch
    if session > NUMBER_MAX or epoch > NUMBER_MAX:
        raise InvalidArgument(f"session {session} or epoch {epoch} is above {NUMBER_MAX}")
    return session, epoch
