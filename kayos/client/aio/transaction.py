"""A transaction: a block of writes to one shard that all happen, or none."""

from types import TracebackType

from kayos.client.aio.driver import Driver
from kayos.client.aio.producer import Producer
from kayos.client.core.calls import Directory, get_view
from kayos.client.core.delivery import Delivery
from kayos.client.core.transaction import TransactionDraft
from kayos.client.core.write import HeadersInput, make_write


class Transaction:
    """Sent when the block ends; nothing is sent when the block raises. Writes are only gathered
    inside the block, so there is nothing to await."""

    def __init__(
        self,
        driver: Driver,
        directory: Directory,
        producer: Producer,
        topic: str,
        *,
        route: bytes | None,
        durability: int,
    ) -> None:
        self._driver = driver
        self._directory = directory
        self._producer = producer
        self._gathered = TransactionDraft(topic, route=route, durability=durability)

    async def __aenter__(self) -> "Transaction":
        self._gathered.begin(await self._driver.run(get_view(self._directory, self._gathered.topic)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._commit()
        else:
            self._gathered.abandon()

    def put(
        self,
        key: bytes,
        value: bytes,
        *,
        headers: HeadersInput = None,
        ttl_ms: int | None = None,
        expected_seq: int | None = None,
    ) -> None:
        self._gathered.add(make_write(key, value, headers=headers, ttl_ms=ttl_ms, expected_seq=expected_seq))

    def delete(self, key: bytes, *, headers: HeadersInput = None, expected_seq: int | None = None) -> None:
        self._gathered.add(make_write(key, None, headers=headers, expected_seq=expected_seq))

    def append(self, value: bytes, *, headers: HeadersInput = None, ttl_ms: int | None = None) -> None:
        """An unkeyed message."""
        self._gathered.add(make_write(None, value, headers=headers, ttl_ms=ttl_ms))

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """One per write, in order; there after the block."""
        return self._gathered.deliveries

    async def _commit(self) -> None:
        gathered = self._gathered
        gathered.end()
        if not gathered.draft.count:
            gathered.finish(None)
            return
        future = await self._producer.send_draft(gathered.topic, gathered.shard, gathered.shards, gathered.draft)
        gathered.finish(await future)
