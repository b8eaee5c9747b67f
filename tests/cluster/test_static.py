"""The coordinator of a node alone: topics in one file that a crash leaves old or new."""

import asyncio
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from kayos import files
from kayos.cluster.coordinator import ShardView
from kayos.cluster.static import TOPICS_FILE, StaticCoordinator
from kayos.errors import InvalidArgument, LimitReached, ShardNotFound, StoreFull, TopicExists, TopicNotFound
from kayos.model.chain import ChainView, Member, Role
from kayos.model.topic import Mode, Retention, Topic

ADDRESS = "127.0.0.1:7400"


def wanted(name: str, **settings: object) -> Topic:
    return replace(Topic(name=name, topic_id=""), **settings)


async def test_topics_are_kept_in_the_file(tmp_path: Path) -> None:
    coordinator = StaticCoordinator(tmp_path, "n1", ADDRESS)
    created, was_created = await coordinator.create_topic(wanted("b", shards=3, mode=Mode.LOG))
    other, _ = await coordinator.create_topic(wanted("a"))
    assert was_created and len(created.topic_id) == 16 and created.created_ms > 0
    altered = await coordinator.alter_topic("b", {"max_messages": 5})
    assert altered == replace(created, retention=Retention(max_messages=5))
    reopened = StaticCoordinator(tmp_path, "n1", ADDRESS)
    assert await reopened.list_topics() == [other, altered]
    assert await reopened.find_topic("b") == altered
    await reopened.delete_topic("b")
    assert await StaticCoordinator(tmp_path, "n1", ADDRESS).list_topics() == [other]
    assert stat.S_IMODE((tmp_path / TOPICS_FILE).stat().st_mode) == 0o600


async def test_the_view_of_a_node_alone(tmp_path: Path) -> None:
    coordinator = StaticCoordinator(tmp_path, "n1", ADDRESS)
    topic, _ = await coordinator.create_topic(wanted("t"))
    view = await coordinator.find_view(topic, 0)
    assert coordinator.node_name == "n1"
    assert view == ShardView(0, ChainView(1, (Member("n1"),)), {"n1": ADDRESS})
    assert view.chain_view.role_of("n1") is Role.ALONE
    view.chain_view.check()
    with pytest.raises(ShardNotFound, match="has no shard 1"):
        await coordinator.find_view(topic, 1)


async def test_nothing_changes_behind_the_back_of_a_node_alone(tmp_path: Path) -> None:
    coordinator = StaticCoordinator(tmp_path, "n1", ADDRESS)
    listening = asyncio.ensure_future(anext(coordinator.changes()))
    await coordinator.create_topic(wanted("t"))
    await coordinator.fetch()
    assert not listening.done()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_what_cannot_be_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    coordinator = StaticCoordinator(tmp_path, "n1", ADDRESS)
    topic, _ = await coordinator.create_topic(wanted("t"))
    before = (tmp_path / TOPICS_FILE).read_bytes()
    with pytest.raises(TopicExists, match="choose another name"):
        await coordinator.create_topic(wanted("t", shards=2))
    with pytest.raises(InvalidArgument, match="one node holds one replica"):
        await coordinator.create_topic(wanted("u", replicas=2))
    with pytest.raises(InvalidArgument, match="use max_age_ms"):
        await coordinator.alter_topic("t", {"max_bytes": 5})
    with pytest.raises(LimitReached, match="more do not fit"):
        await coordinator.create_topic(wanted("u", shards=1_024))
    for call in (coordinator.find_topic("u"), coordinator.alter_topic("u", {}), coordinator.delete_topic("u")):
        with pytest.raises(TopicNotFound):
            await call
    assert (tmp_path / TOPICS_FILE).read_bytes() == before
    assert await coordinator.create_topic(wanted("t")) == (topic, False)


async def test_a_disk_without_room_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = StaticCoordinator(tmp_path, "n1", ADDRESS)

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(StoreFull, match="make room on the disk") as full:
        await coordinator.create_topic(wanted("t"))
    assert full.value.retry_delay_ms > 0
    assert await coordinator.list_topics() == []
    monkeypatch.undo()
    assert (await coordinator.create_topic(wanted("t")))[1]


async def test_a_caller_who_leaves_does_not_part_file_and_memory(tmp_path: Path) -> None:
    coordinator = StaticCoordinator(tmp_path, "n1", ADDRESS)
    for number in range(20):
        creating = asyncio.ensure_future(coordinator.create_topic(wanted(f"t{number}")))
        for _ in range(number % 4):
            await asyncio.sleep(0)
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
    last, _ = await coordinator.create_topic(wanted("last"))
    assert last in await coordinator.list_topics()
    assert await StaticCoordinator(tmp_path, "n1", ADDRESS).list_topics() == await coordinator.list_topics()


async def test_a_file_half_written_beside_is_no_harm(tmp_path: Path) -> None:
    await StaticCoordinator(tmp_path, "n1", ADDRESS).create_topic(wanted("t"))
    (tmp_path / (TOPICS_FILE + ".new")).write_bytes(b'{"format":1,"che')
    coordinator = StaticCoordinator(tmp_path, "n1", ADDRESS)
    await coordinator.create_topic(wanted("u"))
    assert [topic.name for topic in await coordinator.list_topics()] == ["t", "u"]
    assert not (tmp_path / (TOPICS_FILE + ".new")).exists()
