"""What is on the disk: private, named by ids, locked by one node; damage is not served and stays alone."""

import shutil
import stat
from pathlib import Path

import grpc
import pytest

from kayos.errors import DamagedStore, DataLoss
from kayos.wire.v1 import cluster_pb2, log_pb2
from tests.nodes import NodeFailed, NodeProcess
from tests.server.calls import TIMEOUT_S, Calls, error_of, shard


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """The data directory of a stopped node with two topics, `one` of two shards and `two`."""
    with NodeProcess.start(tmp_path / "data") as node:
        async with Calls(node.address) as calls:
            await calls.create_topic("one", shards=2)
            await calls.create_topic("two")
            for topic, index in (("one", 0), ("one", 1), ("two", 0)):
                values = {b"k%d" % key: b"v" * 200 for key in range(200)}
                request = log_pb2.ProduceRequest(
                    shard=shard(topic, index), keys=list(values), values=list(values.values())
                )
                await calls.Produce(request, timeout=TIMEOUT_S)
        assert node.stop() == 0
    return tmp_path / "data"


async def topic_ids(calls: Calls) -> dict[str, str]:
    topics = (await calls.ListTopics(cluster_pb2.ListTopicsRequest(), timeout=TIMEOUT_S)).topics
    return {topic.name: topic.topic_id for topic in topics}


async def test_everything_is_private_and_named_by_ids(data: Path) -> None:
    with NodeProcess.start(data) as node:
        async with Calls(node.address) as calls:
            await calls.CompactShard(cluster_pb2.CompactShardRequest(topic="one"), timeout=TIMEOUT_S)
            ids = await topic_ids(calls)
        check_private(data)
        shards = {path.name for path in (data / "shards").iterdir()}
        assert shards == {f"{ids['one']}-0", f"{ids['one']}-1", f"{ids['two']}-0"}


def check_private(data: Path) -> None:
    paths = [data, *data.rglob("*")]
    assert len(paths) > 10
    for path in paths:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), f"{path} has mode {mode:o}"


async def test_a_loose_directory_is_tightened(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    with NodeProcess.start(data):
        assert stat.S_IMODE(data.stat().st_mode) == 0o700


async def test_a_second_node_on_the_same_directory_is_refused(data: Path) -> None:
    with NodeProcess.start(data) as node:
        with pytest.raises(NodeFailed, match=r"another node runs on .* stop it first"):
            NodeProcess.start(data)
        async with Calls(node.address) as calls:
            assert len(await calls.contents("two")) == 200


async def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with (
        NodeProcess.start(tmp_path / "one") as node,
        pytest.raises(NodeFailed, match=r"cannot listen on .* the port is taken"),
    ):
        NodeProcess.start(tmp_path / "two", listen=node.address)


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "flipped bit", "removed", "lost with its directory"])
async def test_a_damaged_shard_is_not_served_and_the_others_are(data: Path, damage: str) -> None:
    with NodeProcess.start(data) as node:
        async with Calls(node.address) as calls:
            topic_id = (await topic_ids(calls))["one"]
        assert node.stop() == 0
    (file,) = (data / "shards" / f"{topic_id}-1").glob("*/data.mdb")
    content = bytearray(file.read_bytes())
    match damage:
        case "truncated":
            content = content[: len(content) // 2]
        case "overwritten":
            content[:4096] = b"\xa5" * 4096
        case "flipped bit":
            content[content.rindex(b"v" * 200) + 100] ^= 1
    if damage == "removed":
        file.unlink()
    elif damage == "lost with its directory":
        shutil.rmtree(file.parent.parent)
    else:
        file.write_bytes(content)
    with NodeProcess.start(data) as node:
        async with Calls(node.address) as calls:
            assert len(await calls.contents("one")) == len(await calls.contents("two")) == 200
            request = log_pb2.SubscribeRequest(shard=shard("one", 1), after_seq=0)
            write = log_pb2.ProduceRequest(shard=shard("one", 1), values=[b"x"])
            for call in (
                calls.Subscribe(request, timeout=TIMEOUT_S),
                calls.Produce(write, timeout=TIMEOUT_S),
            ):
                code, error = await error_of(call)
                assert code is grpc.StatusCode.DATA_LOSS and isinstance(error, DataLoss), error
            describe = cluster_pb2.DescribeTopicRequest(name="one")
            statuses = (await calls.DescribeTopic(describe, timeout=TIMEOUT_S)).shards
            assert [bool(status.problem) for status in statuses] == [False, True]
        assert node.stop() == 0


async def test_a_symbolic_link_in_place_of_a_shard_is_refused(data: Path) -> None:
    path = next((data / "shards").iterdir())
    moved = data.parent / "elsewhere"
    shutil.move(path, moved)
    path.symlink_to(moved)
    with NodeProcess.start(data) as node:
        refused = node.wait_for_event("the shard is not served")
        assert "symbolic link" in refused["reason"]
        async with Calls(node.address) as calls:
            call = calls.Produce(
                log_pb2.ProduceRequest(shard=shard(refused["topic"], refused["shard"]), values=[b"x"]),
                timeout=TIMEOUT_S,
            )
            code, error = await error_of(call)
            assert code is grpc.StatusCode.DATA_LOSS and isinstance(error, DamagedStore)


async def test_a_symbolic_link_in_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    victim = tmp_path / "victim"
    (data / "lock").symlink_to(victim)
    with pytest.raises(NodeFailed, match="lock cannot be opened"):
        NodeProcess.start(data)
    assert not victim.exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a file of topics"),
        (b"{}", "not a file of topics"),
        (b'{"format":9,"checksum":0,"topics":[]}', "has format 9"),
        (b'{"format":1,"checksum":0,"topics":[]}', "fails its checksum"),
    ],
    ids=["empty", "foreign", "newer", "changed"],
)
async def test_a_damaged_list_of_topics_stops_the_start(data: Path, content: bytes, complaint: str) -> None:
    (data / "topics.json").write_bytes(content)
    with pytest.raises(NodeFailed, match=complaint):
        NodeProcess.start(data)
    assert len(list((data / "shards").iterdir())) == 3, "nobody threw the data away"


async def test_a_changed_digit_in_the_list_of_topics_is_noticed(data: Path) -> None:
    file = data / "topics.json"
    content = file.read_bytes()
    assert content.count(b'"shards": 2') == 1
    file.write_bytes(content.replace(b'"shards": 2', b'"shards": 1'))
    with pytest.raises(NodeFailed, match="fails its checksum"):
        NodeProcess.start(data)
