"""Which shard a message belongs to, and which node serves that shard."""

from dataclasses import dataclass

import xxhash

from kayos.errors import InvalidArgument
from kayos.model.topic import Topic
from kayos.wire.codec import topic_from_wire
from kayos.wire.v1 import cluster_pb2, log_pb2

hash_of = xxhash.xxh3_64_intdigest


def shard_of(routed_by: bytes, shards: int) -> int:
    """The shard of a key, or of a `route` given in its place. Part of the protocol: never changes."""
    return hash_of(routed_by) % shards if shards > 1 else 0


@dataclass(frozen=True, slots=True)
class ShardRoute:
    epoch: int
    chain: tuple[str, ...]
    tails: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A topic and where its shards live, as one node told it."""

    topic: Topic
    routes: tuple[ShardRoute, ...]

    @property
    def shards(self) -> int:
        return len(self.routes)

    def head(self, shard: int) -> str:
        return self.routes[shard].chain[0]

    def tail(self, shard: int, turn: int) -> str:
        """One of the tails; the next one at every turn."""
        tails = self.routes[shard].tails
        return tails[turn % len(tails)]

    def ref(self, shard: int) -> log_pb2.ShardRef:
        return log_pb2.ShardRef(topic=self.topic.name, shard=shard, epoch=self.routes[shard].epoch)

    def check_shard(self, shard: int) -> None:
        if not 0 <= shard < self.shards:
            raise InvalidArgument(f"topic {self.topic.name!r} has no shard {shard}: give 0 to {self.shards - 1}")


def check_route(route: bytes | None) -> None:
    if route is not None and (not isinstance(route, bytes) or not route):
        raise InvalidArgument(f"route is {route!r}: give bytes that stand for the shard, or leave it out")


def find_shard(view: View, key: bytes | None, route: bytes | None) -> int | None:
    """The shard of a message by its route or key; None for an unkeyed one, which may go anywhere."""
    check_route(route)
    routed_by = key if route is None else route
    return shard_of(routed_by, view.shards) if routed_by else None


def view_from_wire(response: cluster_pb2.GetViewResponse) -> View | None:
    """The view, or None while some shard has no head or no tail (a takeover is under way)."""
    ordered = sorted(response.shards, key=lambda shard: shard.shard)
    routes = tuple(ShardRoute(shard.epoch, tuple(shard.chain), tuple(shard.tails)) for shard in ordered)
    numbered = [shard.shard for shard in ordered] == list(range(response.topic.shards))
    if not routes or not numbered or not all(route.chain and route.tails for route in routes):
        return None
    return View(topic_from_wire(response.topic), routes)


class StickyShard:
    """Unkeyed messages stay on one shard until its batch is full, then go on to the next: fewer, larger
    requests than one shard per message."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def pick(self, topic: str, shards: int) -> int:
        return self._turns.get(topic, 0) % shards

    def move_on(self, topic: str) -> None:
        self._turns[topic] = self._turns.get(topic, 0) + 1
