"""Pins: explicit snapshots that stay, for readers in parallel."""

from collections.abc import AsyncIterator, Sequence

from kayos.client.aio.driver import Driver
from kayos.client.core import pins
from kayos.client.core.calls import Directory
from kayos.client.core.message import Message
from kayos.client.core.pin_reader import PinReader
from kayos.client.core.pins import ShardPin

ShardPins = list[ShardPin]
Messages = list[Message]


class Pins:
    def __init__(self, driver: Driver, directory: Directory) -> None:
        self._driver = driver
        self._directory = directory

    async def create(
        self, topic: str, *, pin_id: str | None = None, lease_ms: int = 0, shard: int | None = None
    ) -> ShardPins:
        """Pin one shard or all of them; a lease of 0 is the server's default."""
        return await self._driver.run(
            pins.create(self._directory, topic, pin_id=pin_id, lease_ms=lease_ms, shard=shard)
        )

    async def list(self, topic: str) -> ShardPins:
        return await self._driver.run(pins.list_all(self._directory, topic))

    async def renew(self, held: Sequence[ShardPin], *, lease_ms: int = 0) -> ShardPins:
        return await self._driver.run(pins.renew(self._directory, held, lease_ms=lease_ms))

    async def release(self, topic: str, pin_id: str, *, shard: int | None = None) -> None:
        await self._driver.run(pins.release(self._directory, topic, pin_id, shard=shard))

    async def read(
        self, pin: ShardPin, *, after_seq: int = 0, end_seq: int = 0, tombstones: bool = False
    ) -> AsyncIterator[Message]:
        """The pinned messages in (after_seq, end_seq], `end_seq` 0 for all; as many readers as you like."""
        async for batch in self.batches(pin, after_seq=after_seq, end_seq=end_seq, tombstones=tombstones):
            for message in batch:
                yield message

    async def batches(
        self, pin: ShardPin, *, after_seq: int = 0, end_seq: int = 0, tombstones: bool = False
    ) -> AsyncIterator[Messages]:
        reader = PinReader(self._directory, pin, after_seq=after_seq, end_seq=end_seq, tombstones=tombstones)
        try:
            while (batch := await self._driver.run(reader.read_batch())) is not None:
                yield batch
        finally:
            if reader.stream is not None:
                reader.stream.cancel()
