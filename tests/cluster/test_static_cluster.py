"""The coordinator of a static cluster: the file is followed, a bad one changes nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kayos.cluster.coordinator import Coordinator
from kayos.cluster.static_cluster import StaticCluster
from kayos.errors import FailedPrecondition, InvalidArgument, ShardNotFound, TopicNotFound
from kayos.files import replace_file
from kayos.model.topic import Topic
from tests.cluster.test_chain_file import AUDIT, WHOLE

NEXT_EPOCH = WHOLE.replace("epoch = 1", "epoch = 2")


class World:
    """The file, a coordinator that follows it, and what it said."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "cluster.toml"
        self.file.write_text(WHOLE)
        self.reports: list[str] = []
        self.cluster = StaticCluster(self.file, "a", self.reports.append)
        self.changes = self.cluster.changes()

    def write(self, content: str) -> None:
        replace_file(self.file, content.encode())

    async def epoch(self) -> int:
        topic = await self.cluster.find_topic("orders")
        return (await self.cluster.find_view(topic, 0)).chain_view.epoch

    async def next_change(self) -> None:
        async with asyncio.timeout(10):
            await anext(self.changes)

    @asynccontextmanager
    async def no_change(self) -> AsyncIterator[None]:
        """What happens inside is seen, and is no change."""
        listening = asyncio.ensure_future(anext(self.changes))
        yield
        await self.cluster.fetch()
        assert not listening.done()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        self.changes = self.cluster.changes()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_topics_and_views_are_those_of_the_file(world: World) -> None:
    cluster: Coordinator = world.cluster
    assert cluster.node_name == "a" and world.cluster.address == "127.0.0.1:7401"
    (topic,) = await cluster.list_topics()
    assert topic == await cluster.find_topic("orders")
    view = await cluster.find_view(topic, 0)
    assert view.chain_view.serving == ("a", "b", "c")
    assert view.addresses == {"a": "127.0.0.1:7401", "b": "127.0.0.1:7402", "c": "127.0.0.1:7403"}
    with pytest.raises(ShardNotFound, match="has no shard 1: its shards are 0 to 0"):
        await cluster.find_view(topic, 1)
    with pytest.raises(TopicNotFound, match=r"cluster.toml does not name it"):
        await cluster.find_topic("order")


async def test_topics_are_changed_in_the_file_only(world: World) -> None:
    for refused in (
        world.cluster.create_topic(Topic("t", "")),
        world.cluster.alter_topic("orders", {"max_age_ms": 1}),
        world.cluster.delete_topic("orders"),
    ):
        with pytest.raises(FailedPrecondition, match=r"topics of a static cluster are named in .*cluster.toml"):
            await refused


def test_a_bad_file_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    with pytest.raises(InvalidArgument, match="No such file"):
        StaticCluster(file, "a", print)
    file.write_text(WHOLE)
    with pytest.raises(InvalidArgument, match="this node's name, 'z', is not there, but a, b, c"):
        StaticCluster(file, "z", print)


async def test_a_changed_file_is_noticed_by_itself(world: World) -> None:
    world.write(NEXT_EPOCH)
    await world.next_change()
    assert await world.epoch() == 2
    # The same size and maybe the same time: the content counts.
    world.write(NEXT_EPOCH.replace("epoch = 2", "epoch = 3"))
    await world.next_change()
    assert await world.epoch() == 3
    world.write(NEXT_EPOCH.replace("epoch = 2", "epoch = 3") + AUDIT)
    await world.next_change()
    assert [topic.name for topic in await world.cluster.list_topics()] == ["audit", "orders"]
    assert world.reports == []


async def test_fetch_looks_at_once_and_listeners_hear_of_it(world: World) -> None:
    world.write(NEXT_EPOCH)
    await asyncio.gather(*(world.cluster.fetch() for _ in range(5)))
    assert await world.epoch() == 2
    await world.next_change()
    async with world.no_change():
        await world.cluster.fetch()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[nodes", "is not TOML"),
        (WHOLE.replace("epoch = 1", "epoch = 0"), "epoch is 0"),
        (WHOLE + "tails = 2\n", "it changed within epoch 1"),
        (NEXT_EPOCH.replace('a = "127.0.0.1:7401"\n', "").replace('{ node = "a" }, ', "").replace("3\n", "2\n"), "'a'"),
        ("", "nodes is missing"),
    ],
)
async def test_a_bad_file_is_reported_once_and_changes_nothing(world: World, content: str, complaint: str) -> None:
    async with world.no_change():
        world.write(content)
        for _ in range(3):
            await world.cluster.fetch()
    assert await world.epoch() == 1
    assert len(world.reports) == 1 and complaint in world.reports[0] and str(world.file) in world.reports[0]
    assert world.cluster.problem == world.reports[0]
    # Put right, it is followed again.
    world.write(NEXT_EPOCH)
    await world.next_change()
    assert await world.epoch() == 2 and world.cluster.problem == "" and len(world.reports) == 1


async def test_a_file_that_went_away_and_came_back_as_it_was_is_no_change(world: World) -> None:
    async with world.no_change():
        world.file.unlink()
        await world.cluster.fetch()
        await world.cluster.fetch()
        assert len(world.reports) == 1 and "No such file" in world.cluster.problem
        world.write(WHOLE)
        await world.cluster.fetch()
        assert world.cluster.problem == ""
    assert len(world.reports) == 1


async def test_an_epoch_that_fell_is_refused(world: World) -> None:
    world.write(NEXT_EPOCH)
    await world.next_change()
    async with world.no_change():
        world.write(WHOLE)
        await world.cluster.fetch()
    assert await world.epoch() == 2 and "epoch fell from 2 to 1" in world.reports[0]
