"""The producer: messages into batches, batches into lanes, lanes over one stream per head.

Sans IO. A shell reports what happened (a message, an answer, a broken stream, a new view, the time) and then takes
`effects`, in order. Answers come back by correlation, a number of its own for every send. Every bound is here: bytes in
the buffer, requests in flight per shard, time to an answer.
"""

import random
from dataclasses import dataclass
from itertools import count
from typing import Any

from kayos.client.core.batch import Batch, Draft
from kayos.client.core.bulk import Piece
from kayos.client.core.calls import Directory
from kayos.client.core.delivery import delivery_from_wire
from kayos.client.core.lane import Lane, LaneState
from kayos.client.core.route import StickyShard
from kayos.client.core.verdict import Backoff
from kayos.client.core.write import Write
from kayos.errors import FailedPrecondition, KayosError, NotFound, Overloaded, Unavailable
from kayos.limits import BATCH_BYTES_MAX
from kayos.wire.status import error_from_bytes
from kayos.wire.v1 import log_pb2


@dataclass(frozen=True, slots=True)
class OpenLink:
    """Begin a produce stream to `address`; from now on it is called `link`."""

    link: int
    address: str


@dataclass(frozen=True, slots=True)
class SendOn:
    link: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class CloseLink:
    link: int


@dataclass(frozen=True, slots=True)
class FetchView:
    """Ask for the topic's view, then report `view_found` or `view_failed`."""

    topic: str


@dataclass(frozen=True, slots=True)
class Settle:
    """The outcome of a batch is there: tell who holds its ticket."""

    batch: Batch


Effect = OpenLink | SendOn | CloseLink | FetchView | Settle


@dataclass(slots=True)
class Link:
    """A stream to one head; `in_flight` is in the order of sending."""

    link: int
    address: str
    in_flight: dict[int, tuple[Lane, Batch]]
    quiet_since: float


class ProducerCore:
    def __init__(self, directory: Directory, *, seed: int | None = None) -> None:
        self._directory = directory
        self._settings = directory.settings
        self._random = random.Random(seed)
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._drafts: dict[tuple[str, int], Draft] = {}
        self._busy: dict[Lane, None] = {}
        self._links: dict[int, Link] = {}
        self._links_by_address: dict[str, Link] = {}
        self._link_ids = count(1)
        self._correlations = count(1)
        self._fetching: set[str] = set()
        self._sticky = StickyShard()
        self._effects: list[Effect] = []
        self.buffered_bytes = 0
        self.failed_count = 0

    # What callers hand in

    def has_room(self, size: int) -> bool:
        return self.buffered_bytes + size <= self._settings.buffer_bytes

    def explain_full_buffer(self) -> Overloaded:
        return Overloaded(
            f"{self.buffered_bytes} bytes wait to be sent and none went out for "
            f"{self._settings.delivery_timeout_s:g} s: see that a node runs, send less, or raise buffer_bytes"
        )

    def pick_shard(self, topic: str, shards: int) -> int:
        """Where the next unkeyed message goes."""
        return self._sticky.pick(topic, shards)

    def add(
        self, topic: str, shard: int, write: Write, size: int, *, durability: int, linger: bool, ticket: Any, now: float
    ) -> bool:
        """Queue one message; whether the shell's clock must be set, because a batch began to linger."""
        where = (topic, shard)
        draft = self._drafts.get(where)
        if draft is not None and self._must_part(draft, write, size, durability):
            self._seal(where)
            draft = None
        self.buffered_bytes += size
        if draft is None:
            draft = self._drafts[where] = Draft(durability, now)
        draft.add(write, size, ticket)
        if linger and write.expected_seq is None and not draft.is_full(self._settings.batch_bytes):
            return draft.count == 1
        self._seal(where)
        self.advance(now)
        return False

    def add_draft(self, topic: str, shard: int, draft: Draft, *, ticket: Any, now: float) -> None:
        """Queue a transaction: a request of its own."""
        self.buffered_bytes += draft.size
        self._seal((topic, shard))
        self._enqueue((topic, shard), draft.seal(deadline=self._deadline(now), ticket=ticket))
        self.advance(now)

    def add_piece(self, topic: str, piece: Piece, *, ticket: Any, now: float) -> None:
        """Queue one request of a bulk send."""
        self.buffered_bytes += piece.size
        self._seal((topic, piece.shard))
        batch = Batch(piece.body, piece.count, piece.size, self._deadline(now), ticket)
        self._enqueue((topic, piece.shard), batch)
        self.advance(now)

    def flush(self, now: float) -> list[Batch]:
        """Send what waits without lingering; these are the requests that have no outcome yet."""
        for where in tuple(self._drafts):
            self._seal(where)
        self.advance(now)
        return [batch for lane in self._busy for batch in lane.waiting]

    # What the network reports

    def answered(self, link_id: int, response: log_pb2.ProduceResponse, now: float) -> None:
        link = self._links.get(link_id)
        if link is None or response.correlation not in link.in_flight:
            return
        link.quiet_since = now
        lane, batch = link.in_flight.pop(response.correlation)
        if batch.outcome is None:
            if response.error:
                error = error_from_bytes(response.error)
                if isinstance(error, NotFound):
                    self._directory.forget_view(lane.topic)
                lane.refuse(batch, error, now)
            else:
                lane.accept(batch, delivery_from_wire(lane.topic, lane.shard, response), now)
        self.advance(now)

    def link_broken(self, link_id: int, error: KayosError, now: float) -> None:
        link = self._links.pop(link_id, None)
        if link is None:
            return
        del self._links_by_address[link.address]
        lost: dict[Lane, list[Batch]] = {}
        for lane, batch in link.in_flight.values():
            if batch.outcome is None:
                lost.setdefault(lane, []).append(batch)
        for lane, batches in lost.items():
            lane.lose(batches, error, now)
        self.advance(now)

    def view_found(self, topic: str, now: float) -> None:
        self._fetching.discard(topic)
        for lane in tuple(self._busy):
            if lane.topic == topic:
                lane.route_found(now)
        self.advance(now)

    def view_failed(self, topic: str, error: KayosError, now: float) -> None:
        self._fetching.discard(topic)
        for lane in tuple(self._busy):
            if lane.topic == topic:
                lane.route_failed(error, now)
        self.advance(now)

    def close(self) -> None:
        error = FailedPrecondition("the client was closed before it was sent: flush before closing")
        for where in tuple(self._drafts):
            self._seal(where)
        for lane in tuple(self._busy):
            lane.close(error)
            self._collect(lane)
        for link_id in tuple(self._links):
            del self._links[link_id]
            self._effects.append(CloseLink(link_id))
        self._links_by_address.clear()

    # Time

    def advance(self, now: float) -> None:
        """Do all that may be done now: seal what lingered, expire, resume, send."""
        linger_s = self._settings.linger_ms / 1000
        for where, draft in tuple(self._drafts.items()):
            if now >= draft.created_at + linger_s:
                self._seal(where)
        for link in tuple(self._links.values()):
            if link.in_flight and now >= link.quiet_since + self._settings.timeout_s:
                self._effects.append(CloseLink(link.link))
                self.link_broken(link.link, Unavailable(f"{link.address} did not answer for a while"), now)
        for lane in tuple(self._busy):
            lane.tick(now)
            self._drive(lane, now)
            self._collect(lane)

    def next_wake(self) -> float | None:
        """When `advance` next has something to do of its own accord; None: only after an event."""
        linger_s = self._settings.linger_ms / 1000
        times = [draft.created_at + linger_s for draft in self._drafts.values()]
        for lane in self._busy:
            if lane.waiting:
                times.append(lane.waiting[0].deadline)
            if lane.state is LaneState.PAUSED:
                times.append(lane.resume_at)
        times += [link.quiet_since + self._settings.timeout_s for link in self._links.values() if link.in_flight]
        return min(times, default=None)

    @property
    def has_effects(self) -> bool:
        return bool(self._effects)

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    # Leaves

    def _must_part(self, draft: Draft, write: Write, size: int, durability: int) -> bool:
        """Whether the message may not join this draft. A condition must refuse its own message only."""
        return (
            write.expected_seq is not None
            or draft.durability != durability
            or draft.size + size > max(self._settings.batch_bytes, BATCH_BYTES_MAX // 2)
        )

    def _deadline(self, now: float) -> float:
        return now + self._settings.delivery_timeout_s

    def _seal(self, where: tuple[str, int]) -> None:
        draft = self._drafts.pop(where, None)
        if draft is None:
            return
        if draft.keys[-1] == b"":
            self._sticky.move_on(where[0])
        self._enqueue(where, draft.seal(deadline=self._deadline(draft.created_at)))

    def _enqueue(self, where: tuple[str, int], batch: Batch) -> None:
        lane = self._lanes.get(where)
        if lane is None:
            topic, shard = where
            lane = self._lanes[where] = Lane(
                topic,
                shard,
                producer_epoch=self._settings.first_epoch,
                last_epoch=self._settings.last_epoch,
                backoff=Backoff(self._random),
            )
        lane.add(batch)
        self._busy[lane] = None

    def _drive(self, lane: Lane, now: float) -> None:
        view = self._directory.find_view(lane.topic)
        if lane.state is LaneState.ROUTING or (view is None and lane.find_sendable() is not None):
            lane.need_route()
            if lane.topic not in self._fetching:
                self._fetching.add(lane.topic)
                self._effects.append(FetchView(lane.topic))
            return
        while view is not None and (batch := lane.find_sendable()) is not None:
            if lane.shard >= view.shards:
                lane.close(FailedPrecondition(f"topic {lane.topic!r} no longer has shard {lane.shard}: send it again"))
                return
            self._send(self._link_to(view.head(lane.shard), now), lane, batch, view.ref(lane.shard), now)

    def _send(self, link: Link, lane: Lane, batch: Batch, ref: log_pb2.ShardRef, now: float) -> None:
        lane.mark_sent(batch)
        correlation = next(self._correlations)
        producer = log_pb2.Producer(
            producer_id=self._settings.producer_id, producer_epoch=lane.producer_epoch, number=batch.number
        )
        if not link.in_flight:
            link.quiet_since = now
        link.in_flight[correlation] = (lane, batch)
        self._effects.append(SendOn(link.link, batch.encode(ref, producer, correlation)))

    def _link_to(self, address: str, now: float) -> Link:
        link = self._links_by_address.get(address)
        if link is None:
            link = Link(next(self._link_ids), address, {}, now)
            self._links[link.link] = self._links_by_address[address] = link
            self._effects.append(OpenLink(link.link, address))
        return link

    def _collect(self, lane: Lane) -> None:
        for batch in lane.take_settled():
            self.buffered_bytes -= batch.size
            self.failed_count += isinstance(batch.outcome, KayosError)
            self._effects.append(Settle(batch))
        if not lane.waiting:
            self._busy.pop(lane, None)
