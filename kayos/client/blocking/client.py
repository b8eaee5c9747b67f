"""The blocking client: one object for producing, consuming and administration, safe to share among threads."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from weakref import WeakSet

from kayos.client.blocking.consumer import Consumer, Source
from kayos.client.blocking.driver import Driver
from kayos.client.blocking.marks import Marks
from kayos.client.blocking.messages import MessageConsumer
from kayos.client.blocking.pins import Pins
from kayos.client.blocking.producer import Producer
from kayos.client.blocking.topics import Topics
from kayos.client.blocking.transaction import Transaction
from kayos.client.core import reads, topics
from kayos.client.core.bulk import BulkDelivery, Keys, Values
from kayos.client.core.calls import Directory, get_view
from kayos.client.core.consumer import Subscription, make_subscription
from kayos.client.core.delivery import Delivery
from kayos.client.core.guard import Unpicklable
from kayos.client.core.message import Message
from kayos.client.core.route import View, find_shard
from kayos.client.core.settings import Settings, make_settings
from kayos.client.core.start import Start
from kayos.client.core.topics import NodeStatus
from kayos.client.core.write import Durability, HeadersInput, Write, check_durability, make_write
from kayos.limits import (
    CLIENT_BATCH_BYTES_DEFAULT,
    CLIENT_BUFFER_BYTES_MAX,
    CLIENT_CALL_TIMEOUT_S,
    CLIENT_DELIVERY_TIMEOUT_S,
    CLIENT_LINGER_MS_DEFAULT,
)


class Client(Unpicklable):
    """Made by `kayos.connect`; close it, or use it in a `with` block, so that what was sent is delivered."""

    def __init__(self, settings: Settings) -> None:
        self._directory = Directory(settings)
        self._driver = Driver()
        self._producer = Producer(self._driver, self._directory)
        self._topics = Topics(self._driver, self._directory)
        self._marks = Marks(self._driver, self._directory)
        self._pins = Pins(self._driver, self._directory)
        self._lock = threading.Lock()
        self._sources: WeakSet[Source] = WeakSet()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Producing

    def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: HeadersInput = None,
        ttl_ms: int | None = None,
        expected_seq: int | None = None,
        route: bytes | None = None,
        durability: Durability = "all",
    ) -> Delivery:
        """Write one message and wait for it; `value=None` deletes the key.

        `expected_seq`: only if the key stands at this sequence (0: does not exist). `route` takes the key's place in
        choosing the shard.
        """
        write = make_write(key, value, headers=headers, ttl_ms=ttl_ms, expected_seq=expected_seq)
        return self._send(topic, write, route, durability, linger=False).result()

    def delete(
        self,
        topic: str,
        key: bytes,
        *,
        headers: HeadersInput = None,
        expected_seq: int | None = None,
        route: bytes | None = None,
        durability: Durability = "all",
    ) -> Delivery:
        """Write a tombstone for a key and wait for it."""
        write = make_write(key, None, headers=headers, expected_seq=expected_seq)
        return self._send(topic, write, route, durability, linger=False).result()

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: HeadersInput = None,
        ttl_ms: int | None = None,
        expected_seq: int | None = None,
        route: bytes | None = None,
        durability: Durability = "all",
    ) -> "Future[Delivery]":
        """Queue one message; it goes out with others within `linger_ms`. Waits only while the buffer is full."""
        write = make_write(key, value, headers=headers, ttl_ms=ttl_ms, expected_seq=expected_seq)
        return self._send(topic, write, route, durability, linger=True)

    def send_many(
        self,
        topic: str,
        keys: Keys,
        values: Values,
        *,
        route: bytes | None = None,
        durability: Durability = "all",
    ) -> "Future[BulkDelivery]":
        """Columns of messages straight into requests, without an object per message; `keys=None`: unkeyed.

        If a request of several fails, the error is the first one's and others may have been written.
        """
        self._driver.check_usable()
        copies = check_durability(durability)
        view = self._view(topic)
        shard = find_shard(view, None, route)
        return self._producer.send_columns(topic, shard, view.shards, keys, values, durability=copies)

    def transaction(self, topic: str, *, route: bytes | None = None, durability: Durability = "all") -> Transaction:
        """A `with` block of writes to one shard that all happen, or none.

        The first key says which shard; keys of other shards are refused, unless `route` takes their place.
        """
        self._driver.check_usable()
        copies = check_durability(durability)
        return Transaction(self._driver, self._directory, self._producer, topic, route=route, durability=copies)

    def flush(self, timeout_s: float | None = None) -> int:
        """Wait until all that was sent has an outcome; how many requests failed since the last flush."""
        self._driver.check_usable()
        return self._producer.flush(timeout_s)

    # Consuming

    def consume(
        self,
        topic: str,
        consumer: str | None = None,
        *,
        start: Start | None = None,
        stop_at_end: bool = False,
        shards: Sequence[int] | None = None,
    ) -> Consumer:
        """Snapshots, to be committed at their boundaries.

        Begins at the mark that the server holds for `consumer` (the beginning if there is none yet), or where `start`
        says: `Start.beginning()`, `Start.mark(marks)`, `Start.after(seq)`, `Start.time(ms)`, `Start.latest()`. "Latest"
        is when the `with` block of the consumer is entered, or its first snapshot is asked for. With `stop_at_end` the
        iteration ends when there is nothing more; otherwise it waits.

        RollbackRequired, ResetRequired and SnapshotExpired name the shard that they speak of in `number("shard")`.
        """
        self._driver.check_usable()
        subscription = make_subscription(
            topic, consumer=consumer, start=start, stop_at_end=stop_at_end, shards=shards, by_message=False
        )
        return Consumer(self._open_source(subscription))

    def messages(
        self,
        topic: str,
        consumer: str | None = None,
        *,
        start: Start | None = None,
        stop_at_end: bool = False,
        shards: Sequence[int] | None = None,
    ) -> MessageConsumer:
        """Message by message, without boundaries; begins and ends like `consume`."""
        self._driver.check_usable()
        subscription = make_subscription(
            topic, consumer=consumer, start=start, stop_at_end=stop_at_end, shards=shards, by_message=True
        )
        return MessageConsumer(self._open_source(subscription))

    def get(self, topic: str, key: bytes, *, min_seq: int = 0, route: bytes | None = None) -> Message | None:
        """The newest message of a key; with `min_seq`, once the log has reached it (read your own write)."""
        self._driver.check_usable()
        return self._driver.run(reads.get(self._directory, topic, key, min_seq=min_seq, route=route))

    def wait(self, delivery: Delivery, *, until: int | str = "all", timeout_s: float | None = None) -> int:
        """Wait for copies of a write: a number, 'all', 'any_tail' or 'all_tails'; how many there are."""
        self._driver.check_usable()
        return self._driver.run(reads.wait(self._directory, delivery, until=until, timeout_s=timeout_s))

    # Administration

    @property
    def topics(self) -> Topics:
        self._driver.check_usable()
        return self._topics

    @property
    def marks(self) -> Marks:
        self._driver.check_usable()
        return self._marks

    @property
    def pins(self) -> Pins:
        self._driver.check_usable()
        return self._pins

    def status(self) -> NodeStatus:
        """What the node that answers first says of itself and its shards."""
        self._driver.check_usable()
        return self._driver.run(topics.status(self._directory))

    def close(self) -> None:
        """Deliver what was sent, then let go of everything; a second call does nothing.

        Consumers that wait in other threads see the end of their iteration. In a forked child nothing happens: the
        connections are the parent's.
        """
        if self._driver.is_closed or self._driver.is_foreign:
            return
        with self._lock:
            sources = tuple(self._sources)
        for source in sources:
            source.close()
        try:
            self._producer.flush()
        finally:
            self._producer.close()
            self._driver.close()

    def _open_source(self, subscription: Subscription) -> Source:
        source = Source(self._driver, self._directory, subscription)
        with self._lock:
            self._sources.add(source)
        return source

    def _view(self, topic: str) -> View:
        return self._driver.run(get_view(self._directory, topic))

    def _send(
        self, topic: str, write: Write, route: bytes | None, durability: Durability, *, linger: bool
    ) -> "Future[Delivery]":
        self._driver.check_usable()
        copies = check_durability(durability)
        view = self._directory.find_view(topic) or self._view(topic)
        shard = find_shard(view, write.key, route)
        return self._producer.send(topic, shard, view.shards, write, durability=copies, linger=linger)


def connect(
    servers: str = "127.0.0.1:7400",
    *,
    timeout_s: float = CLIENT_CALL_TIMEOUT_S,
    delivery_timeout_s: float = CLIENT_DELIVERY_TIMEOUT_S,
    linger_ms: float = CLIENT_LINGER_MS_DEFAULT,
    batch_bytes: int = CLIENT_BATCH_BYTES_DEFAULT,
    buffer_bytes: int = CLIENT_BUFFER_BYTES_MAX,
    producer_id: str | bytes | None = None,
    producer_epoch: int | None = None,
) -> Client:
    """A client of the servers `"host:port,host:port"`; they are first spoken to when something is asked."""
    return Client(
        make_settings(
            servers,
            timeout_s=timeout_s,
            delivery_timeout_s=delivery_timeout_s,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
    )
