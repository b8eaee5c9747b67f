"""Producers, and those who send controls: sequential, impatient, and faithful to their producer numbers.

A stamped write is sent again, with the same number, until it is acknowledged. Conditional writes and controls are sent
once: what is refused then is certainly not written, what is not answered stays unknown.
"""

from typing import TYPE_CHECKING

from kayos.errors import InvalidArgument, KayosError, ProducerUnknown
from kayos.model.control import CommitMark, CreatePin, EndPin, Purge, Trim
from kayos.model.mark import Mark
from kayos.model.producer import ProducerStamp
from kayos.model.record import Kind
from kayos.model.topic import Mode
from kayos.model.write import ControlRequest, Request, WriteRequest, WriteResult
from kayos.replica.events import Until

if TYPE_CHECKING:
    from tests.simulation.consumers import Consumer
    from tests.simulation.node import Node
    from tests.simulation.world import World

PATIENCE = 14.0
KEYS = (b"a", b"b", b"c", b"d", b"e")


class Operation:
    """One request and what became of it."""

    __slots__ = (
        "_clients",
        "attempts",
        "copies",
        "is_done",
        "is_refused",
        "mark",
        "name",
        "producer",
        "request",
        "request_count",
        "result",
        "until",
    )

    def __init__(self, clients: "Clients", name: bytes, request: Request, until: Until, copies: int) -> None:
        self._clients = clients
        self.name = name
        self.request = request
        self.request_count = request.count if isinstance(request, WriteRequest) else 1
        self.until = until
        self.copies = copies
        self.attempts = 0
        self.is_done = False
        self.is_refused = False
        self.result: WriteResult | None = None
        self.producer: Producer | None = None
        self.mark: tuple[Consumer, Mark] | None = None

    def __str__(self) -> str:
        return f"{self.name.decode()} ({self.until.name} {self.copies})"

    @property
    def is_committed(self) -> bool:
        """Whether its acknowledgement says that enough replicas for the commit point hold it."""
        return self.until is Until.ALL

    def answered(self, result: WriteResult) -> None:
        self.result = result
        self._clients.answered(self)

    def refused(self, node: "Node", error: KayosError) -> None:
        """Not written by this attempt, which proves something if it was the only one."""
        self._clients.refused(self, error)

    def forsaken(self) -> None:
        self._clients.retry(self)


class Producer:
    def __init__(self, index: int) -> None:
        self.index = index
        self.life = 0
        self.number = 0
        self.last: Operation | None = None
        self.waiting: Operation | None = None

    @property
    def id(self) -> bytes:
        return b"p%d.%d" % (self.index, self.life)

    def begin_again(self) -> None:
        """The log does not know what it acknowledged at a low level: a new producer, a new order."""
        self.life += 1
        self.number = 0
        self.last = None


class Clients:
    def __init__(self, world: "World") -> None:
        self._world = world
        self.operations: list[Operation] = []
        self.producers = [Producer(index) for index in range(1 + int(world.random() * 2.5))]
        self._pins = 0
        self._living_pins: list[str] = []
        for producer in self.producers:
            world.later(2.0 + world.random() * 4.0, None, self._produce, producer)
        world.later(4.0 + world.random() * 8.0, None, self._control, None)

    @property
    def is_idle(self) -> bool:
        return all(producer.waiting is None for producer in self.producers)

    # Producing

    def _produce(self, producer: Producer) -> None:
        world = self._world
        if world.is_healing:
            return
        if producer.waiting is None:
            chance = world.random()
            if chance < 0.1 and world.settings.mode is Mode.COMPACT:
                self._send_conditional()
            else:
                self.write(producer)
        if world.weights.waits and world.random() < world.weights.waits:
            self._wait_again()
        world.later(0.5 + world.random() * world.think, None, self._produce, producer)

    def write(self, producer: Producer, *, is_probe: bool = False) -> None:
        world = self._world
        producer.number += 1
        name = b"%s:%d" % (producer.id, producer.number)
        stamp = ProducerStamp(producer.id, 0, producer.number)
        count = 1 if world.random() < 0.6 else 2 + int(world.random() * 2)
        request = self._draw_request(name, count, stamp)
        until, copies = (Until.ALL, 0) if is_probe else self._draw_level()
        operation = self._add(name, request, until, copies)
        operation.producer = producer
        producer.waiting = operation
        self.send(operation)

    def _draw_request(self, name: bytes, count: int, stamp: ProducerStamp) -> WriteRequest:
        random = self._world.random
        keys, values, kinds = [], [], bytearray()
        for index in range(count):
            chance = random()
            keys.append(b"" if chance < 0.15 else KEYS[int(random() * 4)])
            is_delete = keys[-1] and chance > 0.75
            kinds.append(Kind.DELETE if is_delete else Kind.PUT)
            values.append(b"" if is_delete else b"%s#%d" % (name, index))
        return WriteRequest(keys, values, bytes(kinds), producer=stamp)

    def _draw_level(self) -> tuple[Until, int]:
        random = self._world.random
        if random() < 0.45:
            return Until.ALL, 0
        if random() < 0.1:
            return (Until.ANY_TAIL, 0) if random() < 0.5 else (Until.ALL_TAILS, 0)
        return Until.COPIES, 1 + int(random() * min(2, self._world.settings.replicas))

    def _send_conditional(self) -> None:
        """Sent once, without a number, for a key that nobody else writes."""
        random = self._world.random
        name = b"if:%d" % len(self.operations)
        expected = 0 if random() < 0.5 else int(random() * 40)
        request = WriteRequest([KEYS[4]], [name + b"#0"], expected={0: expected})
        self.send(self._add(name, request, Until.ALL, 0))

    def _wait_again(self) -> None:
        """Somebody asks a later head about an earlier write, by its history and sequence."""
        known = [one for one in self.operations if one.result is not None]
        if known:
            asked = known[-1 - int(self._world.random() * min(3, len(known)))]
            assert asked.result is not None
            again = self._add(b"wait:" + asked.name, asked.request, *self._draw_level())
            head = self._world.nodes[self._world.manager.view.head]
            if head.is_up and not head.is_paused:
                head.wait(again, asked.result)

    # Controls

    def _control(self, _: object) -> None:
        world = self._world
        if world.is_healing:
            return
        world.later(2.0 + world.random() * 6.0, None, self._control, None)
        if world.random() >= world.weights.controls:
            return
        head = world.nodes[world.manager.view.head]
        high_seq = head.store.state.high_seq
        chance = world.random()
        if chance < 0.5:
            through = int(world.random() * (high_seq + 1))
            control = Purge(through) if world.settings.mode is Mode.COMPACT else Trim(through)
            self.send_control(control)
        elif chance < 0.8 or not self._living_pins:
            self._pins += 1
            self._living_pins.append(f"pin{self._pins}")
            self.send_control(CreatePin(self._living_pins[-1], 1000))
        else:
            self.send_control(EndPin(self._living_pins.pop(0), "released"))

    def send_control(
        self,
        control: Purge | Trim | CreatePin | EndPin | CommitMark,
        mark: "tuple[Consumer, Mark] | None" = None,
    ) -> None:
        operation = self._add(b"control:%d" % len(self.operations), ControlRequest(control), Until.ALL, 0)
        operation.mark = mark
        self.send(operation)

    # Sending and hearing

    def _add(self, name: bytes, request: Request, until: Until, copies: int) -> Operation:
        operation = Operation(self, name, request, until, copies)
        self.operations.append(operation)
        return operation

    def send(self, operation: Operation) -> None:
        world = self._world
        operation.attempts += 1
        node = world.nodes[world.manager.view.head]
        serving = [other for other in world.nodes.values() if other.serving]
        if serving and world.random() < 0.2:
            # By an old view: whoever takes itself for the head.
            node = serving[int(world.random() * len(serving))]
        if node.is_up:
            world.later(0.05 + world.random() * world.delay_max, node, node.receive, operation)
        if operation.producer is not None:
            world.later(PATIENCE, None, self._lose_patience, (operation, operation.attempts))

    def _lose_patience(self, attempt: tuple[Operation, int]) -> None:
        operation, attempts = attempt
        if operation.attempts == attempts:
            self._resend(operation)

    def retry(self, operation: Operation) -> None:
        if operation.producer is not None and not operation.is_done:
            self._world.later(0.5 + self._world.random() * 2.0, None, self._resend, operation)

    def _resend(self, operation: Operation) -> None:
        if not operation.is_done:
            self.send(operation)

    def answered(self, operation: Operation) -> None:
        producer, result = operation.producer, operation.result
        assert result is not None
        if operation.mark is not None:
            consumer, mark = operation.mark
            consumer.committed_seq = max(consumer.committed_seq, mark.seq)
        if operation.is_done:
            return
        operation.is_done = True
        if producer is None:
            return
        last = producer.last
        # What was acknowledged at a low level in another history may be lost, and its place taken.
        is_bound = last is not None and (last.is_committed or last.result.history_id == result.history_id)
        if is_bound and result.first_seq <= last.result.last_seq and not self._world.was_forced:
            self._world.fail(f"order: {operation} was acknowledged at {result.first_seq}, after {last}")
        producer.last = operation
        producer.waiting = None

    def refused(self, operation: Operation, error: KayosError) -> None:
        producer = operation.producer
        if producer is None:
            operation.is_refused = operation.is_refused or operation.attempts == 1
        elif isinstance(error, InvalidArgument | ProducerUnknown):
            if not operation.is_done and producer.waiting is operation:
                operation.is_done = True
                producer.waiting = None
                producer.begin_again()
        else:
            self.retry(operation)
