"""A chain of three under load while its nodes are killed and frozen: nothing promised is lost, and copies stay equal.

The operator removes whoever is down and brings it back at the end. After each story the checker looks at all that
clients did and saw, the stores are proven sound, and equal row by row.
"""

import time
from contextlib import suppress
from pathlib import Path

import pytest

import kayos
from kayos.errors import KayosError, Unavailable, WriteUnknown
from kayos.limits import KEEPALIVE_MS, PING_TIMEOUT_MS
from tests.chains import TOPIC, Cluster
from tests.cli.command import Kayos
from tests.system.load import Load

FROZEN_S = (KEEPALIVE_MS + PING_TIMEOUT_MS) / 1000 + 0.5


def check_story(cluster: Cluster, load: Load) -> None:
    load.finish()
    assert load.check() == []
    cluster.wait_until_whole()
    cluster.stop_all()
    cluster.check_equal()
    assert [cluster.internal_errors(name) for name in cluster.nodes] == [[]] * len(cluster.nodes)


def test_each_node_in_turn_is_killed_and_comes_back(tmp_path: Path) -> None:
    with Cluster.start(tmp_path) as cluster, Load(cluster.servers) as load:
        # The head, then the middle, then the tail of the chain as it is by then
        for place in (0, 1, 2):
            load.wait_for_progress()
            name = cluster.chain.serving[place]
            # When it dies and the operator takes it out
            cluster.kill(name)
            cluster.remove(name)
            # Then everybody gets on without it
            load.wait_for_progress()
            # And it comes back while they do
            cluster.restart(name)
            cluster.join(name)
            assert cluster.chain.serving[-1] == name
        load.wait_for_progress()
        check_story(cluster, load)


def test_each_node_in_turn_freezes_is_removed_and_wakes_up(tmp_path: Path) -> None:
    with Cluster.start(tmp_path) as cluster, Load(cluster.servers) as load:
        for place in (0, 1, 2):
            load.wait_for_progress()
            name = cluster.chain.serving[place]
            incarnation = cluster.status(name).incarnation
            # When it freezes for longer than the keepalive, and the chain goes on without it
            cluster.freeze(name)
            frozen_at = time.monotonic()
            cluster.remove(name)
            load.wait_for_progress()
            cluster.wait_for(lambda at=frozen_at: time.monotonic() > at + FROZEN_S, "the keepalive is over")
            # Then it does no harm when it wakes up and believes for a moment to be what it was
            cluster.thaw(name)
            load.wait_for_progress()
            # And comes back as the same life of the replica
            cluster.join(name)
            assert cluster.status(name).incarnation == incarnation
        load.wait_for_progress()
        check_story(cluster, load)


def test_a_woken_head_has_its_writes_refused_or_rolled_back(tmp_path: Path) -> None:
    with Cluster.start(tmp_path) as cluster, kayos.connect(cluster.servers) as client:
        client.produce(TOPIC, b"old", key=b"k")
        # Given a head that was replaced while it was frozen
        cluster.freeze("a")
        cluster.remove("a")
        client.produce(TOPIC, b"new", key=b"k")
        # When it wakes up, and somebody still writes to it, on one copy and on all
        cluster.thaw("a")
        for durability in (1, 0):
            try:
                cluster.write_to("a", b"k", b"late", epoch=1, durability=durability)
            except KayosError:
                continue
            assert durability == 1
        # Then it learns that it is no longer in charge, rejoins, and nothing of that is left
        cluster.join("a")
        assert client.get(TOPIC, b"k").value == b"new"
        client.produce(TOPIC, b"newest", key=b"k")
        cluster.wait_until_whole()
        cluster.stop_all()
        cluster.check_equal()


def test_a_lost_head_rolls_back_what_nobody_else_had(tmp_path: Path) -> None:
    keys = [b"key-%03d" % number for number in range(200)]
    with Cluster.start(tmp_path) as cluster, kayos.connect(cluster.servers) as client:
        # Given writes on all three, the half of them overwritten or deleted later on
        for key in keys:
            client.send(TOPIC, b"kept", key=key)
        assert client.flush() == 0
        # And a head whose further writes reach nobody: its connection is given up, or they would wait in the socket
        cluster.freeze("b")
        frozen_at = time.monotonic()
        cluster.wait_for(lambda: time.monotonic() > frozen_at + FROZEN_S, "the keepalive is over")
        for key in keys[:100]:
            client.send(TOPIC, b"lost", key=key, durability=1)
        for key in keys[100:120]:
            client.send(TOPIC, None, key=key, durability=1)
        fresh = client.send(TOPIC, b"lost", key=b"fresh", durability=1)
        assert client.flush() == 0
        assert fresh.result().copies == 1
        # When it dies and the others go on
        cluster.kill("a")
        cluster.remove("a")
        cluster.thaw("b")
        # Then the same client gets on too, though the new head never heard of its last writes. What it had sent to the
        # dead one, and got no answer for, may have been written.
        with suppress(WriteUnknown):
            client.produce(TOPIC, b"later", key=keys[-1])
        later = [client.send(TOPIC, b"later", key=key) for key in keys[190:]]
        assert [future.exception() for future in later] == [None] * len(later)
        with pytest.raises(KayosError, match="history"):
            client.wait(fresh.result(), until=1, timeout_s=5.0)
        # And the old head comes back without them
        cluster.restart("a")
        cluster.join("a")
        expected = dict.fromkeys(keys[:190], b"kept") | dict.fromkeys(keys[190:], b"later")
        with client.consume(TOPIC, start=kayos.Start.beginning(), stop_at_end=True) as consumer:
            assert {message.key: message.value for snapshot in consumer for message in snapshot} == expected
        cluster.wait_until_whole()
        cluster.stop_all()
        command = Kayos(cluster.servers)
        for name in "bc":
            found = command.ok("check", "--compare", str(cluster.data("a")), str(cluster.data(name)), "-o", "json")
            assert [row["equal"] for row in found.json] == [True]
        for name in "abc":
            command.ok("check", str(cluster.data(name)))


def test_all_three_die_at_once_and_the_fullest_begins_again(tmp_path: Path) -> None:
    with Cluster.start(tmp_path) as cluster, Load(cluster.servers) as load:
        load.wait_for_progress()
        # When the whole chain dies under load
        for node in cluster.nodes.values():
            node.process.kill()
        for name in "abc":
            cluster.kill(name)
        for name in "abc":
            cluster.restart(name)
        # Then nobody takes up its old place by itself, and every one says why
        statuses = {name: cluster.status(name) for name in "abc"}
        assert {status.role for status in statuses.values()} == {"none"}
        assert all("earlier life" in status.problem for status in statuses.values())
        # And the operator begins anew with the one that holds most
        first = max("abc", key=lambda name: statuses[name].durable_seq)
        cluster.change([first])
        for name in "abc":
            if name != first:
                cluster.join(name)
        load.wait_for_progress()
        check_story(cluster, load)


def test_a_chain_below_its_least_refuses_writes_and_is_read(tmp_path: Path) -> None:
    with Cluster.start(tmp_path) as cluster, kayos.connect(cluster.servers, delivery_timeout_s=3.0) as client:
        client.produce(TOPIC, b"before", key=b"k")
        # When two of three are gone, one fewer than the topic's `min_replicas`
        cluster.kill("a")
        cluster.kill("b")
        cluster.remove("a", "b")
        cluster.wait_until_serving()
        # Then writes are refused for now, each of them for certain, and reads go on
        with pytest.raises(Unavailable, match="1 of at least 2") as refused:
            client.produce(TOPIC, b"refused", key=b"k")
        assert refused.value.retryable
        assert client.get(TOPIC, b"k").value == b"before"
        with client.consume(TOPIC, start=kayos.Start.beginning(), stop_at_end=True) as consumer:
            assert [message.value for snapshot in consumer for message in snapshot] == [b"before"]
        # And taken again when there are two
        cluster.restart("a")
        cluster.join("a")
        assert client.produce(TOPIC, b"after", key=b"k").copies == 2
        assert client.get(TOPIC, b"k").value == b"after"
