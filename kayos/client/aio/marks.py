"""Marks that the server holds for consumers."""

from collections.abc import Mapping

from kayos.client.aio.driver import Driver
from kayos.client.core import marks
from kayos.client.core.calls import Directory
from kayos.client.core.marks import MarkChange, MarkInfo
from kayos.model.mark import Mark

MarkInfos = list[MarkInfo]
MarkChanges = list[MarkChange]


class Marks:
    def __init__(self, driver: Driver, directory: Directory) -> None:
        self._driver = driver
        self._directory = directory

    async def get(self, topic: str, consumer: str) -> dict[int, MarkInfo]:
        """The consumer's marks by shard."""
        return await self._driver.run(marks.get(self._directory, topic, consumer))

    async def list(self, topic: str) -> MarkInfos:
        return await self._driver.run(marks.list_all(self._directory, topic))

    async def set(self, topic: str, consumer: str, by_shard: Mapping[int, Mark]) -> None:
        """Store marks that were kept elsewhere; like a commit they only move forward."""
        await self._driver.run(marks.set_all(self._directory, topic, consumer, by_shard))

    async def reset(
        self,
        topic: str,
        consumer: str,
        *,
        seq: int | None = None,
        time_ms: int | None = None,
        latest: bool = False,
        drop: bool = False,
        shard: int | None = None,
        dry_run: bool = False,
    ) -> MarkChanges:
        """Move marks anywhere, or forget the consumer (`drop`): an operator's act. Give exactly one target."""
        return await self._driver.run(
            marks.reset(
                self._directory,
                topic,
                consumer,
                seq=seq,
                time_ms=time_ms,
                latest=latest,
                drop=drop,
                shard=shard,
                dry_run=dry_run,
            )
        )
