"""What a node needs of whoever coordinates the cluster: topics, and the view of each shard.

The static coordinator (one node, a file) and ZooKeeper stand behind the same interface. Every method may
wait for the network, so every one is asynchronous. A change is durable when its method returns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kayos.model.topic import Topic


@dataclass(frozen=True, slots=True)
class ShardView:
    """The chain of one shard: addresses, the head first. `epoch` rises with every change of it."""

    shard: int
    epoch: int
    chain: tuple[str, ...]
    tails: tuple[str, ...]


class Coordinator(Protocol):
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

    async def find_view(self, topic: Topic, shard: int) -> ShardView: ...
