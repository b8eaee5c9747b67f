"""Columns of messages straight into requests: the fast way in, without an object per message."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, cast

from kayos.client.core.delivery import BatchDelivery
from kayos.client.core.route import hash_of
from kayos.client.core.write import MESSAGE_OVERHEAD_BYTES
from kayos.errors import InvalidArgument, KayosError
from kayos.limits import BATCH_BYTES_MAX, BATCH_COUNT_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX
from kayos.model.record import Kind
from kayos.wire.v1 import log_pb2

Keys = Sequence[bytes] | None
Values = Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class Piece:
    """One request of a bulk send."""

    shard: int
    body: bytes
    count: int
    size: int


@dataclass(frozen=True, slots=True)
class BulkDelivery:
    """The outcome of one `send_many`: one entry per request."""

    count: int
    batches: tuple[BatchDelivery, ...]


@dataclass(slots=True)
class BulkTicket:
    """Gathers the outcomes of the requests that one call was split into."""

    future: Any
    waiting: int = 1
    done: list[BatchDelivery] = field(default_factory=list)
    error: KayosError | None = None

    def add(self) -> None:
        self.waiting += 1

    def settle(self, outcome: BatchDelivery | KayosError | None) -> bool:
        """One request is over, and whether that was the last; None: the caller has handed in all of them."""
        self.waiting -= 1
        if isinstance(outcome, KayosError):
            self.error = self.error or outcome
        elif outcome is not None:
            self.done.append(outcome)
        return not self.waiting

    def result(self) -> BulkDelivery:
        return BulkDelivery(sum(batch.count for batch in self.done), tuple(self.done))


def check_columns(keys: Keys, values: Values) -> None:
    if not values:
        raise InvalidArgument("there is no message to send: give at least one value")
    if keys is not None:
        if len(keys) != len(values):
            raise InvalidArgument(f"{len(keys)} keys and {len(values)} values: give as many of each")
        _check_bytes("key", keys)
        lengths = set(map(len, keys))
        if min(lengths) < 1 or max(lengths) > KEY_BYTES_MAX:
            raise InvalidArgument(f"a key has {min(lengths) and max(lengths)} bytes: give 1 to {KEY_BYTES_MAX}")
    present = without_deletes(values)
    if keys is None and len(present) != len(values):
        raise InvalidArgument("a delete needs a key: give keys, or no None among the values")
    _check_bytes("value", present)
    longest = max(map(len, present), default=0)
    if longest > VALUE_BYTES_MAX:
        raise InvalidArgument(f"a value has {longest} bytes, the most is {VALUE_BYTES_MAX}: split it")


def _check_bytes(what: str, column: Sequence[Any]) -> None:
    others = set(map(type, column)) - {bytes}
    if others:
        raise InvalidArgument(f"a {what} is {others.pop().__name__}: give bytes")


def split(
    keys: Keys, values: Values, *, shards: int, route_shard: int | None, batch_bytes: int, durability: int
) -> Iterator[Piece]:
    """Requests of about `batch_bytes`, each for one shard, in the order of the messages of that shard.

    `route_shard` sends everything to one shard; otherwise keys decide.
    """
    if route_shard is not None or shards == 1 or keys is None:
        yield from _cut(keys, values, route_shard or 0, batch_bytes, durability)
        return
    targets = [digest % shards for digest in map(hash_of, keys)]
    for shard in sorted(set(targets)):
        chosen = [target == shard for target in targets]
        yield from _cut(list(compress(keys, chosen)), list(compress(values, chosen)), shard, batch_bytes, durability)


def _cut(keys: Keys, values: Values, shard: int, batch_bytes: int, durability: int) -> Iterator[Piece]:
    total = _size(keys, values)
    step = max(1, min(BATCH_COUNT_MAX, batch_bytes * len(values) // total))
    waiting = [(start, min(start + step, len(values))) for start in range(0, len(values), step)][::-1]
    while waiting:
        start, stop = waiting.pop()
        part_keys = keys[start:stop] if keys is not None else None
        part_values = values[start:stop]
        size = _size(part_keys, part_values)
        if size > BATCH_BYTES_MAX and stop - start > 1:
            middle = (start + stop) // 2
            waiting += [(middle, stop), (start, middle)]
            continue
        body = _encode(part_keys, part_values, durability)
        yield Piece(shard, body, stop - start, size)


def without_deletes(values: Values) -> Sequence[bytes]:
    """The values that are there; the column itself when there is no delete in it."""
    if None in values:
        return [value for value in values if value is not None]
    return cast(Sequence[bytes], values)


def _size(keys: Keys, values: Values) -> int:
    return (
        sum(map(len, without_deletes(values)))
        + (sum(map(len, keys)) if keys else 0)
        + MESSAGE_OVERHEAD_BYTES * len(values)
    )


def _encode(keys: Keys, values: Values, durability: int) -> bytes:
    present = without_deletes(values)
    kinds = b""
    if len(present) != len(values):
        kinds = bytes(Kind.DELETE if value is None else Kind.PUT for value in values)
        present = [value or b"" for value in values]
    request = log_pb2.ProduceRequest(keys=keys or (), values=present, kinds=kinds, durability=durability)
    return request.SerializeToString()
