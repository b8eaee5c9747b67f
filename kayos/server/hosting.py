"""The shards that this node holds: opened at the start, created and deleted with their topics.

Directories are named by ids (`<topic_id>-<shard>`), never by names. A shard whose store is damaged is not
served: its callers hear why, the rest of the node lives. A deleted topic's directories are moved to the
trash before they are removed, so that a crash never leaves half a store where a whole one is expected;
directories that no topic names are reported and left alone, since a lost list of topics must not cost data.

`host` and `unhost` are called one at a time and run to their end (the cluster service sees to it).
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

from kayos.cluster.coordinator import Coordinator
from kayos.errors import DamagedStore, KayosError, ShardNotFound, TopicNotFound, Unavailable
from kayos.model.topic import Topic, check_name
from kayos.server.logs import get_log
from kayos.server.shard import ServedStore, Shard, cause_of

OpenStore = Callable[[Path, Topic, int], ServedStore]


@dataclass(slots=True)
class HostedTopic:
    """`failed` holds, for a shard that could not be opened, why."""

    topic: Topic
    shards: dict[int, Shard] = field(default_factory=dict)
    failed: dict[int, KayosError] = field(default_factory=dict)


class Hosting:
    def __init__(self, directory: Path, coordinator: Coordinator, open_store: OpenStore, pool: Executor) -> None:
        self._directory = directory / "shards"
        self._trash = directory / "trash"
        self._coordinator = coordinator
        self._open_store = open_store
        self._pool = pool
        self._topics: dict[str, HostedTopic] = {}
        self._log = get_log()

    async def open(self) -> None:
        for directory in (self._directory, self._trash):
            directory.mkdir(mode=0o700, exist_ok=True)
        await asyncio.to_thread(remove_all_in, self._trash)
        topics = await self._coordinator.list_topics()
        for topic in topics:
            await self.host(topic)
        known = {f"{topic.topic_id}-{index}" for topic in topics for index in range(topic.shards)}
        for path in self._directory.iterdir():
            if path.name not in known:
                self._log.warning("a directory belongs to no topic and is left alone", directory=path.name)

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
            await asyncio.to_thread(self._throw_away, self._path(topic, index))

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

    def _path(self, topic: Topic, index: int) -> Path:
        return self._directory / f"{topic.topic_id}-{index}"

    async def _open_shard(self, hosted: HostedTopic, index: int) -> None:
        topic = hosted.topic
        log = get_log(topic=topic.name, shard=index)
        try:
            path = self._path(topic, index)
            if path.is_symlink():
                raise DamagedStore(f"{path} is a symbolic link: put the shard's directory itself there")
            store = await asyncio.to_thread(self._open_store, path, topic, index)
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

    def _throw_away(self, path: Path) -> None:
        if path.exists():
            target = self._trash / path.name
            path.rename(target)
            shutil.rmtree(target, ignore_errors=True)


def remove_all_in(directory: Path) -> None:
    for path in directory.iterdir():
        shutil.rmtree(path, ignore_errors=True)
