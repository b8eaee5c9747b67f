"""The coordinator of a node that runs alone: topics in a file, every chain of length one, epoch 1.

The file is replaced as a whole: written beside, fsynced, renamed over the old one, and the directory
fsynced. So a crash leaves the old file or the new one. A checksum covers the topics, because a flipped
digit of a topic's id would make its data disappear; a damaged file is refused, never repaired by guessing.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import google_crc32c
import msgspec

from kayos.cluster.coordinator import ShardView
from kayos.cluster.turns import Turns
from kayos.errors import (
    DamagedStore,
    InvalidArgument,
    LimitReached,
    ShardNotFound,
    StoreFull,
    TopicExists,
    TopicNotFound,
)
from kayos.files import replace_file
from kayos.limits import SHARDS_PER_NODE_MAX, TOPICS_MAX
from kayos.model.chain import ChainView, Member
from kayos.model.topic import Topic

TOPICS_FILE = "topics.json"
FORMAT = 1
EPOCH = 1


class TopicsFile(msgspec.Struct, forbid_unknown_fields=True):
    """`checksum` is the CRC32C of the bytes of `topics` as they stand in the file."""

    format: int
    checksum: int
    topics: msgspec.Raw


class StaticCoordinator:
    """Topics by name in memory, changed only after the file holds the change. Changes take turns."""

    def __init__(self, directory: Path, node_name: str, address: str) -> None:
        self.node_name = node_name
        self._path = directory / TOPICS_FILE
        self._address = address
        self._topics = read_topics(self._path)
        self._turns = Turns()

    async def list_topics(self) -> list[Topic]:
        return [self._topics[name] for name in sorted(self._topics)]

    async def find_topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotFound(f"topic {name!r} does not exist: create it with 'kayos topic create {name}'")
        return topic

    async def create_topic(self, topic: Topic) -> tuple[Topic, bool]:
        topic.check()
        if topic.replicas > 1:
            raise InvalidArgument(
                f"replicas is {topic.replicas}: this node runs alone and one node holds one replica; give 1"
            )
        return await self._turns.take(self._create(topic))

    async def _create(self, topic: Topic) -> tuple[Topic, bool]:
        existing = self._topics.get(topic.name)
        if existing is not None:
            return self._same_topic(existing, topic), False
        self._check_room(topic)
        created = replace(topic, topic_id=secrets.token_hex(8), created_ms=int(time.time() * 1000))
        await self._save({**self._topics, created.name: created})
        return created, True

    async def alter_topic(self, name: str, changes: Mapping[str, int]) -> Topic:
        return await self._turns.take(self._alter(name, changes))

    async def _alter(self, name: str, changes: Mapping[str, int]) -> Topic:
        topic = await self.find_topic(name)
        altered = replace(topic, retention=replace(topic.retention, **changes))
        altered.check()
        if altered != topic:
            await self._save({**self._topics, name: altered})
        return altered

    async def delete_topic(self, name: str) -> Topic:
        return await self._turns.take(self._delete(name))

    async def _delete(self, name: str) -> Topic:
        topic = await self.find_topic(name)
        await self._save({other: kept for other, kept in self._topics.items() if other != name})
        return topic

    async def find_view(self, topic: Topic, shard: int) -> ShardView:
        if not 0 <= shard < topic.shards:
            raise ShardNotFound(f"topic {topic.name!r} has no shard {shard}: its shards are 0 to {topic.shards - 1}")
        return ShardView(shard, ChainView(EPOCH, (Member(self.node_name),)), {self.node_name: self._address})

    async def fetch(self) -> None:
        """There is nobody who could know more."""

    async def changes(self) -> AsyncIterator[None]:
        """Never: whatever changes does so through this node."""
        await asyncio.get_running_loop().create_future()
        yield

    def _same_topic(self, existing: Topic, asked: Topic) -> Topic:
        if replace(asked, topic_id=existing.topic_id, created_ms=existing.created_ms) != existing:
            raise TopicExists(
                f"topic {existing.name!r} exists with other settings: see 'kayos topic describe {existing.name}', "
                "then alter it or choose another name"
            )
        return existing

    def _check_room(self, topic: Topic) -> None:
        if len(self._topics) >= TOPICS_MAX:
            raise LimitReached(f"the node holds {TOPICS_MAX} topics, its most: delete one first")
        shards = sum(other.shards for other in self._topics.values())
        if shards + topic.shards > SHARDS_PER_NODE_MAX:
            raise LimitReached(
                f"the node holds {shards} shards and at most {SHARDS_PER_NODE_MAX}: {topic.shards} more do not fit"
            )

    async def _save(self, topics: dict[str, Topic]) -> None:
        """The file first, then memory: what a caller was told is on the disk."""
        try:
            await asyncio.to_thread(write_topics, self._path, list(topics.values()))
        except OSError as error:
            raise StoreFull(
                f"the list of topics cannot be written ({error.strerror}): nothing was changed, make room on the disk",
                retry_delay_ms=1_000,
            ) from error
        self._topics = topics


def read_topics(path: Path) -> dict[str, Topic]:
    """The topics of a file; none when there is no file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        file = msgspec.json.decode(content, type=TopicsFile)
        if file.format != FORMAT:
            raise DamagedStore(f"{path} has format {file.format}: this version of Kayos reads {FORMAT}")
        if google_crc32c.value(bytes(file.topics)) != file.checksum:
            raise DamagedStore(f"{path} fails its checksum: restore it from a backup")
        topics = msgspec.json.decode(file.topics, type=list[Topic])
    except msgspec.MsgspecError as error:
        raise DamagedStore(f"{path} is not a file of topics: restore it from a backup") from error
    for topic in topics:
        topic.check()
    return {topic.name: topic for topic in topics}


def write_topics(path: Path, topics: list[Topic]) -> None:
    encoded = msgspec.json.format(msgspec.json.encode(topics), indent=0)
    file = TopicsFile(FORMAT, google_crc32c.value(encoded), msgspec.Raw(encoded))
    replace_file(path, msgspec.json.encode(file))
