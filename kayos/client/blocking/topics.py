"""Administration of topics."""

from kayos.client.blocking.driver import Driver
from kayos.client.core import chain, topics
from kayos.client.core.calls import Directory
from kayos.client.core.chain import ChainStatus
from kayos.client.core.topics import TopicDescription
from kayos.model.topic import Topic


class Topics:
    def __init__(self, driver: Driver, directory: Directory) -> None:
        self._driver = driver
        self._directory = directory

    def create(
        self,
        name: str,
        *,
        shards: int = 0,
        replicas: int = 0,
        tails: int = 0,
        min_durable: int = 0,
        min_replicas: int = 0,
        mode: str = "compact",
        max_age_ms: int | None = None,
        max_bytes: int | None = None,
        max_messages: int | None = None,
        tombstone_ms: int | None = None,
    ) -> Topic:
        """Make a topic, or find it with the same settings; numbers that are 0 take the server's default."""
        topic, _ = self._driver.run(
            topics.create(
                self._directory,
                name,
                shards=shards,
                replicas=replicas,
                tails=tails,
                min_durable=min_durable,
                min_replicas=min_replicas,
                mode=mode,
                max_age_ms=max_age_ms,
                max_bytes=max_bytes,
                max_messages=max_messages,
                tombstone_ms=tombstone_ms,
            )
        )
        return topic

    def list(self) -> list[Topic]:
        return self._driver.run(topics.list_all(self._directory))

    def describe(self, name: str) -> TopicDescription:
        return self._driver.run(topics.describe(self._directory, name))

    def alter(
        self,
        name: str,
        *,
        max_age_ms: int | None = None,
        max_bytes: int | None = None,
        max_messages: int | None = None,
        tombstone_ms: int | None = None,
    ) -> Topic:
        """Change the retention; what is None stays as it is, 0 means never."""
        return self._driver.run(
            topics.alter(
                self._directory,
                name,
                max_age_ms=max_age_ms,
                max_bytes=max_bytes,
                max_messages=max_messages,
                tombstone_ms=tombstone_ms,
            )
        )

    def delete(self, name: str) -> None:
        self._driver.run(topics.delete(self._directory, name))

    def chain(self, name: str, shard: int) -> ChainStatus:
        """The chain of one shard, as its members tell it; those that do not answer are shown as such."""
        return self._driver.run(chain.chain_status(self._directory, name, shard))
