"""Which shard a message goes to: part of the protocol, so the vectors are pinned for clients in any language."""

import pytest

from kayos.client.core.route import ShardRoute, StickyShard, View, find_shard, hash_of, shard_of, view_from_wire
from kayos.errors import InvalidArgument
from kayos.model.topic import Topic
from kayos.wire.v1 import cluster_pb2

# XXH3, 64 bits, seed 0, as an unsigned number; the shard is that modulo the number of shards.
VECTORS = [
    (b"a", 16629034431890738719),
    (b"k", 12187272138156836893),
    (b"orders-42", 8810291511412974982),
    (b"\x00\xff", 12221366661834116083),
    (b"schl\xc3\xbcssel", 1930512577882366174),
    (b"x" * 17, 9914496920434203153),
    (b"y" * 129, 17089693233701652329),
    (b"z" * 241, 14535061711733690422),
    (bytes(range(256)) * 16, 16954781797957734737),
]


@pytest.mark.parametrize(("key", "digest"), VECTORS)
def test_keys_hash_as_xxh3_64(key: bytes, digest: int) -> None:
    assert hash_of(key) == digest
    for shards in (2, 3, 7, 1024):
        assert shard_of(key, shards) == digest % shards
    assert shard_of(key, 1) == 0


def view(shards: int) -> View:
    return View(Topic("t", "id", shards=shards), tuple(ShardRoute(1, ("h:1",), ("x:1", "y:1")) for _ in range(shards)))


def test_a_route_takes_the_place_of_the_key() -> None:
    assert (
        find_shard(view(8), b"a", b"customer-1")
        == find_shard(view(8), b"b", b"customer-1")
        == shard_of(b"customer-1", 8)
    )
    assert find_shard(view(8), b"a", None) == shard_of(b"a", 8)
    assert find_shard(view(8), None, b"r") == shard_of(b"r", 8)
    assert find_shard(view(8), None, None) is None


@pytest.mark.parametrize("route", [b"", "text", 3])
def test_a_route_that_says_nothing_is_refused(route: object) -> None:
    with pytest.raises(InvalidArgument, match="route is"):
        find_shard(view(2), b"k", route)  # type: ignore[arg-type]


def test_tails_take_turns_and_the_head_stands_first() -> None:
    assert [view(1).tail(0, turn) for turn in range(3)] == ["x:1", "y:1", "x:1"]
    assert view(1).head(0) == "h:1"
    with pytest.raises(InvalidArgument, match="has no shard 1: give 0 to 0"):
        view(1).check_shard(1)


@pytest.mark.parametrize(
    ("shards", "chains", "is_usable"),
    [
        (1, {0: (["a:1"], ["a:1"])}, True),
        (2, {1: (["a:1"], ["a:1"]), 0: (["b:1"], ["b:1"])}, True),
        (2, {0: (["a:1"], ["a:1"])}, False),
        (1, {0: ([], ["a:1"])}, False),
        (1, {0: (["a:1"], [])}, False),
        (0, {}, False),
    ],
    ids=["one", "out of order", "a shard is missing", "no head", "no tail", "nothing"],
)
def test_a_view_is_used_only_when_every_shard_has_a_head_and_a_tail(
    shards: int, chains: dict[int, tuple[list[str], list[str]]], is_usable: bool
) -> None:
    wire = [cluster_pb2.ShardView(shard=shard, chain=chain, tails=tails) for shard, (chain, tails) in chains.items()]
    found = view_from_wire(cluster_pb2.GetViewResponse(topic=cluster_pb2.Topic(name="t", shards=shards), shards=wire))
    assert (found is not None) == is_usable
    if found is not None:
        assert found.head(0) == chains[0][0][0]


def test_unkeyed_messages_stay_on_a_shard_until_its_batch_is_full() -> None:
    sticky = StickyShard()
    assert [sticky.pick("t", 2), sticky.pick("t", 2)] == [0, 0]
    sticky.move_on("t")
    assert [sticky.pick("t", 2), sticky.pick("other", 2)] == [1, 0]
    sticky.move_on("t")
    assert sticky.pick("t", 2) == 0
