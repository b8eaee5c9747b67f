"""The coordinator of a static cluster: a file that all its nodes have names the chains.

The file is read again a few times a second. One that cannot be believed, or that contradicts what it said before, is
reported once and the last good one stays in force. Replace it by a rename, so that nobody reads half of it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path

from kayos.cluster.chain_file import ClusterFile, check_follows, parse_cluster, read_content
from kayos.cluster.coordinator import ShardView
from kayos.cluster.section import placed
from kayos.errors import FailedPrecondition, InvalidArgument, ShardNotFound, TopicNotFound
from kayos.limits import CLUSTER_FILE_POLL_S
from kayos.model.topic import Topic


class StaticCluster:
    """`problem` is what is wrong with the file as it is now, empty when all is well; `report` is told of it once."""

    def __init__(self, path: Path, node_name: str, report: Callable[[str], None]) -> None:
        self.node_name = node_name
        self.problem = ""
        self._path = path
        self._report = report
        self._content = read_content(path)
        self._file = parse_cluster(self._content, path)
        self._check_named(self._file)
        # The content that was refused last, which need not be parsed again, and why.
        self._refused: tuple[bytes, str] | None = None
        self._looking = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def address(self) -> str:
        """Where this node listens."""
        return self._file.nodes[self.node_name]

    async def list_topics(self) -> list[Topic]:
        return [self._file.topics[name] for name in sorted(self._file.topics)]

    async def find_topic(self, name: str) -> Topic:
        topic = self._file.topics.get(name)
        if topic is None:
            raise TopicNotFound(f"topic {name!r} does not exist: {self._path} does not name it")
        return topic

    async def create_topic(self, topic: Topic) -> tuple[Topic, bool]:
        raise self._refusal()

    async def alter_topic(self, name: str, changes: Mapping[str, int]) -> Topic:
        raise self._refusal()

    async def delete_topic(self, name: str) -> Topic:
        raise self._refusal()

    async def find_view(self, topic: Topic, shard: int) -> ShardView:
        view = self._file.chains.get((topic.name, shard))
        if view is None:
            raise ShardNotFound(f"topic {topic.name!r} has no shard {shard}: its shards are 0 to {topic.shards - 1}")
        return ShardView(shard, view, {member.node: self._file.nodes[member.node] for member in view.members})

    async def fetch(self) -> None:
        async with self._looking:
            try:
                found = await asyncio.to_thread(self._look)
            except InvalidArgument as error:
                if error.message != self.problem:
                    self.problem = error.message
                    self._report(error.message)
                return
            self.problem = ""
            if found is not None:
                self._content, self._file = found
                self._changed.set()

    async def changes(self) -> AsyncIterator[None]:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLUSTER_FILE_POLL_S):
                    await self._changed.wait()
            await self.fetch()
            if self._changed.is_set():
                self._changed.clear()
                yield

    def _look(self) -> tuple[bytes, ClusterFile] | None:
        """The file if it says something new, in a thread of the pool, one at a time."""
        content = read_content(self._path)
        if content == self._content:
            return None
        if self._refused is not None and content == self._refused[0]:
            raise InvalidArgument(self._refused[1])
        try:
            file = parse_cluster(content, self._path)
            with placed(str(self._path)):
                check_follows(self._file, file)
            self._check_named(file)
        except InvalidArgument as error:
            self._refused = (content, error.message)
            raise
        return content, file

    def _check_named(self, file: ClusterFile) -> None:
        if self.node_name not in file.nodes:
            raise InvalidArgument(
                f"{self._path}: nodes: this node's name, {self.node_name!r}, is not there, but {', '.join(file.nodes)}"
            )

    def _refusal(self) -> FailedPrecondition:
        return FailedPrecondition(f"topics of a static cluster are named in {self._path}: change them there")
