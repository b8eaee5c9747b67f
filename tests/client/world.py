"""A whole world for the producer's core on a clock of its own: links, a server, and all that goes wrong between them.

The server is real: the node's own gateway takes requests apart and the in-memory store sequences them. What is
simulated is the network and the server's moods. Payloads travel in order on each link; when a link breaks, those under
way may still arrive, late, after the client has long resent them on another link.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from kayos.client.core.batch import Batch, Draft
from kayos.client.core.bulk import split
from kayos.client.core.calls import Directory
from kayos.client.core.delivery import BatchDelivery
from kayos.client.core.producer import CloseLink, FetchView, OpenLink, ProducerCore, SendOn, Settle
from kayos.client.core.route import ShardRoute, View
from kayos.client.core.settings import Settings
from kayos.client.core.write import make_write
from kayos.errors import KayosError, NotMyRole, Overloaded, StaleEpoch, StoreFull, Unavailable, WriteUnknown
from kayos.model.record import verify_and_decode
from kayos.model.takeover import TakeoverRow
from kayos.model.topic import Mode, Topic
from kayos.model.write import WriteResult
from kayos.server.gateway import write_from_wire
from kayos.storage.interface import Identity
from kayos.storage.memory import MemoryStore
from kayos.wire.status import error_to_bytes
from kayos.wire.v1 import log_pb2

HISTORY = b"history-one-0001"
TOPIC = Topic("t", "topic-1", shards=2)
VIEW = View(TOPIC, tuple(ShardRoute(1, ("a:1",), ("a:1",)) for _ in range(TOPIC.shards)))
MOODS = (Overloaded, StoreFull, Unavailable, NotMyRole, StaleEpoch, WriteUnknown)


@dataclass
class Faults:
    """How likely each thing is, per request; drawn anew for every seed, so that worlds differ in kind."""

    refuse: float = 0.0
    write_and_say_unknown: float = 0.0
    break_before: float = 0.0
    break_after: float = 0.0
    hang: float = 0.0
    no_view: float = 0.0
    late_arrival: float = 0.5
    delay_s_max: float = 0.05

    @classmethod
    def draw(cls, source: random.Random) -> "Faults":
        def chance(most: float) -> float:
            return source.choice((0.0, source.random() * most))

        return cls(
            refuse=chance(0.4),
            write_and_say_unknown=chance(0.2),
            break_before=chance(0.2),
            break_after=chance(0.2),
            hang=chance(0.1),
            no_view=chance(0.5),
            late_arrival=source.random(),
            delay_s_max=source.choice((0.001, 0.05, 0.6)),
        )


@dataclass
class Sent:
    """A message and what became of it; `shard` and `index` say where it stood in the order of sending."""

    shard: int
    index: int
    value: bytes
    outcomes: list[Any] = field(default_factory=list)


@dataclass
class Wire:
    """One link: what it carries arrives in order, each not before the one ahead of it. Answers come in the order of the
    requests, so a link that hangs answers nothing any more; the client gives it up after `timeout_s`."""

    to_server: float = 0.0
    to_client: float = 0.0
    is_open: bool = True
    hangs: bool = False


class World:
    def __init__(self, seed: int, *, delivery_timeout_s: float = 5.0, timeout_s: float = 1.0) -> None:
        self.random = random.Random(seed)
        self.faults = Faults()
        self.now = 0.0
        settings = Settings(
            ("a:1",),
            timeout_s=timeout_s,
            delivery_timeout_s=delivery_timeout_s,
            linger_ms=5,
            batch_bytes=400,
            producer_id=b"producer",
        )
        self.directory = Directory(settings, lambda: self.now)
        self.directory.keep_view(VIEW)
        self.core = ProducerCore(self.directory, seed=seed)
        self.stores = [new_store(shard) for shard in range(TOPIC.shards)]
        self.sent: list[Sent] = []
        self.arrivals: list[tuple[int, int, int, int]] = []
        self._wires: dict[int, Wire] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._ties = count()
        self._indexes = count()

    # What a user does

    def send(self, shard: int, *, linger: bool = True, expected_seq: int | None = None, size: int = 20) -> Sent:
        message = self._note(shard, size)
        key = message.value if expected_seq is not None else None
        write = make_write(key, message.value, expected_seq=expected_seq)
        self.core.add("t", shard, write, write.size, durability=0, linger=linger, ticket=message.outcomes, now=self.now)
        self.perform()
        return message

    def transact(self, shard: int, size: int) -> list[Sent]:
        messages = [self._note(shard, 20) for _ in range(size)]
        draft = Draft(0, self.now)
        for message in messages:
            write = make_write(None, message.value)
            draft.add(write, write.size)
        self.core.add_draft("t", shard, draft, ticket=Shared(messages), now=self.now)
        self.perform()
        return messages

    def send_bulk(self, shard: int, size: int) -> list[Sent]:
        messages = [self._note(shard, 20) for _ in range(size)]
        values = [message.value for message in messages]
        for piece in split(None, values, shards=2, route_shard=shard, batch_bytes=300, durability=0):
            part, messages = messages[: piece.count], messages[piece.count :]
            self.core.add_piece("t", piece, ticket=Shared(part), now=self.now)
            self.perform()
        return messages

    def _note(self, shard: int, size: int) -> Sent:
        index = next(self._indexes)
        message = Sent(shard, index, b"%d " % index + b"x" * size)
        self.sent.append(message)
        return message

    # Time

    def run(self, until: float) -> None:
        """Let everything happen that is due by then, the core's own alarms included."""
        for step in count():
            assert step < 100_000, "the core asks to be woken and then does nothing"
            wake_at = self.core.next_wake()
            due = [self._events[0][0]] if self._events else []
            due += [max(self.now, wake_at)] if wake_at is not None else []
            if not due or min(due) > until:
                break
            self.now = max(self.now, min(due))
            if self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            else:
                self.core.advance(self.now)
            self.perform()
        self.now = until

    def heal(self) -> None:
        """No more faults; everything that waits must come to its end."""
        self.faults = Faults()
        self.core.flush(self.now)
        self.perform()
        self.run(self.now + 60.0)

    def close(self) -> None:
        self.core.close()
        self.perform()
        self.run(self.now + 60.0)

    def _later(self, at: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at, next(self._ties), act))

    def _delay(self) -> float:
        return self.random.random() * self.faults.delay_s_max

    # Effects

    def perform(self) -> None:
        for effect in self.core.take_effects():
            match effect:
                case OpenLink(link):
                    self._wires[link] = Wire(self.now, self.now)
                case SendOn(link, payload):
                    self._carry(link, payload)
                case CloseLink(link):
                    self._wires[link].is_open = False
                case FetchView(topic):
                    self._later(self.now + self._delay(), lambda topic=topic: self._answer_view(topic))
                case Settle(batch):
                    settle(batch)

    def _answer_view(self, topic: str) -> None:
        if self.random.random() < self.faults.no_view:
            self.core.view_failed(topic, Unavailable("no node answers"), self.now)
        else:
            self.directory.keep_view(VIEW)
            self.core.view_found(topic, self.now)

    def _carry(self, link: int, payload: bytes) -> None:
        wire = self._wires[link]
        wire.to_server = max(wire.to_server, self.now) + self._delay()
        self._later(wire.to_server, lambda: self._arrive(link, payload))

    def _arrive(self, link: int, payload: bytes) -> None:
        """A payload reaches the server, on a link that may be broken by now."""
        wire = self._wires[link]
        faults, chance = self.faults, self.random.random
        wire.hangs = wire.hangs or chance() < faults.hang
        if (wire.hangs or not wire.is_open) and chance() > faults.late_arrival:
            return
        if chance() < faults.break_before:
            self._break(link)
            return
        response = self._serve(payload)
        if chance() < faults.break_after:
            self._break(link)
        if wire.is_open and not wire.hangs:
            wire.to_client = max(wire.to_client, self.now) + self._delay()
            self._later(wire.to_client, lambda: self._answer(link, response))

    def _answer(self, link: int, response: log_pb2.ProduceResponse) -> None:
        if self._wires[link].is_open:
            self.core.answered(link, response, self.now)

    def _break(self, link: int) -> None:
        if self._wires[link].is_open:
            self._wires[link].is_open = False
            self._later(self.now + self._delay(), lambda: self.core.link_broken(link, Unavailable("reset"), self.now))

    def _serve(self, payload: bytes) -> log_pb2.ProduceResponse:
        request = log_pb2.ProduceRequest.FromString(payload)
        stamp = request.producer
        self.arrivals.append((request.shard.shard, stamp.producer_epoch, stamp.number, len(request.values)))
        answer: WriteResult | KayosError
        if self.random.random() < self.faults.refuse:
            answer = self.random.choice(MOODS)("the server's mood")
        else:
            write, _ = write_from_wire(request, TOPIC)
            store = self.stores[request.shard.shard]
            answer = store.commit([write], now_ms=int(self.now * 1000)).answers[0]
            if self.random.random() < self.faults.write_and_say_unknown:
                answer = WriteUnknown("the disk did not say")
        if isinstance(answer, KayosError):
            return log_pb2.ProduceResponse(correlation=request.correlation, error=error_to_bytes(answer))
        return log_pb2.ProduceResponse(
            correlation=request.correlation,
            history_id=answer.history_id,
            first_seq=answer.first_seq,
            last_seq=answer.last_seq,
            timestamp_ms=answer.timestamp_ms,
            copies=1,
            duplicate=answer.duplicate,
        )

    # What is true at the end

    def log(self, shard: int) -> dict[int, bytes]:
        """Value by sequence."""
        records = map(verify_and_decode, self.stores[shard].read_log(0, bytes_max=1 << 40).records)
        return {record.seq: record.value for record in records}

    def check(self) -> None:
        """Nothing lost, doubled or re-ordered, and every message has exactly one outcome that is true."""
        assert self.core.buffered_bytes == 0
        logs = [self.log(shard) for shard in range(TOPIC.shards)]
        for log in logs:
            order = [int(value.split()[0]) for _, value in sorted(log.items())]
            assert order == sorted(set(order)), f"doubled or re-ordered: {order}"
        for message in self.sent:
            assert len(message.outcomes) == 1, f"{message} has not exactly one outcome"
            (outcome,) = message.outcomes
            stored = [seq for seq, value in logs[message.shard].items() if value == message.value]
            if isinstance(outcome, int):
                assert stored == [outcome], f"{message} was acknowledged and stands at {stored}"
            elif not isinstance(outcome, WriteUnknown):
                assert not stored, f"{message} was refused and stands at {stored}"
                assert "producer number" not in outcome.message, f"a gap reached the user: {outcome.message}"


@dataclass
class Shared:
    """The ticket of a request that was handed in as one."""

    messages: list[Sent]


def settle(batch: Batch) -> None:
    outcome = batch.outcome
    ticket = batch.ticket
    places = [message.outcomes for message in ticket.messages] if isinstance(ticket, Shared) else ticket
    assert len(places) == batch.count
    for index, outcomes in enumerate(places):
        outcomes.append(outcome.first_seq + index if isinstance(outcome, BatchDelivery) else outcome)


def new_store(shard: int) -> MemoryStore:
    store = MemoryStore(Identity("topic-1", shard, Mode.COMPACT))
    store.take_over(TakeoverRow(HISTORY, 0, 1))
    return store
