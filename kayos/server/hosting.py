"""The shards that this node holds: opened at the start, created and deleted with their topics, and told of new views.

A shard whose store is damaged or lost is not served: its callers hear why, the rest of the node lives.
Directories that no topic names are reported and left alone, since a lost list of topics must not cost data.

`host`, `unhost` and `refresh` are called one at a time and run to their end (`Turns`).
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kayos.cluster.coordinator import Coordinator
from kayos.cluster.turns import Turns
from kayos.errors import KayosError, NotMyRole, ShardNotFound, TopicNotFound, Unavailable
from kayos.limits import TICK_S
from kayos.model.topic import Topic, check_name
from kayos.replica.events import Tick
from kayos.server.committer import cause_of
from kayos.server.logs import get_log
from kayos.server.shard import Place, ServedStore, Shard
from kayos.server.shard_directories import ShardDirectories

OpenStore = Callable[[Path, Topic, int], ServedStore]


@dataclass(slots=True)
class HostedTopic:
    """`failed` holds, for a shard that could not be opened, why. Shards that live on other nodes are in neither."""

    topic: Topic
    shards: dict[int, Shard] = field(default_factory=dict)
    failed: dict[int, KayosError] = field(default_factory=dict)


class Hosting:
    def __init__(self, directory: Path, coordinator: Coordinator, open_store: OpenStore, place: Place) -> None:
        self._directories = ShardDirectories(directory)
        self._coordinator = coordinator
        self._open_store = open_store
        self._place = place
        self._topics: dict[str, HostedTopic] = {}
        self._turns = Turns()
        self._log = get_log()

    async def open(self) -> None:
        await asyncio.to_thread(self._directories.prepare)
        topics = await self._coordinator.list_topics()
        for topic in topics:
            await self.host(topic)
        for name in self._directories.find_strangers(topics):
            self._log.warning("a directory belongs to no topic and is left alone", directory=name)

    async def host(self, topic: Topic) -> dict[int, KayosError]:
        """Open every shard of the topic that this node has a part in, create what is not there; why some of them could
        not be opened."""
        return await self._turns.take(self._host(topic))

    async def refresh(self) -> None:
        """Look at topics and views again: serve what is new, pass on what changed."""
        await self._turns.take(self._refresh())

    async def unhost(self, topic: Topic) -> None:
        """Close a deleted topic's shards and remove their directories."""
        await self._turns.take(self._unhost(topic))

    async def _host(self, topic: Topic) -> dict[int, KayosError]:
        hosted = self._topics.setdefault(topic.name, HostedTopic(topic))
        for index in range(topic.shards):
            await self._host_shard(hosted, index)
        return hosted.failed

    async def _refresh(self) -> None:
        for topic in await self._coordinator.list_topics():
            await self._host(topic)
            self.change(topic)

    async def _unhost(self, topic: Topic) -> None:
        hosted = self._topics.pop(topic.name, None)
        if hosted is None:
            return
        reason = TopicNotFound(f"topic {topic.name!r} was deleted")
        for shard in hosted.shards.values():
            await shard.close(reason)
        for index in range(topic.shards):
            await asyncio.to_thread(self._directories.throw_away, topic, index)

    def change(self, topic: Topic) -> None:
        """Take over a topic's new retention."""
        hosted = self._topics[topic.name]
        hosted.topic = topic
        for shard in hosted.shards.values():
            shard.topic = topic

    async def tick(self) -> None:
        """For ever: time passes for every replica of the node."""
        while True:
            await asyncio.sleep(TICK_S)
            for shard in list(self.shards()):
                shard.feed(Tick())

    def find_shard(self, name: str, index: int, epoch: int) -> Shard:
        """The shard a request names; every way in which it can be wrong has its own answer."""
        hosted = self._topics.get(name)
        if hosted is None:
            check_name("topic", name)
            raise TopicNotFound(f"topic {name!r} does not exist: create it with 'kayos topic create {name}'")
        shard = hosted.shards.get(index)
        if shard is None:
            raise self._why_absent(hosted, index)
        if epoch:
            shard.check_epoch(epoch)
        return shard

    def find_by_id(self, topic_id: str, index: int) -> Shard:
        for hosted in self._topics.values():
            if hosted.topic.topic_id == topic_id:
                shard = hosted.shards.get(index)
                if shard is None:
                    raise self._why_absent(hosted, index)
                return shard
        raise TopicNotFound(f"there is no topic with the id {topic_id!r} on this node")

    def _why_absent(self, hosted: HostedTopic, index: int) -> KayosError:
        name, failure = hosted.topic.name, hosted.failed.get(index)
        if failure is not None:
            return type(failure)(failure.message, **failure.fields)
        if index < hosted.topic.shards:
            return NotMyRole(f"shard {index} of topic {name!r} lives on other nodes: fetch the view", retry_delay_ms=50)
        return ShardNotFound(f"topic {name!r} has no shard {index}: its shards are 0 to {hosted.topic.shards - 1}")

    def find_topic(self, name: str) -> HostedTopic:
        check_name("topic", name)
        hosted = self._topics.get(name)
        if hosted is None:
            raise TopicNotFound(f"topic {name!r} does not exist: create it with 'kayos topic create {name}'")
        return hosted

    def topics(self) -> list[HostedTopic]:
        return [self._topics[name] for name in sorted(self._topics)]

    def shards(self) -> Iterator[Shard]:
        for hosted in self.topics():
            yield from hosted.shards.values()

    def refuse(self, reason: KayosError) -> None:
        """End the long polls of all shards."""
        for shard in self.shards():
            shard.refuse(reason)

    async def close(self, reason: KayosError) -> None:
        for shard in list(self.shards()):
            await shard.close(reason)

    async def _host_shard(self, hosted: HostedTopic, index: int) -> None:
        """Open the shard if it is to be here and is not, and tell it the newest view."""
        topic = hosted.topic
        view = await self._coordinator.find_view(topic, index)
        shard = hosted.shards.get(index)
        if shard is None:
            if index in hosted.failed or view.chain_view.find_member(self._place.node) is None:
                return
            shard = await self._open_shard(hosted, index)
            if shard is None:
                return
        if view.chain_view.epoch > shard.epoch:
            shard.adopt(view.chain_view, view.addresses)
            await shard.settle()

    async def _open_shard(self, hosted: HostedTopic, index: int) -> Shard | None:
        topic = hosted.topic
        log = get_log(topic=topic.name, shard=index)
        try:
            store = await asyncio.to_thread(self._open_or_make, topic, index)
        except KayosError as error:
            log.error("the shard is not served", reason=error.message, cause=cause_of(error))
            hosted.failed[index] = error
            return None
        except OSError as error:
            log.error("the shard is not served", reason=str(error))
            hosted.failed[index] = Unavailable(f"the shard's store cannot be opened: {error.strerror}")
            return None
        shard = hosted.shards[index] = Shard(topic, index, store, self._place)
        return shard

    def _open_or_make(self, topic: Topic, index: int) -> ServedStore:
        store = self._open_store(self._directories.check(topic, index), topic, index)
        self._directories.note_made(topic, index)
        return store
