"""The asyncio shell of the producer: everything happens on the loop, so there is no lock, and one timer."""

import asyncio
from collections.abc import Callable
from typing import Any

from kayos.client.aio.driver import Driver
from kayos.client.aio.link import Link
from kayos.client.core.batch import Batch, Draft
from kayos.client.core.bulk import BulkDelivery, BulkTicket, Keys, Values, check_columns, split
from kayos.client.core.calls import Directory, fetch_view
from kayos.client.core.delivery import BatchDelivery, Delivery
from kayos.client.core.guard import closed_client
from kayos.client.core.producer import CloseLink, FetchView, OpenLink, ProducerCore, SendOn, Settle
from kayos.client.core.write import Write
from kayos.errors import DeadlineExceeded, KayosError
from kayos.wire.v1 import log_pb2


class Producer:
    def __init__(self, driver: Driver, directory: Directory) -> None:
        self._driver = driver
        self._directory = directory
        self._settings = directory.settings
        self._clock = directory.clock
        self._core = ProducerCore(directory)
        self._links: dict[int, Link] = {}
        self._fetches: set[asyncio.Task[None]] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._failures_told = 0

    async def send(
        self, topic: str, shard: int | None, shards: int, write: Write, *, durability: int, linger: bool
    ) -> "asyncio.Future[Delivery]":
        """Queue one message; waits while the buffer is full. Without `shard` the core picks one."""
        future = new_future()
        size = write.size
        await self._wait_for_room(size)
        where = self._core.pick_shard(topic, shards) if shard is None else shard
        begins = self._core.add(
            topic, where, write, size, durability=durability, linger=linger, ticket=future, now=self._clock()
        )
        if begins or self._core.has_effects:
            self._perform()
            # A caller that sends in a tight loop would never let go of the loop: let it turn once per request.
            await asyncio.sleep(0)
        return future

    async def send_draft(
        self, topic: str, shard: int | None, shards: int, draft: Draft
    ) -> "asyncio.Future[BatchDelivery]":
        """Queue a transaction."""
        future = new_future()
        await self._wait_for_room(draft.size)
        where = self._core.pick_shard(topic, shards) if shard is None else shard
        self._core.add_draft(topic, where, draft, ticket=future, now=self._clock())
        self._perform()
        return future

    async def send_columns(
        self, topic: str, shard: int | None, shards: int, keys: Keys, values: Values, *, durability: int
    ) -> "asyncio.Future[BulkDelivery]":
        check_columns(keys, values)
        ticket = BulkTicket(new_future())
        if shard is None and keys is None:
            shard = self._core.pick_shard(topic, shards)
        batch_bytes = self._settings.batch_bytes
        pieces = split(keys, values, shards=shards, route_shard=shard, batch_bytes=batch_bytes, durability=durability)
        try:
            for piece in pieces:
                await self._wait_for_room(piece.size)
                ticket.add()
                self._core.add_piece(topic, piece, ticket=ticket, now=self._clock())
                self._perform()
        finally:
            settle_bulk(ticket, None)
        future: asyncio.Future[BulkDelivery] = ticket.future
        return future

    async def flush(self, timeout_s: float | None = None) -> int:
        """Wait until all that was sent has an outcome; how many requests failed since the last flush."""
        waiting = self._core.flush(self._clock())
        self._perform()
        limit_s = self._settings.delivery_timeout_s * 2 if timeout_s is None else timeout_s
        if not await self._wait_until(lambda: all(batch.outcome is not None for batch in waiting), limit_s):
            raise DeadlineExceeded(f"not all messages were answered within {limit_s:g} s: flush again to wait on")
        failed = self._core.failed_count - self._failures_told
        self._failures_told += failed
        return failed

    async def close(self) -> None:
        self._closed = True
        links = tuple(self._links.values())
        self._core.close()
        self._perform()
        self._wake_waiters()
        for task in tuple(self._fetches):
            task.cancel()
        for link in links:
            await link.wait_closed()

    # Events

    def _on_answer(self, link_id: int, response: log_pb2.ProduceResponse) -> None:
        self._core.answered(link_id, response, self._clock())
        self._perform()

    def _on_broken(self, link_id: int, error: KayosError) -> None:
        self._links.pop(link_id, None)
        self._core.link_broken(link_id, error, self._clock())
        self._perform()

    async def _fetch_view(self, topic: str) -> None:
        try:
            await self._driver.run(fetch_view(self._directory, topic))
        except KayosError as error:
            self._core.view_failed(topic, error, self._clock())
        else:
            self._core.view_found(topic, self._clock())
        self._perform()

    def _on_timer(self) -> None:
        self._core.advance(self._clock())
        self._perform()

    # Leaves

    async def _wait_for_room(self, size: int) -> None:
        if self._core.has_room(size) and not self._closed:
            return
        limit_s = self._settings.delivery_timeout_s
        if not await self._wait_until(lambda: self._closed or self._core.has_room(size), limit_s):
            raise self._core.explain_full_buffer()
        if self._closed:
            raise closed_client()

    async def _wait_until(self, is_true: Callable[[], bool], limit_s: float) -> bool:
        """Whether it became true in time; looked at again whenever a request has its outcome."""
        try:
            async with asyncio.timeout(limit_s):
                while not is_true():
                    waiter = new_future()
                    self._waiters.append(waiter)
                    await waiter
        except TimeoutError:
            return is_true()
        return True

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _perform(self) -> None:
        """Do what the core asks for, in order, then set the timer for what it wants next."""
        settled = []
        for effect in self._core.take_effects():
            match effect:
                case OpenLink(link_id, address):
                    self._links[link_id] = self._open_link(link_id, address)
                case SendOn(link_id, payload):
                    self._links[link_id].send(payload)
                case CloseLink(link_id):
                    self._close_link(link_id)
                case FetchView(topic):
                    self._spawn(self._fetch_view(topic))
                case Settle(batch):
                    settled.append(batch)
        tell(settled)
        if settled:
            self._wake_waiters()
        self._set_timer()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._fetches.add(task)
        task.add_done_callback(self._fetches.discard)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake_at = None if self._closed else self._core.next_wake()
        if wake_at is not None:
            delay_s = max(0.0, wake_at - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _open_link(self, link_id: int, address: str) -> Link:
        return Link(
            self._driver.channel(address),
            on_answer=lambda response: self._on_answer(link_id, response),
            on_broken=lambda error: self._on_broken(link_id, error),
        )

    def _close_link(self, link_id: int) -> None:
        link = self._links.pop(link_id, None)
        if link is not None:
            link.close()


def new_future() -> "asyncio.Future[Any]":
    return asyncio.get_running_loop().create_future()


def tell(settled: list[Batch]) -> None:
    for batch in settled:
        ticket = batch.ticket
        if isinstance(ticket, BulkTicket):
            settle_bulk(ticket, batch.outcome)
        elif isinstance(ticket, list):
            outcome = batch.outcome
            results = outcome.messages() if isinstance(outcome, BatchDelivery) else (outcome for _ in ticket)
            for future, result in zip(ticket, results, strict=True):
                set_outcome(future, result)
        else:
            set_outcome(ticket, batch.outcome)


def settle_bulk(ticket: BulkTicket, outcome: BatchDelivery | KayosError | None) -> None:
    if ticket.settle(outcome):
        set_outcome(ticket.future, ticket.error or ticket.result())


def set_outcome(future: "asyncio.Future[Any]", outcome: Any) -> None:
    """Tell the one who waits; a cancelled future wants nothing, the message may be written all the same."""
    if future.cancelled():
        return
    if isinstance(outcome, KayosError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
