"""The words of a downstream, written into a FollowRequest and read out of one.

A type or name that the tables do not list is a bug here or another version there; either way it is an error.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from kayos.errors import InvalidArgument
from kayos.limits import INCARNATION_BYTES_MAX, KEY_BYTES_MAX, ROLLBACK_KEYS_PER_QUESTION, SHARDS_MAX
from kayos.model.sync import READY, SyncPhase, SyncState
from kayos.model.topic import check_name
from kayos.stream.messages import Ack, AskPiece, AskRecords, Hello, Upward
from kayos.wire.codec import takeover_to_wire
from kayos.wire.replication_rows import check_history, check_numbers, durable_from_wire, takeover_from_wire
from kayos.wire.v1 import replication_pb2 as pb


class ShardKey(NamedTuple):
    """Which conversation a stream is."""

    topic_id: str
    shard: int


def write_upward(frame: pb.FollowRequest, message: Upward, key: ShardKey) -> None:
    if isinstance(message, Hello):
        _write_key(frame.hello.shard, key)
    _WRITERS[type(message)](frame, message)


def read_upward(name: str, session: int, epoch: int, frame: pb.FollowRequest) -> Upward:
    return _READERS[name](session, epoch, getattr(frame, name))


def _write_key(wire: pb.ShardKey, key: ShardKey) -> None:
    wire.topic_id, wire.shard = key


def read_key(wire: pb.ShardKey) -> ShardKey:
    check_name("topic_id", wire.topic_id)
    if wire.shard >= SHARDS_MAX:
        raise InvalidArgument(f"shard is {wire.shard}: 0 to {SHARDS_MAX - 1} are allowed")
    return ShardKey(wire.topic_id, wire.shard)


def _write_hello(frame: pb.FollowRequest, hello: Hello) -> None:
    wire = frame.hello
    wire.node = hello.node
    wire.incarnation = hello.incarnation
    wire.takeover.extend(takeover_to_wire(hello.takeover))
    wire.high_seq = hello.high_seq
    wire.commit_point = hello.commit_point
    wire.purge_seq = hello.purge_seq
    wire.removal_seq = hello.removal_seq
    if not hello.sync.is_ready:
        wire.catching_up.CopyFrom(_sync_to_wire(hello.sync))


def _read_hello(session: int, epoch: int, wire: pb.Hello) -> Hello:
    check_name("node", wire.node)
    if not 1 <= len(wire.incarnation) <= INCARNATION_BYTES_MAX:
        raise InvalidArgument(f"the incarnation has {len(wire.incarnation)} bytes: give 1 to {INCARNATION_BYTES_MAX}")
    numbers = {
        "high_seq": wire.high_seq,
        "commit_point": wire.commit_point,
        "purge_seq": wire.purge_seq,
        "removal_seq": wire.removal_seq,
    }
    check_numbers(**numbers)
    sync = _sync_from_wire(wire.catching_up) if wire.HasField("catching_up") else READY
    takeover = takeover_from_wire(wire.takeover)
    return Hello(session, epoch, wire.node, wire.incarnation, takeover=takeover, sync=sync, **numbers)


def _sync_to_wire(sync: SyncState) -> pb.CatchUpState:
    return pb.CatchUpState(
        start_seq=sync.start_seq,
        through_seq=sync.through_seq,
        end_seq=sync.end_seq,
        first_end_seq=sync.first_end_seq,
        source_history=sync.source_history,
    )


def _sync_from_wire(wire: pb.CatchUpState) -> SyncState:
    source = check_history("source_history", wire.source_history)
    numbers = (wire.start_seq, wire.through_seq, wire.end_seq, wire.first_end_seq)
    check_numbers(start_seq=wire.start_seq, end_seq=wire.end_seq)
    if not wire.start_seq <= wire.through_seq or not max(wire.through_seq, wire.first_end_seq) <= wire.end_seq:
        raise InvalidArgument(f"the catch-up's range {numbers} cannot be: start, through, end, first end")
    return SyncState(SyncPhase.CATCHING_UP, *numbers, source_history=source)


def _write_ack(frame: pb.FollowRequest, ack: Ack) -> None:
    frame.ack.synced_seq = ack.synced_seq
    frame.ack.durable.update(ack.durable)


def _read_ack(session: int, epoch: int, wire: pb.Ack) -> Ack:
    check_numbers(synced_seq=wire.synced_seq)
    return Ack(session, epoch, wire.synced_seq, durable_from_wire(wire.durable))


def _write_ask_piece(frame: pb.FollowRequest, ask: AskPiece) -> None:
    wire = frame.ask_piece
    wire.after_seq = ask.after_seq
    wire.start_seq = ask.start_seq
    wire.min_end_seq = ask.min_end_seq
    wire.all_retained = ask.all_retained


def _read_ask_piece(session: int, epoch: int, wire: pb.AskPiece) -> AskPiece:
    check_numbers(after_seq=wire.after_seq, start_seq=wire.start_seq, min_end_seq=wire.min_end_seq)
    return AskPiece(session, epoch, wire.after_seq, wire.start_seq, wire.min_end_seq, wire.all_retained)


def _write_ask_records(frame: pb.FollowRequest, ask: AskRecords) -> None:
    frame.ask_records.through_seq = ask.through_seq
    frame.ask_records.keys.extend(ask.keys)


def _read_ask_records(session: int, epoch: int, wire: pb.AskRecords) -> AskRecords:
    check_numbers(through_seq=wire.through_seq)
    keys = tuple(wire.keys)
    if len(keys) > ROLLBACK_KEYS_PER_QUESTION:
        raise InvalidArgument(f"{len(keys)} keys are asked for: ask for at most {ROLLBACK_KEYS_PER_QUESTION}")
    if keys and not 1 <= min(map(len, keys)) <= max(map(len, keys)) <= KEY_BYTES_MAX:
        raise InvalidArgument(f"a key that is asked for has no byte or more than {KEY_BYTES_MAX}")
    return AskRecords(session, epoch, keys, wire.through_seq)


_WRITERS: dict[type, Callable[[pb.FollowRequest, Any], None]] = {
    Hello: _write_hello,
    Ack: _write_ack,
    AskPiece: _write_ask_piece,
    AskRecords: _write_ask_records,
}
_READERS: dict[str, Callable[[int, int, Any], Upward]] = {
    "hello": _read_hello,
    "ack": _read_ack,
    "ask_piece": _read_ask_piece,
    "ask_records": _read_ask_records,
}
