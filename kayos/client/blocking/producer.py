"""The blocking shell of the producer: a lock around the core, and one thread that keeps its time.

Whoever brings an event (a caller, a link's thread, the clock thread) feeds it to the core under the lock, queues what
goes out while still holding it, so that the order stands, and tells the outcomes after letting go of it.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kayos.client.blocking.driver import Driver
from kayos.client.blocking.link import Link
from kayos.client.core.batch import Batch, Draft
from kayos.client.core.bulk import BulkDelivery, BulkTicket, Keys, Values, check_columns, split
from kayos.client.core.calls import Directory, fetch_view
from kayos.client.core.delivery import BatchDelivery, Delivery
from kayos.client.core.guard import closed_client
from kayos.client.core.producer import CloseLink, FetchView, OpenLink, ProducerCore, SendOn, Settle
from kayos.client.core.write import Write
from kayos.errors import DeadlineExceeded, KayosError
from kayos.wire.v1 import log_pb2

CLOCK_PERIOD_S = 0.25


class Producer:
    def __init__(self, driver: Driver, directory: Directory) -> None:
        self._driver = driver
        self._directory = directory
        self._settings = directory.settings
        self._clock = directory.clock
        self._core = ProducerCore(directory)
        self._links: dict[int, Link] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._failures_told = 0
        self._untold: set[Batch] = set()

    def send(
        self, topic: str, shard: int | None, shards: int, write: Write, *, durability: int, linger: bool
    ) -> "Future[Delivery]":
        """Queue one message; waits while the buffer is full. Without `shard` the core picks one."""
        future: Future[Delivery] = Future()
        future.set_running_or_notify_cancel()
        size = write.size
        with self._lock:
            self._wait_for_room(size)
            now = self._clock()
            where = self._core.pick_shard(topic, shards) if shard is None else shard
            begins = self._core.add(
                topic, where, write, size, durability=durability, linger=linger, ticket=future, now=now
            )
            settled = self._perform()
            self._start_clock()
        if begins:
            self._wake.set()
        self._tell(settled)
        return future

    def send_draft(self, topic: str, shard: int | None, shards: int, draft: Draft) -> "Future[BatchDelivery]":
        """Queue a transaction."""
        future: Future[BatchDelivery] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            self._wait_for_room(draft.size)
            where = self._core.pick_shard(topic, shards) if shard is None else shard
            self._core.add_draft(topic, where, draft, ticket=future, now=self._clock())
            settled = self._perform()
            self._start_clock()
        self._tell(settled)
        return future

    def send_columns(
        self, topic: str, shard: int | None, shards: int, keys: Keys, values: Values, *, durability: int
    ) -> "Future[BulkDelivery]":
        check_columns(keys, values)
        future: Future[BulkDelivery] = Future()
        future.set_running_or_notify_cancel()
        ticket = BulkTicket(future)
        if shard is None and keys is None:
            with self._lock:
                shard = self._core.pick_shard(topic, shards)
        batch_bytes = self._settings.batch_bytes
        pieces = split(keys, values, shards=shards, route_shard=shard, batch_bytes=batch_bytes, durability=durability)
        try:
            for piece in pieces:
                with self._lock:
                    self._wait_for_room(piece.size)
                    ticket.add()
                    self._core.add_piece(topic, piece, ticket=ticket, now=self._clock())
                    settled = self._perform()
                    self._start_clock()
                self._tell(settled)
        finally:
            self._settle_bulk(ticket, None)
        return future

    def flush(self, timeout_s: float | None = None) -> int:
        """Wait until all that was sent has an outcome; how many requests failed since the last flush."""
        with self._lock:
            waiting = self._core.flush(self._clock())
            settled = self._perform()
            # Whoever flushes wants the futures done, not only the outcomes known.
            waiting += self._untold
        self._tell(settled)
        limit_s = self._settings.delivery_timeout_s * 2 if timeout_s is None else timeout_s
        with self._lock:
            if not self._changed.wait_for(lambda: all(batch.told for batch in waiting), limit_s):
                raise DeadlineExceeded(f"not all messages were answered within {limit_s:g} s: flush again to wait on")
            failed = self._core.failed_count - self._failures_told
            self._failures_told += failed
            return failed

    def close(self) -> None:
        with self._lock:
            self._closed = True
            links = tuple(self._links.values())
            self._core.close()
            settled = self._perform()
            self._changed.notify_all()
        self._wake.set()
        self._tell(settled)
        for link in links:
            link.wait_closed()

    # Events

    def _feed(self, event: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                return
            event()
            settled = self._perform()
        self._wake.set()
        self._tell(settled)

    def _on_answer(self, link_id: int, response: log_pb2.ProduceResponse) -> None:
        with self._lock:
            self._core.answered(link_id, response, self._clock())
            settled = self._perform()
        if not settled:
            self._wake.set()
        self._tell(settled)

    def _on_broken(self, link_id: int, error: KayosError) -> None:
        self._links.pop(link_id, None)
        self._feed(lambda: self._core.link_broken(link_id, error, self._clock()))

    def _fetch_view(self, topic: str) -> None:
        try:
            self._driver.run(fetch_view(self._directory, topic))
        except KayosError as error:
            failure = error
            self._feed(lambda: self._core.view_failed(topic, failure, self._clock()))
        else:
            self._feed(lambda: self._core.view_found(topic, self._clock()))

    def _keep_time(self) -> None:
        """The clock thread: lingering batches, retries and deadlines happen here."""
        while not self._closed:
            with self._lock:
                self._core.advance(self._clock())
                settled = self._perform()
                wake_at = self._core.next_wake()
                now = self._clock()
            self._tell(settled)
            pause_s = CLOCK_PERIOD_S if wake_at is None else min(CLOCK_PERIOD_S, max(0.0, wake_at - now))
            self._wake.wait(pause_s)
            self._wake.clear()

    # Leaves; the lock is held

    def _start_clock(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_time, name="kayos-producer", daemon=True)
            self._thread.start()

    def _wait_for_room(self, size: int) -> None:
        if self._core.has_room(size) and not self._closed:
            return
        limit_s = self._settings.delivery_timeout_s
        if not self._changed.wait_for(lambda: self._closed or self._core.has_room(size), limit_s):
            raise self._core.explain_full_buffer()
        if self._closed:
            raise closed_client()

    def _perform(self) -> list[Batch]:
        """Do what the core asks for, in order; the settled batches are left for `_tell`, outside the lock."""
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
                    threading.Thread(target=self._fetch_view, args=(topic,), name="kayos-view", daemon=True).start()
                case Settle(batch):
                    settled.append(batch)
        self._untold.update(settled)
        return settled

    def _close_link(self, link_id: int) -> None:
        link = self._links.pop(link_id, None)
        if link is not None:
            link.close()

    def _open_link(self, link_id: int, address: str) -> Link:
        return Link(
            self._driver.channel(address),
            on_answer=lambda response: self._on_answer(link_id, response),
            on_broken=lambda error: self._on_broken(link_id, error),
        )

    # Leaves; the lock is not held, since a future may run the caller's code

    def _tell(self, settled: list[Batch]) -> None:
        if not settled:
            return
        for batch in settled:
            ticket = batch.ticket
            if isinstance(ticket, BulkTicket):
                self._settle_bulk(ticket, batch.outcome)
            elif isinstance(ticket, list):
                self._tell_messages(ticket, batch.outcome)
            else:
                set_outcome(ticket, batch.outcome)
        with self._lock:
            for batch in settled:
                batch.told = True
            self._untold.difference_update(settled)
            self._changed.notify_all()

    def _tell_messages(self, futures: "list[Future[Delivery]]", outcome: BatchDelivery | KayosError | None) -> None:
        if isinstance(outcome, BatchDelivery):
            for future, delivery in zip(futures, outcome.messages(), strict=True):
                future.set_result(delivery)
        else:
            for future in futures:
                set_outcome(future, outcome)

    def _settle_bulk(self, ticket: BulkTicket, outcome: BatchDelivery | KayosError | None) -> None:
        with self._lock:
            is_last = ticket.settle(outcome)
        if is_last:
            set_outcome(ticket.future, ticket.error or ticket.result())


def set_outcome(future: "Future[Any]", outcome: Any) -> None:
    if isinstance(outcome, KayosError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
