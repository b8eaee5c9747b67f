"""Reads of single things: a key's newest message, and the fate of a write."""

from kayos.client.core.calls import Directory, call_head, call_tail, get_view
from kayos.client.core.delivery import Delivery
from kayos.client.core.message import Message
from kayos.client.core.route import check_route, shard_of
from kayos.client.core.steps import Steps
from kayos.client.core.write import check_key
from kayos.errors import InvalidArgument
from kayos.wire.v1 import log_pb2

_UNTIL = {
    "any_tail": log_pb2.WaitRequest.UNTIL_ANY_TAIL,
    "all_tails": log_pb2.WaitRequest.UNTIL_ALL_TAILS,
}


def get(directory: Directory, topic: str, key: bytes, *, min_seq: int, route: bytes | None) -> Steps[Message | None]:
    """The live message of a key, or None; waits until the log has reached `min_seq` (read your own write)."""
    check_key(key)
    if not 0 <= min_seq < 2**64:
        raise InvalidArgument(f"min_seq is {min_seq}: give 0 or a sequence that you were told")
    check_route(route)
    view = yield from get_view(directory, topic)
    shard = shard_of(key if route is None else route, view.shards)
    response = yield from call_tail(
        directory, "Get", topic, shard, lambda ref: log_pb2.GetRequest(shard=ref, key=key, min_seq=min_seq)
    )
    if not response.found:
        return None
    headers = tuple((header.name, header.value) for header in response.headers)
    return Message(topic, shard, response.seq, key, response.value, response.timestamp_ms, headers)


def wait(directory: Directory, delivery: Delivery, *, until: int | str, timeout_s: float | None) -> Steps[int]:
    """How many copies hold the write, once that is what was asked: a number, 'all', 'any_tail', 'all_tails'."""
    request = log_pb2.WaitRequest(history_id=delivery.history_id, seq=delivery.seq)
    if isinstance(until, int) and until > 0:
        request.until = log_pb2.WaitRequest.UNTIL_COPIES
        request.copies = until
    elif until == "all":
        request.until = log_pb2.WaitRequest.UNTIL_COPIES
    elif isinstance(until, str) and until in _UNTIL:
        request.until = _UNTIL[until]
    else:
        raise InvalidArgument(f"until is {until!r}: give a number of copies, 'all', 'any_tail' or 'all_tails'")

    def build(ref: log_pb2.ShardRef) -> log_pb2.WaitRequest:
        request.shard.CopyFrom(ref)
        return request

    response = yield from call_head(directory, "Wait", delivery.topic, delivery.shard, build, timeout_s=timeout_s)
    copies: int = response.copies
    return copies
