"""Section "Multi-Node Durable Transactions and Failover"."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

import kayos
from kayos.errors import InvalidArgument, KayosError, NotMyRole
from kayos.model.chain import ChainView, Member, MemberState
from kayos.replica.effects import Apply, Release
from kayos.replica.events import ViewChanged
from kayos.wire.v1 import log_pb2
from tests.chains import TOPIC, Cluster
from tests.paper.topology import CHAINS, Rotated, start_rotated
from tests.paper.topology import TOPIC as QUEUE
from tests.replica.driven import Links, chain, only
from tests.server.calls import Calls, error_of, shard
from tests.storage.helpers import log_of, put


def values(client: kayos.Client, topic: str = TOPIC) -> dict[bytes, bytes]:
    """All that consumers can see."""
    found: dict[bytes, bytes] = {}
    for snapshot in client.consume(topic, start=kayos.Start.beginning(), stop_at_end=True):
        found |= {message.key or b"": message.value or b"" for message in snapshot}
    return found


# Node A, node B, node C


def test_messages_flow_from_a_to_b_to_c(cluster: Cluster, client: kayos.Client) -> None:
    """A takes the writes, B follows A, C follows B, and all three end with the same."""
    client.produce(TOPIC, b"1", key=b"flow")
    cluster.wait_until_whole()
    found = {name: cluster.status(name) for name in "abc"}
    assert [found[name].role for name in "abc"] == ["head", "middle", "tail"]
    assert [found[name].following for name in "abc"] == ["", "a", "b"]
    assert len({found[name].high_seq for name in "abc"}) == 1


@pytest.mark.parametrize("name", ["b", "c"])
async def test_producers_write_to_a_only(cluster: Cluster, name: str) -> None:
    """All producers connect to the write node; the others send them there and store nothing."""
    before = cluster.status(name).high_seq
    async with Calls(cluster.addresses[name]) as calls:
        _, error = await error_of(calls.put(TOPIC, {b"k": b"v"}))
    assert isinstance(error, NotMyRole) and "writes go to the head" in error.message
    assert cluster.status(name).high_seq == before


@pytest.mark.parametrize("name", ["a", "b"])
async def test_consumers_read_at_c_only(cluster: Cluster, name: str) -> None:
    """Consumers are only ever served by a C node, so what they see has passed A and B."""
    async with Calls(cluster.addresses[name]) as calls:
        for call in (
            calls.Get(log_pb2.GetRequest(shard=shard(TOPIC), key=b"flow"), timeout=10),
            calls.Subscribe(log_pb2.SubscribeRequest(shard=shard(TOPIC), after_seq=0), timeout=10),
        ):
            _, error = await error_of(call)
            assert isinstance(error, NotMyRole) and "reads go to a tail" in error.message


def test_a_producer_gets_its_sequence_and_waits_until_it_is_on_n_nodes(client: kayos.Client) -> None:
    """Write to A, get S, wait until a C node has it: then it is on all three. (By history and sequence; why a bare S is
    not enough is shown in test_takeover.py.)"""
    delivery = client.produce(TOPIC, b"1", key=b"waits", durability=1)
    assert delivery.copies >= 1
    assert client.wait(delivery, until="any_tail") >= 2
    assert client.wait(delivery, until=3) == 3
    found = client.get(TOPIC, b"waits", min_seq=delivery.seq)
    assert found is not None and found.seq == delivery.seq


def test_n_factor_replication_can_be_asked_for_with_the_write(client: kayos.Client) -> None:
    """The same in one call: answered when every replica has fsynced."""
    assert client.produce(TOPIC, b"1", key=b"all", durability="all").copies == 3
    assert client.produce(TOPIC, b"1", key=b"two", durability=2).copies >= 2


def test_no_message_is_consumed_by_some_consumers_only(client: kayos.Client) -> None:
    """Every consumer reads at a C node: at the same boundary all hold the same."""
    for number in range(50):
        client.send(TOPIC, b"%d" % number, key=b"key-%d" % (number % 10))
    assert client.flush() == 0
    assert values(client) == values(client) == values(client)


def test_marks_travel_like_messages(cluster: Cluster, client: kayos.Client) -> None:
    """A consumer's high water mark is on all replicas, so it survives whatever messages survive."""
    for snapshot in client.consume(TOPIC, "billing", stop_at_end=True):
        assert list(snapshot)
        snapshot.commit()
    cluster.wait_until_whole()
    assert {cluster.status(name).marks for name in "abc"} == {1}


# N - 1 nodes can fail


@pytest.mark.parametrize("survivor", "abc")
def test_any_two_of_three_can_be_lost(survivor: str) -> None:
    """N-1 replicas can fail and all messages are still held, whichever one is left."""
    links = Links("abc")
    links.adopt(chain(1, "abc"))
    for number in range(20):
        links.write("a", put((f"k{number}", str(number))))
    for node in "abc":
        if node != survivor:
            links.crash(node)
    links.adopt(chain(2, survivor))
    assert len(log_of(links[survivor].store)) == 20
    links.write(survivor, put(("goes", "on")))
    assert links[survivor].replica.report().commit_point == 21


def test_two_of_three_real_nodes_are_killed_and_every_acknowledged_message_is_read(tmp_path: Path) -> None:
    """The same with processes: head and middle die at once, with SIGKILL, under load."""
    topic = {"replicas": 3, "min_replicas": 1}
    with (
        Cluster.start(tmp_path, topic=topic, map_bytes=1 << 28) as cluster,
        kayos.connect(cluster.servers) as client,
    ):
        acknowledged = {}
        for number in range(100):
            delivery = client.produce(TOPIC, b"%d" % number, key=b"key-%d" % number)
            assert delivery.copies == 3
            acknowledged[b"key-%d" % number] = b"%d" % number
        under_way = [client.send(TOPIC, b"late", key=b"late-%d" % number) for number in range(20)]
        cluster.kill("a")
        cluster.kill("b")
        cluster.remove("a", "b")
        found = values(client)
        assert found.items() >= acknowledged.items()
        # Sends that were under way are settled by their retries, each stored once.
        assert all(future.result(30).copies >= 1 for future in under_way)
        assert client.produce(TOPIC, b"goes on", key=b"next").copies == 1


def test_what_a_consumer_has_seen_never_disappears_whichever_replica_is_lost() -> None:
    """A message is visible at C when B and A hold it too: lose any one, or any two, and it is still there."""
    for lost in (*combinations("abc", 1), *combinations("abc", 2)):
        links = Links("abc")
        links.adopt(chain(1, "abc"))
        links.write("a", put(("k", "seen")))
        assert only(list(links.said("c")), Release) == [Release(1)]
        for node in lost:
            links.crash(node)
        left = "".join(node for node in "abc" if node not in lost)
        links.adopt(chain(2, left))
        assert all(log_of(links[node].store) == ["1 k=seen"] for node in left), lost


# Durable on M nodes before it is visible


def slow_middle(min_durable: int) -> Links:
    """Two batches have reached everybody, and the middle's disk has not written them yet."""
    links = Links("abc")
    links.adopt(chain(1, "abc", min_durable=min_durable))
    middle = links["b"]
    held: list[Apply] = []
    write_one = middle.write_one

    def hold() -> list:
        held.append(middle.orders.popleft())
        return []

    middle.write_one = hold  # type: ignore[method-assign]
    links.write("a", put(("first", "1")))
    links.write("a", put(("second", "1")))
    middle.write_one = write_one  # type: ignore[method-assign]
    middle.orders.extend(held)
    return links


@pytest.mark.parametrize(("min_durable", "is_visible"), [(2, True), (3, False)])
def test_a_message_is_visible_once_m_nodes_have_fsynced_it(min_durable: int, is_visible: bool) -> None:
    """With M=2 head and tail are enough; with M=3 nobody sees it before the middle's fsync."""
    links = slow_middle(min_durable)
    assert bool(only(list(links.said("c")), Release)) == is_visible
    links.settle()
    assert only(list(links.said("c")), Release)[-1] == Release(2)


def test_what_comes_after_a_blocked_message_is_blocked_too() -> None:
    """To preserve order: the second message may be anywhere, it is not seen before the first."""
    links = slow_middle(3)
    assert only(list(links.said("c")), Release) == []
    links.settle()
    seqs = [release.seq for release in only(list(links.said("c")), Release)]
    assert seqs == sorted(seqs) and seqs[-1] == 2


def test_m_counts_what_the_chain_has() -> None:
    """M is at most N: a chain that lost members shows what all that are left hold, and refuses writes when too few."""
    view = ChainView(1, (Member("a"), Member("b")), min_durable=3)
    assert view.find_commit_point({"a": 5, "b": 4}) == 4
    links = Links("a")
    links.adopt(chain(1, "a", min_replicas=2))
    assert not any(effect.accepts_writes for effect in links.said("a") if hasattr(effect, "accepts_writes"))


# Fan-out


@pytest.fixture(scope="module")
def fan_out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Producers → a → b → {c, d, e} → consumers."""
    topic = {"replicas": 5, "tails": 3, "min_replicas": 1}
    directory = tmp_path_factory.mktemp("fan-out")
    with Cluster.start(directory, nodes="abcde", tails=3, topic=topic, map_bytes=1 << 28) as started:
        started.wait_until_serving()
        yield started


async def test_every_c_node_of_a_fan_out_serves_the_same(fan_out: Cluster) -> None:
    """B feeds C1, C2 and C3, and consumers read at any of them."""
    with kayos.connect(fan_out.servers) as client:
        delivery = client.produce(TOPIC, b"1", key=b"k")
        assert client.wait(delivery, until="all_tails") == 5
    fan_out.wait_until_whole()
    found = {}
    for name in "cde":
        assert (fan_out.status(name).role, fan_out.status(name).following) == ("tail", "b")
        async with Calls(fan_out.addresses[name]) as calls:
            request = log_pb2.GetRequest(shard=shard(TOPIC), key=b"k", min_seq=delivery.seq)
            found[name] = (await calls.Get(request, timeout=10)).value
    assert found == {"c": b"1", "d": b"1", "e": b"1"}


def test_a_lost_c_node_stops_nobody(fan_out: Cluster) -> None:
    """One tail of the path is enough for "all": producers go on, and consumers of the lost one read at another."""
    with kayos.connect(fan_out.servers) as client:
        fan_out.kill("e")
        assert client.produce(TOPIC, b"2", key=b"k").copies >= 3
        fan_out.remove("e")
        assert client.produce(TOPIC, b"3", key=b"k").copies >= 3
        assert values(client)[b"k"] == b"3"


# Shards


def test_a_node_has_one_role_in_a_shard() -> None:
    """The role of each node is exclusive per shard: a chain that names a node twice is refused."""
    with pytest.raises(InvalidArgument, match="one node holds one replica"):
        ChainView(1, (Member("a"), Member("b"), Member("a"))).check()
    with pytest.raises(InvalidArgument, match="one node holds one replica"):
        ChainView(1, (Member("a"), Member("a", state=MemberState.WAITING))).check()


@pytest.fixture(scope="module")
def rotated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rotated]:
    with start_rotated(tmp_path_factory.mktemp("rotated")) as started:
        yield started


def test_three_shards_on_three_nodes_with_rotated_roles(rotated: Rotated) -> None:
    """The example topology: each node is once write node, once intermediate, once read node, and all shards work."""
    with kayos.connect(rotated.servers) as client:
        written = {b"key-%d" % number: b"%d" % number for number in range(60)}
        futures = [client.send(QUEUE, value, key=key) for key, value in written.items()]
        assert {future.result(30).copies for future in futures} == {3}
        assert {future.result().shard for future in futures} == {0, 1, 2}
        roles: dict[str, list[str]] = {name: [] for name in "abc"}
        for index, members in enumerate(CHAINS):
            status = client.topics.chain(QUEUE, index)
            assert "".join(member.member.node for member in status.members) == members
            for member in status.members:
                assert member.status is not None
                roles[member.member.node].append(member.status.role)
        assert {name: sorted(found) for name, found in roles.items()} == {
            name: ["head", "middle", "tail"] for name in "abc"
        }
        assert values(client, QUEUE) == written


def test_shards_are_independent_so_nothing_orders_one_before_the_other(rotated: Rotated) -> None:
    """Causal ordering between shards is not possible: each counts its own sequences, and a transaction stays in one."""
    with kayos.connect(rotated.servers) as client:
        first = {}
        for number in range(200):
            delivery = client.produce(QUEUE, b"x", key=b"order-%d" % number)
            first.setdefault(delivery.shard, (delivery.seq, delivery.history_id))
            if len(first) == 3:
                break
        assert len({history for _, history in first.values()}) == 3
        with pytest.raises(KayosError, match="shard"), client.transaction(QUEUE) as transaction:
            for number in range(20):
                transaction.put(b"order-%d" % number, b"y")


def test_a_view_of_another_epoch_gives_no_second_head() -> None:
    """Two write nodes never accept in one epoch: the role is the chain's first, and only that."""
    links = Links("abc")
    links.adopt(chain(1, "abc"))
    assert [links[node].replica.report().role.is_head for node in "abc"] == [True, False, False]
    # An old head that hears nothing of the change can no longer commit: nobody acknowledges an older epoch.
    for node in "bc":
        links[node].do(ViewChanged(chain(2, "bc")))
    _, forwarded = links["a"].sequence(put(("k", "of the old head")))
    links.perform("a", [*forwarded, *links["a"].sync()])
    links.settle()
    assert only(list(links.said("a")), Release) == []
