"""Section "Fast Failover and Recovery". The paper leaves the cluster manager open; here the operator of tests/chains.py
does by hand what a manager will do.
"""

import time
from pathlib import Path

import pytest

import kayos
from kayos.errors import NotMyRole, StaleEpoch
from kayos.model.chain import MemberState
from kayos.replica.effects import ApplyPiece, Release
from kayos.replica.events import ViewChanged
from kayos.stream.messages import AskPiece, CatchUp, Continue, Sent
from kayos.wire.v1 import log_pb2
from tests.chains import TOPIC, Cluster
from tests.replica.driven import Links, chain, only
from tests.server.calls import Calls, error_of, shard
from tests.storage.helpers import log_of, put

# A view is noticed within a poll of the file, a takeover is one fsync; the rest is the machine's load.
FAILOVER_S_MAX = 20.0


def test_each_place_of_the_chain_fails_over_and_the_node_comes_back(tmp_path: Path) -> None:
    """An unresponsive node is taken out and everybody goes on without it, whichever place it had; then it is added back
    and the chain is as long as before. Nothing acknowledged is lost on the way."""
    with Cluster.start(tmp_path, map_bytes=1 << 28) as cluster, kayos.connect(cluster.servers) as client:
        written = {}
        for place in (0, 1, 2):
            lost = cluster.chain.serving[place]
            cluster.kill(lost)
            begun = time.monotonic()
            cluster.remove(lost)
            delivery = client.produce(TOPIC, lost.encode(), key=b"after-%d" % place)
            assert time.monotonic() - begun < FAILOVER_S_MAX
            assert delivery.copies == 2
            cluster.restart(lost)
            cluster.join(lost)
            assert client.produce(TOPIC, lost.encode(), key=b"back-%d" % place).copies == 3
            written |= {b"after-%d" % place: lost.encode(), b"back-%d" % place: lost.encode()}
        found = {}
        for snapshot in client.consume(TOPIC, start=kayos.Start.beginning(), stop_at_end=True):
            found |= {message.key: message.value for message in snapshot}
        assert found == written
        cluster.wait_until_whole()
        # Every head wrote a row; none of the followers did.
        tables = {tuple((row.history_id, row.start_seq) for row in cluster.status(name).takeover) for name in "abc"}
        assert len(tables) == 1


async def test_an_action_on_the_wrong_node_is_an_error_that_says_what_to_do(cluster: Cluster) -> None:
    """While the topology shifts, a node that is not asked rightly answers with an error: its role, or the epoch."""
    async with Calls(cluster.addresses["c"]) as calls:
        _, error = await error_of(calls.put(TOPIC, {b"k": b"v"}))
        assert isinstance(error, NotMyRole) and "fetch the view" in error.message
    async with Calls(cluster.addresses["a"]) as calls:
        cluster.change(cluster.chain.serving)
        cluster.wait_until_serving()
        request = log_pb2.ProduceRequest(shard=shard(TOPIC, epoch=1), keys=[b"k"], values=[b"v"])
        _, error = await error_of(calls.Produce(request, timeout=10))
        assert isinstance(error, StaleEpoch) and "fetch the view" in error.message


def test_a_client_finds_its_way_by_itself(cluster: Cluster, client: kayos.Client) -> None:
    """Clients are told which nodes to write to and read from, and go on through a change without a word."""
    before = client.produce(TOPIC, b"1", key=b"way")
    cluster.change(cluster.chain.serving)
    after = client.produce(TOPIC, b"2", key=b"way")
    assert after.copies == 3
    # The same head in the next epoch: no takeover, the same history.
    assert after.history_id == before.history_id
    found = client.get(TOPIC, b"way", min_seq=after.seq)
    assert found is not None and found.value == b"2"


def test_a_slow_node_before_the_fan_out_slows_the_chain_until_it_is_removed(tmp_path: Path) -> None:
    """Messages traverse N replicas, so one slow node holds everybody; "remove/kill slow nodes quickly" helps."""
    with Cluster.start(tmp_path, map_bytes=1 << 28) as cluster, kayos.connect(cluster.servers) as client:
        client.produce(TOPIC, b"1", key=b"k")
        cluster.freeze("b")
        future = client.send(TOPIC, b"2", key=b"k")
        with pytest.raises(TimeoutError):
            future.result(0.5)
        cluster.remove("b")
        assert future.result(30).copies == 2
        # Awake again, it is not in the chain and harms nobody; added back, it catches up.
        cluster.thaw("b")
        cluster.join("b")
        assert client.produce(TOPIC, b"3", key=b"k").copies == 3


def test_a_node_added_back_gets_what_it_missed_and_no_more() -> None:
    """Recovering must be fast and efficient: of a hundred keys the five that changed are copied."""
    links = Links("abc")
    links.adopt(chain(1, "abc"))
    for number in range(100):
        links.write("a", put((f"k{number}", "v" * 30)))
    disk = links.crash("c")
    links.adopt(chain(2, "ab"))
    for turn in range(20):
        links.write("a", *(put((f"k{number}", f"{turn}")) for number in range(5)))
    links.start("c", disk)
    before = len(links.trace)
    links.adopt(chain(3, "ab", learner="c"))
    effects = [effect for node, effect in links.trace[before:] if node == "c"]
    copied = sum(len(effect.piece.slice.records) for effect in effects if isinstance(effect, ApplyPiece))
    streamed = sum(len(sent.batch.records) for sent in only([e for _, e in links.trace[before:]], Sent))
    # By batches that are still in memory, or by a snapshot of what changed; never everything.
    assert 0 < copied + streamed <= 100
    assert all(ask.start_seq == 100 for ask in only(effects, AskPiece))
    assert list(links["c"].store.dump()) == list(links["a"].store.dump())


def test_de_duplication_makes_a_long_absence_cheap() -> None:
    """A replica that was away longer than memory reaches copies each changed key once, not each revision."""
    links = Links("abc")
    links.adopt(chain(1, "abc"))
    links.write("a", *(put((f"k{number}", "v" * 30)) for number in range(50)))
    disk = links.crash("c")
    links.adopt(chain(2, "ab"))
    for turn in range(200):
        links.write("a", put(("hot", f"{turn}")))
    # A new life of its upstream has nothing in memory.
    links.start("b", links.crash("b"))
    links.adopt(chain(3, "a", learner="b"))
    links.adopt(chain(4, "a", learner="b", state=MemberState.SYNCING))
    links.adopt(chain(5, "ab"))
    links.start("c", disk)
    before = len(links.trace)
    links.adopt(chain(6, "ab", learner="c"))
    effects = [effect for _, effect in links.trace[before:]]
    assert only(effects, CatchUp) and only(effects, Continue)
    copied = sum(len(effect.piece.slice.records) for effect in effects if isinstance(effect, ApplyPiece))
    assert copied == 1
    assert list(links["c"].store.dump()) == list(links["a"].store.dump())


def test_writes_go_on_while_a_new_node_is_filled() -> None:
    """The worst time for a heavy load is when capacity is added: the newcomer reads from the tail, holds nobody's
    acknowledgement back while it waits, and no write waits for it."""
    links = Links("ab")
    links.adopt(chain(1, "a"))
    links.write("a", *(put((f"k{number}", "v" * 30)) for number in range(30)))
    links.view = chain(2, "a", learner="b")
    links.perform("a", links["a"].do(ViewChanged(links.view)))
    # The newcomer has not said a word yet.
    links["a"].sequence(put(("during", "1")))
    assert only(links["a"].sync(), Release) == [Release(31)]
    links.adopt(links.view)
    assert log_of(links["b"].store) == log_of(links["a"].store)


def test_a_real_newcomer_is_filled_under_load(tmp_path: Path) -> None:
    """Initializing a new node: three thousand messages, then a third node joins while more are written."""
    with (
        Cluster.start(tmp_path, chain="ab", topic={"replicas": 3}, map_bytes=1 << 28) as cluster,
        kayos.connect(cluster.servers) as client,
    ):
        keys = [b"key-%d" % number for number in range(3_000)]
        client.send_many(TOPIC, keys, [b"v" * 100] * len(keys)).result(30)
        futures = [client.send(TOPIC, b"during", key=key) for key in keys[:500]]
        cluster.join("c")
        futures += [client.send(TOPIC, b"after", key=key) for key in keys[:500]]
        assert client.flush() == 0
        assert futures[-1].result().copies == 3
        cluster.wait_until_whole()
        assert cluster.status("c").messages == 3_000
        cluster.stop_all()
        cluster.check_equal()
