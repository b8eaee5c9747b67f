"""The file of a static cluster: read whole, and every mistake named with its place."""

from pathlib import Path

import pytest

from kayos.cluster import chain_file
from kayos.cluster.chain_file import ClusterFile, check_follows, parse_cluster, read_content, topic_id_of
from kayos.errors import InvalidArgument
from kayos.model.chain import ChainView, Member, MemberState
from kayos.model.topic import Mode, Retention, Topic

PATH = Path("cluster.toml")
NODES = '[nodes]\na = "127.0.0.1:7401"\nb = "127.0.0.1:7402"\nc = "127.0.0.1:7403"\n'
TOPIC = "[topics.orders]\nreplicas = 3\n"
MEMBERS = 'members = [{ node = "a" }, { node = "b" }, { node = "c" }]\n'
CHAIN = '[[chains]]\ntopic = "orders"\nshard = 0\nepoch = 1\n' + MEMBERS
WHOLE = NODES + TOPIC + CHAIN
AUDIT = "[topics.audit]\n" + CHAIN.replace("orders", "audit").replace(MEMBERS, 'members = [{ node = "c" }]\n')


def parse(text: str) -> ClusterFile:
    return parse_cluster(text.encode(), PATH)


def test_a_whole_file_with_the_defaults_of_topics() -> None:
    file = parse(WHOLE)
    assert file.nodes == {"a": "127.0.0.1:7401", "b": "127.0.0.1:7402", "c": "127.0.0.1:7403"}
    assert file.topics == {
        "orders": Topic("orders", topic_id_of("orders"), replicas=3, min_durable=3, min_replicas=2),
    }
    members = (Member("a"), Member("b"), Member("c"))
    assert file.chains == {("orders", 0): ChainView(1, members, tails=1, min_durable=3, min_replicas=2)}
    assert parse(NODES).topics == {}


def test_every_setting_is_taken() -> None:
    text = """
    [nodes]
    a = "127.0.0.1:7401"
    b = "127.0.0.1:7402"
    c = "127.0.0.1:7403"
    [topics."with.dots"]
    shards = 2
    replicas = 3
    tails = 2
    min_durable = 1
    min_replicas = 1
    mode = "log"
    max_age_ms = 1
    max_bytes = 2
    max_messages = 3
    tombstone_ms = 4
    [[chains]]
    topic = "with.dots"
    shard = 0
    epoch = 7
    members = [{ node = "c", incarnation = "00ff" }, { node = "a", state = "syncing" }]
    [[chains]]
    topic = "with.dots"
    shard = 1
    epoch = 9
    members = [{ node = "a" }, { node = "b", state = "serving" }, { node = "c" }]
    """
    file = parse(text)
    retention = Retention(1, 2, 3, 4)
    assert file.topics["with.dots"] == Topic(
        "with.dots", topic_id_of("with.dots"), 2, 3, 2, 1, 1, Mode.LOG, retention=retention
    )
    first, second = file.chains["with.dots", 0], file.chains["with.dots", 1]
    assert first.members == (Member("c", b"\x00\xff"), Member("a", state=MemberState.SYNCING))
    assert (first.epoch, first.tails, first.min_durable) == (7, 1, 1)
    assert second.tail_nodes == ("b", "c")


def test_ids_of_topics_are_the_same_everywhere() -> None:
    assert topic_id_of("orders") == "d5acebe867b47f4d"
    assert topic_id_of("orders") != topic_id_of("order")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("= =", "is not TOML"),
        ("", "nodes is missing"),
        ("nodes = 5", "nodes is 5: expected a table"),
        ("[nodes]\n", "nodes: it is empty"),
        (NODES + "\n[extra]\n", "'extra' is unknown: known are chains, nodes, topics"),
        ('[nodes]\nA = "x:1"\n', "nodes: node name 'A' is not allowed"),
        ('[nodes]\na = "nowhere"\n', "nodes: a 'nowhere' is not HOST:PORT"),
        ('[nodes]\na = "x:0"\n', "with a port from 1 to 65535"),
        ("[nodes]\na = 7400\n", "nodes: a is 7400: expected text"),
        ('[nodes]\na = "x:1"\nb = "x:1"\n', "nodes: 'x:1' stands 2 times"),
        (NODES + "[topics]\norders = 1\n", "topics.orders: orders is 1: expected a table"),
        (NODES + "[topics.Orders]\n", "topics.Orders: topic name 'Orders' is not allowed"),
        (NODES + "[topics.orders]\nshrads = 1\n", "topics.orders: 'shrads' is unknown: known are max_age_ms,"),
        (NODES + "[topics.orders]\nshards = 0\n", "topics.orders: shards is 0: give 1 to"),
        (NODES + "[topics.orders]\nshards = true\n", "topics.orders: shards is True: expected a whole number"),
        (NODES + "[topics.orders]\nshards = 1.5\n", "topics.orders: shards is 1.5: expected a whole number"),
        (NODES + "[topics.orders]\nreplicas = 4\n", "topics.orders: replicas is 4: the file names 3 nodes"),
        (NODES + "[topics.orders]\nreplicas = 2\nmin_durable = 3\n", "min_durable is 3: give 1 to the number of"),
        (NODES + "[topics.orders]\nmin_replicas = -1\n", "topics.orders: min_replicas is -1"),
        (NODES + "[topics.orders]\nmode = 'queue'\n", "topics.orders: mode is 'queue': use 'compact' or 'log'"),
        (NODES + "[topics.orders]\nmax_bytes = 1\n", "topics.orders: max_bytes needs a topic of mode 'log'"),
        (NODES + TOPIC, "shard orders/0 has no chain"),
        (NODES + "chains = 5\n", "nodes: chains is 5: expected text"),
        ("chains = 5\n" + NODES, "chains is 5: expected a list of tables"),
        ("chains = [5]\n" + NODES, "chains is [5]: expected a list of tables"),
        (WHOLE + CHAIN, "chains, number 2: the chain of orders/0 stands twice"),
        (WHOLE.replace('topic = "orders"', 'topic = "order"'), "chains, number 1: topic is 'order': the file"),
        (WHOLE.replace("shard = 0", "shard = 1"), "chains, number 1: shard is 1: those of 'orders' are 0 to 0"),
        (WHOLE.replace("shard = 0", "shard = -1"), "shard is -1"),
        (WHOLE.replace("shard = 0\n", ""), "chains, number 1: shard is missing: give a whole number"),
        (WHOLE.replace("epoch = 1", "epoch = 0"), "chains, number 1: epoch is 0: give 1 or more"),
        (WHOLE.replace("epoch = 1", "epoch = 9223372036854775808"), "9223372036854775807 is the highest"),
        (WHOLE.replace("epoch = 1\n", ""), "epoch is missing"),
        (WHOLE + "tails = 3\n", "tails is 3 of 3 serving members"),
        (WHOLE + "tails = 0\n", "tails is 0"),
        (WHOLE + "trails = 1\n", "chains, number 1: 'trails' is unknown: known are epoch,"),
        (WHOLE.replace(MEMBERS, "members = []\n"), "must begin with its serving members"),
        (WHOLE.replace(MEMBERS, ""), "members is missing"),
        (WHOLE.replace("b", "a", 1), "is not TOML"),
        (WHOLE.replace('{ node = "b" }', '{ node = "a" }'), "names a node twice"),
        (WHOLE.replace('{ node = "b" }', '{ node = "z" }'), "members, number 2: node is 'z': the file names a, b, c"),
        (WHOLE.replace('{ node = "b" }', '{ name = "b" }'), "members, number 2: node is missing"),
        (WHOLE.replace('{ node = "b" }', '{ node = "b", role = "x" }'), "'role' is unknown"),
        (WHOLE.replace('{ node = "b" }', '{ node = "b", state = "up" }'), "state is 'up': use one of waiting, syncing"),
        (WHOLE.replace('{ node = "b" }', '{ node = "b", incarnation = "xy" }'), "incarnation is 'xy': give hex"),
        (WHOLE.replace('{ node = "a" }', '{ node = "a", state = "waiting" }'), "must begin with its serving members"),
        (WHOLE.replace("replicas = 3", "replicas = 2"), "3 members serve, topic 'orders' has 2 replicas"),
    ],
    ids=str,
)
def test_a_mistake_is_named_with_file_place_and_value(text: str, complaint: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse(text)
    assert complaint in refused.value.message
    assert str(PATH) in refused.value.message


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match="is not UTF-8"):
        parse_cluster(b"\xff", PATH)
    with pytest.raises(InvalidArgument, match=r"cannot read .*nothing.toml: No such file"):
        read_content(tmp_path / "nothing.toml")
    with pytest.raises(InvalidArgument, match="Is a directory"):
        read_content(tmp_path)
    monkeypatch.setattr(chain_file, "CLUSTER_FILE_BYTES_MAX", 10)
    (tmp_path / "large.toml").write_bytes(b"#" * 11)
    with pytest.raises(InvalidArgument, match="more than 10 bytes"):
        read_content(tmp_path / "large.toml")


def test_a_node_holds_so_many_shards_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_file, "SHARDS_PER_NODE_MAX", 1)
    more = WHOLE.replace("replicas = 3", "replicas = 3\nshards = 2") + CHAIN.replace("shard = 0", "shard = 1")
    with pytest.raises(InvalidArgument, match="node a is in 2 chains, 1 are the most"):
        parse(more)
    monkeypatch.setattr(chain_file, "TOPICS_MAX", 0)
    with pytest.raises(InvalidArgument, match="topics: there are 1, 0 are the most"):
        parse(WHOLE)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("epoch = 1", "epoch = 2", ""),
        (MEMBERS, MEMBERS.replace('"b"', '"x"').replace('"c"', '"b"').replace('"x"', '"c"'), "within epoch 1"),
        (MEMBERS + "", MEMBERS + "tails = 2\n", "orders/0: it changed within epoch 1: give it a higher one"),
        ("epoch = 1\n" + MEMBERS, "epoch = 2\n" + MEMBERS + "tails = 2\n", ""),
        ("replicas = 3\n", "replicas = 3\nmin_durable = 2\n", "orders/0: it changed within epoch 1"),
        ("replicas = 3\n", "replicas = 3\nmax_age_ms = 9\n", ""),
        ("replicas = 3\n", "replicas = 3\nmode = 'log'\n", "topics.orders: it had 1 shards of mode compact"),
        (TOPIC + CHAIN, "", "topics.orders: it is gone: put it back"),
        ("127.0.0.1:7402", "127.0.0.1:9", "the address of b changed within epoch 1"),
        ("[topics", 'd = "127.0.0.1:7404"\n[topics', ""),
        ("[topics.orders]", "[topics.orders]\nshards = 1", ""),
    ],
)
def test_what_a_new_file_may_say(old: str, new: str, complaint: str) -> None:
    before, after = parse(WHOLE), parse(WHOLE.replace(old, new))
    assert before != after or "shards = 1" in new
    if not complaint:
        check_follows(before, after)
        return
    with pytest.raises(InvalidArgument) as refused:
        check_follows(before, after)
    assert complaint in refused.value.message


def test_epochs_never_fall() -> None:
    with pytest.raises(InvalidArgument, match="epoch fell from 5 to 1: give 6 or more"):
        check_follows(parse(WHOLE.replace("epoch = 1", "epoch = 5")), parse(WHOLE))


def test_new_topics_and_chains_may_come() -> None:
    more = (
        WHOLE + "[topics.audit]\n" + CHAIN.replace("orders", "audit").replace(MEMBERS, 'members = [{ node = "c" }]\n')
    )
    check_follows(parse(WHOLE), parse(more))
