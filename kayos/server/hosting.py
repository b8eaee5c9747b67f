"""The shards that this node holds: opened at the start, created and deleted with their topics.

A shard whose store is damaged or lost is not served: its callers hear why, the rest of the node lives.
Directories that no topic names are reported and left alone, since a lost list of topics must not cost data.

`host` and `unhost` are called one at a time and run to their end (the cluster service sees to it).
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

from kayos.cluster.coordinator import Coordinator
from kayos.errors import KayosError, ShardNotFound, TopicNotFound, Unavailable
from kayos.model.topic import Topic, check_name
from kayos.server.logs import get_log
from kayos.server.shard import ServedStore, Shard, cause_of
from kayos.server.shard_directories import ShardDirectories

OpenStore = Callable[[Path, Topic, int], ServedStore]


@dataclass(slots=True)
class HostedTopic:
    """`failed` holds, for a shard that could not be opened, why."""

    topic: Topic
    shards: dict[int, Shard] = field(default_factory=dict)
    failed: dict[int, KayosError] = field(default_factory=dict)


class Hosting:
    def __init__(self, directory: Path, coordinator: Coordinator, open_store: OpenStore, pool: Executor) -> None:
        self._directories = ShardDirectories(directory)
        self._coordinator = coordinator
        self._open_store = open_store
        self._pool = pool
        self._topics: dict[str, HostedTopic] = {}
        self._log = get_log()

    async def open(self) -> None:
        await asyncio.to_thread(self._directories.prepare)
        topics = await self._coordinator.list_topics()
        for topic in topics:
            await self.host(topic)
        for name in self._directories.find_strangers(topics):
            self._log.warning("a directory belongs to no topic and is left alone", directory=name)

    async def host(self, topic: Topic) -> dict[int, KayosError]:
        """Open every shard of the topic, create what is not there; why some of them could not be opened."""
        hosted = self._topics.get(topic.name)
        if hosted is None:
            hosted = HostedTopic(topic)
            for index in range(topic.shards):
                await self._open_shard(hosted, index)
            self._topics[topic.name] = hosted
        return hosted.failed

    async def unhost(self, topic: Topic) -> None:
        """Close a deleted topic's shards and remove their directories."""
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

    def find_shard(self, name: str, index: int, epoch: int) -> Shard:
        """The shard a request names; every way in which it can be wrong has its own answer."""
        hosted = self._topics.get(name)
        if hosted is None:
            check_name("topic", name)
            raise TopicNotFound(f"topic {name!r} does not exist: create it with 'kayos topic create {name}'")
        shard = hosted.shards.get(index)
        if shard is None:
            failure = hosted.failed.get(index)
            if failure is not None:
                raise type(failure)(failure.message, **failure.fields)
            raise ShardNotFound(f"topic {name!r} has no shard {index}: its shards are 0 to {hosted.topic.shards - 1}")
        if epoch:
            shard.check_epoch(epoch)
        return shard

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

    async def _open_shard(self, hosted: HostedTopic, index: int) -> None:
        topic = hosted.topic
        log = get_log(topic=topic.name, shard=index)
        try:
            store = await asyncio.to_thread(self._open_or_make, topic, index)
            view = await self._coordinator.find_view(topic, index)
            shard = Shard(topic, index, view.epoch, store, self._pool)
        except KayosError as error:
            log.error("the shard is not served", reason=error.message, cause=cause_of(error))
            hosted.failed[index] = error
            return
        except OSError as error:
            log.error("the shard is not served", reason=str(error))
            hosted.failed[index] = Unavailable(f"the shard's store cannot be opened: {error.strerror}")
            return
        hosted.shards[index] = shard
        try:
            await shard.become_ready()
        except KayosError as error:
            # It reads; the next write tries again (a full disk may have room by then).
            log.warning("the shard takes no writes yet", reason=error.message)

    def _open_or_make(self, topic: Topic, index: int) -> ServedStore:
        store = self._open_store(self._directories.check(topic, index), topic, index)
        self._directories.note_made(topic, index)
        return store
