"""Section "Tunable Consistency": the three rows of the paper's table, on a real chain of three.

The programs in kayos/client/examples show the same to users; tests/client/test_examples.py runs them.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import kayos
from kayos.errors import DeadlineExceeded, KayosError, Unavailable, WriteUnknown
from tests.chains import TOPIC, Cluster
from tests.replica.driven import Links, chain
from tests.storage.helpers import log_of, put


@contextmanager
def frozen(cluster: Cluster, name: str) -> Iterator[None]:
    """A replica that holds its connections and does nothing."""
    cluster.freeze(name)
    try:
        yield
    finally:
        cluster.thaw(name)
        cluster.wait_until_whole()


def test_global_causal_writers_block_on_transactions_readers_take_whole_snapshots(client: kayos.Client) -> None:
    """Row 1: all-or-nothing commits on N replicas, whole snapshots → every state that the consumer passes through is a
    state that the log had."""
    chosen = random.Random(1)
    states = {0: {}}
    current: dict[bytes, bytes] = {}
    for number in range(60):
        keys = chosen.sample([b"g%d" % key for key in range(6)], 2)
        with client.transaction(TOPIC) as transaction:
            for key in keys:
                transaction.put(key, b"%d" % number)
        assert {delivery.copies for delivery in transaction.deliveries} == {3}
        current = current | dict.fromkeys(keys, b"%d" % number)
        states[transaction.deliveries[-1].seq] = current
    held: dict[bytes, bytes] = {}
    boundaries = []
    for snapshot in client.consume(TOPIC, start=kayos.Start.beginning(), stop_at_end=True):
        held |= {m.key or b"": m.value or b"" for m in snapshot if (m.key or b"").startswith(b"g")}
        boundaries.append(snapshot.end_seq)
        assert held == states[max(seq for seq in states if seq <= snapshot.end_seq)]
    assert boundaries


def test_single_key_causal_revisions_ascend_and_the_newest_arrives(client: kayos.Client) -> None:
    """Row 2: writers block on N replicas, readers take single messages → each key's revisions are seen in order, and
    its newest one always."""
    with client.messages(TOPIC, start=kayos.Start.latest()) as consumer:
        for number in range(100):
            client.send(TOPIC, b"%d" % number, key=b"s%d" % (number % 4), durability="all")
        assert client.flush() == 0
        seen: dict[bytes, list[int]] = {}
        for message in consumer:
            seen.setdefault(message.key or b"", []).append(int(message.value or b""))
            if {key: revisions[-1] for key, revisions in seen.items()} == {b"s%d" % (n % 4): n for n in range(96, 100)}:
                break
    assert all(revisions == sorted(set(revisions)) for revisions in seen.values())


def test_eventual_writers_block_on_one_replica_only(cluster: Cluster, client: kayos.Client) -> None:
    """Row 3: an answer after one fsync, whatever the others do; readers see it when it has come through."""
    with frozen(cluster, "b"):
        delivery = client.produce(TOPIC, b"fast", key=b"eventual", durability=1)
        assert delivery.copies == 1
        found = client.get(TOPIC, b"eventual")
        assert found is None or found.value != b"fast"
    assert client.wait(delivery, until="all") == 3
    found = client.get(TOPIC, b"eventual", min_seq=delivery.seq)
    assert found is not None and found.value == b"fast"


def test_the_stronger_levels_do_block(cluster: Cluster) -> None:
    """Rows 1 and 2: a writer on N replicas is not answered while one of them does not hold the write. The wait may end
    with "unknown", never with a false yes, and a retry settles it."""
    with kayos.connect(cluster.servers, timeout_s=1.0, delivery_timeout_s=1.0) as impatient, frozen(cluster, "b"):
        with pytest.raises(KayosError) as caught:
            impatient.produce(TOPIC, b"slow", key=b"blocked", durability="all")
        assert isinstance(caught.value, DeadlineExceeded | WriteUnknown | Unavailable)


def test_what_eventual_gives_up_is_exactly_the_write_that_only_the_lost_head_had() -> None:
    """Row 3 has no more than one replica: lose it before it replicated, and that write alone is gone."""
    links = Links("abc")
    links.adopt(chain(1, "abc"))
    links.write("a", put(("k", "replicated")))
    links["a"].write(put(("k", "only here")))
    links.crash("a")
    links.adopt(chain(2, "bc"))
    assert log_of(links["b"].store) == log_of(links["c"].store) == ["1 k=replicated"]
