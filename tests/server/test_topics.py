"""Topics: create, list, describe, alter, delete, and what a restart keeps."""

import asyncio
from pathlib import Path

import grpc

from kayos.errors import InvalidArgument, TopicExists, TopicNotFound
from kayos.wire.v1 import cluster_pb2, log_pb2
from tests.nodes import NodeProcess
from tests.server.calls import TIMEOUT_S, Calls, error_of, shard


def create(name: str, **settings: object) -> cluster_pb2.CreateTopicRequest:
    return cluster_pb2.CreateTopicRequest(name=name, **settings)


async def names(calls: Calls) -> list[str]:
    response = await calls.ListTopics(cluster_pb2.ListTopicsRequest(), timeout=TIMEOUT_S)
    return [topic.name for topic in response.topics]


async def test_creating_again_with_the_same_settings_succeeds(calls: Calls) -> None:
    first = await calls.CreateTopic(create("same", shards=2), timeout=TIMEOUT_S)
    again = await calls.CreateTopic(create("same", shards=2), timeout=TIMEOUT_S)
    assert (first.created, again.created) == (True, False)
    assert first.topic == again.topic
    assert first.topic.retention.tombstone_ms == 7 * 86_400_000


async def test_creating_again_with_other_settings_is_refused_and_changes_nothing(calls: Calls) -> None:
    before = await calls.create_topic("taken", shards=2)
    for other in (
        create("taken", shards=3),
        create("taken", shards=2, mode=2),
        create("taken", shards=2, retention=cluster_pb2.Retention(max_age_ms=5)),
    ):
        code, error = await error_of(calls.CreateTopic(other, timeout=TIMEOUT_S))
        assert code is grpc.StatusCode.ALREADY_EXISTS and isinstance(error, TopicExists)
        assert "kayos topic describe taken" in error.message
    described = await calls.DescribeTopic(cluster_pb2.DescribeTopicRequest(name="taken"), timeout=TIMEOUT_S)
    assert described.topic == before and [status.shard for status in described.shards] == [0, 1]


async def test_a_hundred_racing_creations_make_one_topic(calls: Calls) -> None:
    answers = await asyncio.gather(*(calls.CreateTopic(create("raced"), timeout=TIMEOUT_S) for _ in range(100)))
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.topic.topic_id for answer in answers}) == 1


async def test_a_caller_who_leaves_does_not_leave_half_a_topic(calls: Calls, node: NodeProcess) -> None:
    before = count_shards(node)
    creating = calls.CreateTopic(create("abandoned", shards=20), timeout=TIMEOUT_S)
    while count_shards(node) < before + 5:
        await names(calls)
    # In the middle of opening its shards: go away.
    creating.cancel()
    await calls.CreateTopic(create("abandoned", shards=20), timeout=TIMEOUT_S)
    described = await calls.DescribeTopic(cluster_pb2.DescribeTopicRequest(name="abandoned"), timeout=TIMEOUT_S)
    assert [status.problem for status in described.shards] == [""] * 20


def count_shards(node: NodeProcess) -> int:
    return sum(1 for _ in (node.data / "shards").iterdir())


async def test_creating_and_deleting_in_a_race_ends_whole(calls: Calls) -> None:
    async def ignore(call: object) -> None:
        try:
            await call  # type: ignore[misc]
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.NOT_FOUND

    for _ in range(10):
        await asyncio.gather(
            ignore(calls.CreateTopic(create("flicker"), timeout=TIMEOUT_S)),
            ignore(calls.DeleteTopic(cluster_pb2.DeleteTopicRequest(name="flicker"), timeout=TIMEOUT_S)),
            ignore(calls.CreateTopic(create("flicker"), timeout=TIMEOUT_S)),
        )
        # Either it is there and takes writes, or it is not there at all.
        if "flicker" in await names(calls):
            await calls.append("flicker", b"x")
        else:
            _, error = await error_of(calls.append("flicker", b"x"))
            assert isinstance(error, TopicNotFound)


async def test_altering_changes_only_what_is_named(calls: Calls) -> None:
    await calls.create_topic("altered", mode=2, retention=cluster_pb2.Retention(max_age_ms=1_000_000, max_bytes=500))
    request = cluster_pb2.AlterTopicRequest(name="altered", max_bytes=0, max_messages=7)
    retention = (await calls.AlterTopic(request, timeout=TIMEOUT_S)).topic.retention
    assert (retention.max_age_ms, retention.max_bytes, retention.max_messages) == (1_000_000, 0, 7)
    for wrong in (
        cluster_pb2.AlterTopicRequest(name="altered"),
        cluster_pb2.AlterTopicRequest(name="altered", max_age_ms=2**64 - 1),
        cluster_pb2.AlterTopicRequest(name="altered", max_bytes=2**63),
    ):
        code, error = await error_of(calls.AlterTopic(wrong, timeout=TIMEOUT_S))
        assert code is grpc.StatusCode.INVALID_ARGUMENT and isinstance(error, InvalidArgument)


async def test_a_deleted_topic_is_gone_with_its_files_and_its_subscribers_hear_of_it(
    calls: Calls, node: NodeProcess
) -> None:
    topic = await calls.create_topic("deleted", shards=2)
    await calls.put("deleted", {b"a": b"1"})
    subscriber = calls.subscribe("deleted", after_seq=0)
    await anext(subscriber)
    waiting = asyncio.ensure_future(error_of(anext(subscriber)))
    await calls.DeleteTopic(cluster_pb2.DeleteTopicRequest(name="deleted"), timeout=TIMEOUT_S)
    code, error = await waiting
    assert code is grpc.StatusCode.NOT_FOUND and isinstance(error, TopicNotFound)
    assert not list((node.data / "shards").glob(f"{topic.topic_id}-*"))
    assert not list((node.data / "trash").iterdir())
    # The name is free again, and nothing of the old topic shows.
    reborn = await calls.create_topic("deleted")
    assert reborn.topic_id != topic.topic_id
    assert await calls.contents("deleted") == {}


async def test_the_view_names_head_and_tail(calls: Calls, node: NodeProcess, topic: str) -> None:
    view = await calls.GetView(cluster_pb2.GetViewRequest(topic=topic), timeout=TIMEOUT_S)
    (only,) = view.shards
    assert (list(only.chain), list(only.tails), only.epoch) == ([node.address], [node.address], 1)


async def test_status_tells_of_the_node_and_its_shards(calls: Calls, topic: str) -> None:
    await calls.put(topic, {b"a": b"1", b"b": b"2"})
    await calls.delete(topic, b"a")
    status = await calls.GetStatus(cluster_pb2.GetStatusRequest(), timeout=TIMEOUT_S)
    (found,) = [entry for entry in status.shards if entry.topic == topic]
    assert (found.high_seq, found.messages, found.keys, found.tombstones) == (3, 2, 2, 1)
    assert (found.role, found.sync, found.problem) == ("head+tail", "ready", "")
    assert status.resident_bytes > 0 and status.version and len(status.node_id) == 16


async def test_a_restart_keeps_topics_settings_messages_and_the_nodes_id(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodeProcess.start(data) as node:
        async with Calls(node.address) as calls:
            await calls.create_topic("kept", shards=3, mode=2)
            await calls.create_topic("gone")
            request = cluster_pb2.AlterTopicRequest(name="kept", max_messages=1000)
            topic = (await calls.AlterTopic(request, timeout=TIMEOUT_S)).topic
            await calls.append("kept", b"x")
            await calls.DeleteTopic(cluster_pb2.DeleteTopicRequest(name="gone"), timeout=TIMEOUT_S)
            node_id = (await calls.GetStatus(cluster_pb2.GetStatusRequest(), timeout=TIMEOUT_S)).node_id
        assert node.stop() == 0
    # A directory that no topic names is reported and left alone: a lost list must not cost data.
    orphan = data / "shards" / "0123456789abcdef-0"
    orphan.mkdir(mode=0o700)
    with NodeProcess.start(data) as node:
        async with Calls(node.address) as calls:
            topics = (await calls.ListTopics(cluster_pb2.ListTopicsRequest(), timeout=TIMEOUT_S)).topics
            assert list(topics) == [topic]
            assert await calls.contents("kept") == {b"": b"x"}
            assert (await calls.status("kept")).messages == 1
            status = await calls.GetStatus(cluster_pb2.GetStatusRequest(), timeout=TIMEOUT_S)
            assert status.node_id == node_id
            # The other shards were kept too, each with its own sequences.
            request = cluster_pb2.DescribeTopicRequest(name="kept")
            shards = (await calls.DescribeTopic(request, timeout=TIMEOUT_S)).shards
            assert [entry.high_seq for entry in shards] == [1, 0, 0]
            await calls.Produce(shard_append("kept", 2), timeout=TIMEOUT_S)
    assert orphan.is_dir()
    assert [entry["directory"] for entry in node.log if "directory" in entry] == [orphan.name]


def shard_append(topic: str, index: int) -> log_pb2.ProduceRequest:
    return log_pb2.ProduceRequest(shard=shard(topic, index), values=[b"x"])
