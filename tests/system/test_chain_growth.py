"""Chains that grow, fan out and shrink: who joins stops nobody, who is slow slows nobody, who is left has it all."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

import kayos
from kayos import Start
from kayos.errors import DeadlineExceeded, InvalidArgument, ResetRequired, Unavailable
from kayos.wire.methods import CLUSTER_METHODS
from kayos.wire.v1 import cluster_pb2, log_pb2
from tests.chains import TOPIC, Cluster
from tests.server.calls import Calls, apply

GAP_S_MAX = 3.0
KIB = 1024
MIB = 1024 * KIB


class Pacemaker:
    """Writes one message after the other and keeps the longest time between two acknowledgements."""

    def __init__(self, client: kayos.Client) -> None:
        self.count = 0
        self.gap_s_max = 0.0
        self.error: BaseException | None = None
        self._client = client
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def beating(self) -> Iterator["Pacemaker"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            self._thread.join(60.0)
        assert self.error is None, self.error

    def _run(self) -> None:
        before = time.monotonic()
        try:
            while not self._stopping.is_set():
                self._client.produce(TOPIC, b"%d" % self.count, key=b"beat-%d" % (self.count % 100))
                now = time.monotonic()
                self.gap_s_max = max(self.gap_s_max, now - before)
                self.count += 1
                before = now
        except BaseException as error:
            self.error = error


def read_all(client: kayos.Client) -> dict[bytes, bytes]:
    """What a consumer holds that begins at 0 and reads to the end."""
    state: dict[bytes, bytes | None] = {}
    with client.consume(TOPIC, start=Start.beginning(), stop_at_end=True) as consumer:
        for snapshot in consumer:
            state.update((message.key, message.value) for message in snapshot)
    return {key: value for key, value in state.items() if value is not None}


def fill(client: kayos.Client, keys: list[bytes], value: bytes) -> None:
    client.send_many(TOPIC, keys, [value] * len(keys))
    assert client.flush() == 0


def read_pin(client: kayos.Client, pin: kayos.ShardPin) -> list[kayos.Message]:
    return list(client.pins.read(pin, tombstones=True))


def test_a_fresh_replica_joins_without_stopping_writes(tmp_path: Path) -> None:
    keys = [b"key-%05d" % number for number in range(16_000)]
    with (
        Cluster.start(tmp_path, nodes="abc", chain="ab", topic={"replicas": 3}) as cluster,
        kayos.connect(cluster.servers) as client,
    ):
        # Given 32 MB in two layers: one pin sees the lower, a part of which was replaced and deleted since
        fill(client, keys, b"old" * 300)
        (pin,) = client.pins.create(TOPIC, pin_id="lower", lease_ms=600_000)
        fill(client, keys[::2], b"new" * 600)
        for key in keys[1:400:2]:
            client.send(TOPIC, None, key=key)
        assert client.flush() == 0
        with client.consume(TOPIC, "reader", stop_at_end=True) as consumer:
            for snapshot in consumer:
                for _ in snapshot.batches():
                    pass
                snapshot.commit()
        pinned = read_pin(client, pin)
        # When an empty node joins while somebody writes
        with Pacemaker(client).beating() as pacemaker:
            cluster.wait_for(lambda: pacemaker.count > 5, "writes flow")
            cluster.join("c")
            joined_at = pacemaker.count
            cluster.wait_for(lambda: pacemaker.count > joined_at + 5, "writes flow")
        # Then writes went on all the time
        assert pacemaker.gap_s_max < GAP_S_MAX
        assert client.produce(TOPIC, b"last", key=b"last").copies == 3
        # And the newcomer, now the tail, shows the same
        assert read_pin(client, pin) == pinned
        cluster.wait_until_whole()
        cluster.stop_all()
        cluster.check_equal()


async def test_a_slow_tail_of_two_slows_nobody(tmp_path: Path) -> None:
    blocks = [b"block-%02d" % number for number in range(68)]
    with Cluster.start(tmp_path, tails=2) as cluster, kayos.connect(cluster.addresses["a"]) as client:
        async with Calls(cluster.addresses["b"]) as other_tail:
            client.produce(TOPIC, b"before", key=b"k")
            snapshots = other_tail.subscribe(TOPIC, timeout=60.0, after_seq=0)
            first = await anext(snapshots)
            assert first.values == {b"k": b"before"}
            # When one of two tails freezes
            cluster.freeze("c")
            # Then writes on all copies up to a tail go on at once, and consumers of the other tail see them
            for number in range(20):
                value = b"%d" % number
                began = time.monotonic()
                delivery = await asyncio.to_thread(client.produce, TOPIC, value, key=b"k")
                assert delivery.copies == 2
                assert (await anext(snapshots)).values == {b"k": value}
                assert time.monotonic() - began < GAP_S_MAX
            # Also when there is more than the head keeps in memory for it
            memory = cluster.nodes["a"].resident_bytes()
            for block in blocks:
                await asyncio.to_thread(client.produce, TOPIC, b"x" * MIB, key=block)
            assert cluster.nodes["a"].resident_bytes() - memory < 160 * MIB
            await snapshots.aclose()
        # And when it wakes up it catches up by itself; a consumer that read at the other one goes on here
        cluster.thaw("c")
        cluster.wait_until_whole()
        async with Calls(cluster.addresses["c"]) as slow_tail:
            seen: dict[bytes, bytes] = {}
            mark = first.mark
            async with aclosing(slow_tail.subscribe(TOPIC, timeout=60.0, mark=mark)) as later:
                while len(seen) < len(blocks) + 1:
                    snapshot = await anext(later)
                    assert snapshot.start_seq == mark.seq
                    mark = snapshot.mark
                    apply(seen, snapshot)
            assert seen[b"k"] == value
        cluster.wait_until_whole()
        cluster.stop_all()
        cluster.check_equal()


def produce_numbered(cluster: Cluster, name: str, number: int, value: bytes) -> log_pb2.ProduceResponse:
    """A write of a producer that numbers its requests, to this node."""
    stamp = log_pb2.Producer(producer_id=b"numbered", producer_epoch=1, number=number)
    return cluster.write_to(name, b"numbered", value, epoch=cluster.chain.epoch, producer=stamp)


def summary(response: log_pb2.ProduceResponse) -> tuple[bytes, int, int, int]:
    return response.history_id, response.first_seq, response.last_seq, response.timestamp_ms


@pytest.mark.parametrize("survivor", ["a", "b", "c"])
def test_everything_survives_the_loss_of_any_two(tmp_path: Path, survivor: str) -> None:
    keys = [b"key-%03d" % number for number in range(300)]
    topic = {"min_replicas": 1, "tombstone_ms": 1}
    with (
        Cluster.start(tmp_path, topic=topic, maintenance_interval_s=0.05) as cluster,
        kayos.connect(cluster.servers) as client,
    ):
        # Given a pin whose rows were replaced, a mark, producer rows and purged tombstones
        fill(client, keys, b"old")
        (pin,) = client.pins.create(TOPIC, pin_id="kept", lease_ms=600_000)
        pinned = read_pin(client, pin)
        with client.consume(TOPIC, "reader", stop_at_end=True) as consumer:
            for snapshot in consumer:
                list(snapshot)
                snapshot.commit()
                mark = snapshot.mark
        answers = [produce_numbered(cluster, "a", number, b"%d" % number) for number in (1, 2, 3)]
        fill(client, keys[:100], b"new")
        last_delete = [client.send(TOPIC, None, key=key) for key in keys[100:150]][-1].result()
        cluster.wait_for(lambda: cluster.status("a").purge_seq >= last_delete.seq, "tombstones are purged")
        purged = cluster.status("a").purge_seq
        expected = read_all(client)
        assert len(expected) == 251
        # When two of three are lost for ever
        lost = [name for name in "abc" if name != survivor]
        for name in lost:
            cluster.kill(name)
        cluster.remove(*lost)
        cluster.wait_until_serving()
        # Then the third has it all
        assert read_all(client) == expected
        assert read_pin(client, pin) == pinned
        assert client.marks.get(TOPIC, "reader")[0].mark == mark
        assert cluster.status(survivor).purge_seq >= purged
        with client.consume(TOPIC, start=Start.after(1), stop_at_end=True) as consumer, pytest.raises(ResetRequired):
            next(consumer)
        # And a retry of an old number gets the answer that it got then
        for number, answer in enumerate(answers, 1):
            again = produce_numbered(cluster, survivor, number, b"%d" % number)
            assert again.duplicate and summary(again) == summary(answer)
        assert not produce_numbered(cluster, survivor, 4, b"4").duplicate
        assert client.get(TOPIC, b"numbered").value == b"4"
        client.pins.release(TOPIC, "kept")


def test_trims_survive_the_loss_of_any_two(tmp_path: Path) -> None:
    topic = {"min_replicas": 1, "mode": "log"}
    with Cluster.start(tmp_path, topic=topic) as cluster, kayos.connect(cluster.servers) as client:
        for number in range(50):
            client.send(TOPIC, b"%d" % number)
        assert client.flush() == 0
        trim = cluster_pb2.TrimShardRequest(topic=TOPIC, shard=0, through_seq=30)
        cluster.call("a", CLUSTER_METHODS["TrimShard"], trim)
        expected = [b"%d" % number for number in range(30, 50)]
        # One after the other becomes the only one
        for lost in "ab":
            cluster.kill(lost)
            cluster.remove(lost)
            cluster.wait_until_serving()
            with client.consume(TOPIC, start=Start.beginning(), stop_at_end=True) as consumer:
                assert [message.value for snapshot in consumer for message in snapshot] == expected
            client.produce(TOPIC, lost.encode())
            expected.append(lost.encode())


def test_writes_are_answered_with_the_copies_that_they_asked_for(tmp_path: Path) -> None:
    # One client's answers keep their order, so a write that has to wait is another one's.
    with (
        Cluster.start(tmp_path) as cluster,
        kayos.connect(cluster.servers) as client,
        kayos.connect(cluster.servers) as patient,
    ):
        for durability in (1, 2, 3, "all"):
            delivery = client.produce(TOPIC, b"v", key=b"k", durability=durability)
            assert delivery.copies >= (3 if durability == "all" else durability)
            for until, least in ((1, 1), (2, 2), ("any_tail", 1), (3, 3), ("all", 3), ("all_tails", 3)):
                assert client.wait(delivery, until=until) >= least
        with pytest.raises(InvalidArgument, match="durability"):
            client.produce(TOPIC, b"v", key=b"k", durability=4)
        # When the tail is frozen, two copies are to be had, and no more
        cluster.freeze("c")
        assert client.produce(TOPIC, b"two", key=b"k", durability=2).copies == 2
        waiting = patient.send(TOPIC, b"three", key=b"k", durability=3)
        delivery = client.produce(TOPIC, b"one", key=b"other", durability=1)
        assert client.wait(delivery, until=2) == 2
        for until in (3, "all", "any_tail", "all_tails"):
            with pytest.raises(DeadlineExceeded):
                client.wait(delivery, until=until, timeout_s=0.3)
        assert not waiting.done()
        # And all of them once it wakes up
        cluster.thaw("c")
        assert waiting.result(30.0).copies == 3
        assert client.wait(delivery, until="all_tails") == 3


def test_waits_tell_one_tail_from_all(tmp_path: Path) -> None:
    with Cluster.start(tmp_path, tails=2) as cluster, kayos.connect(cluster.addresses["a"]) as client:
        cluster.wait_until_serving()
        client.produce(TOPIC, b"v", key=b"k", durability=3)
        cluster.freeze("c")
        delivery = client.produce(TOPIC, b"v", key=b"k")
        assert [client.wait(delivery, until=until) for until in (2, "all", "any_tail")] == [2, 2, 2]
        for until in (3, "all_tails"):
            with pytest.raises(DeadlineExceeded):
                client.wait(delivery, until=until, timeout_s=0.3)
        # A chain that became shorter cannot give as many, and says so at once
        cluster.remove("c")
        cluster.wait_until_serving()
        with pytest.raises(Unavailable, match="the chain has 2 replicas now"):
            cluster.write_to("a", b"k", b"v", epoch=cluster.chain.epoch, durability=3)
        assert client.wait(delivery, until="all_tails") == 2
        # And gives them again when it is whole
        cluster.thaw("c")
        cluster.join("c", tails=2)
        assert client.wait(delivery, until="all_tails") == 3
        assert client.produce(TOPIC, b"v", key=b"k", durability=3).copies == 3
