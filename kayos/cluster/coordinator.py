"""What a node needs of whoever coordinates the cluster: topics, and the view of each shard.

A node alone, a file that names the chains, and ZooKeeper stand behind the same interface. Methods that may wait for a
disk or the network are asynchronous. A change is durable when its method returns.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from kayos.model.chain import ChainView
from kayos.model.topic import Topic


@dataclass(frozen=True, slots=True)
class ShardView:
    """The chain of one shard, and where the nodes of it listen."""

    shard: int
    chain_view: ChainView
    addresses: Mapping[str, str]


class Coordinator(Protocol):
    """`node_name` is what this node is called in chains."""

    node_name: str

    async def list_topics(self) -> list[Topic]:
        """All topics, by name."""
        ...

    async def find_topic(self, name: str) -> Topic:
        """The topic of that name; raises TopicNotFound."""
        ...

    async def create_topic(self, topic: Topic) -> tuple[Topic, bool]:
        """Create it (id and time are given here), or find it with the same settings: then False.

        Raises TopicExists when the name is taken by a topic with other settings.
        """
        ...

    async def alter_topic(self, name: str, changes: Mapping[str, int]) -> Topic:
        """Change the named fields of the topic's retention; the others stay."""
        ...

    async def delete_topic(self, name: str) -> Topic:
        """Forget the topic; its shards' directories are the node's to remove."""
        ...

    async def find_view(self, topic: Topic, shard: int) -> ShardView:
        """The newest view that is known here; raises ShardNotFound."""
        ...

    async def fetch(self) -> None:
        """Look again now, because somebody knows a later epoch; what is new comes out of `changes` too."""
        ...

    def changes(self) -> AsyncIterator[None]:
        """For ever, for one listener: topics or views changed in another way than through this node, look at them
        again. Several changes may come as one."""
        ...
