"""Consumers: each opens a view at a tail's newest state, waits until the tail may show it, and holds what it read.

A consumer keeps its mark with its state. Sometimes it commits the mark through the head, and sometimes it loses
everything since and goes on from the mark that a tail has stored.
"""

from typing import TYPE_CHECKING

from kayos.errors import ResetRequired, RollbackRequired
from kayos.model.control import CommitMark
from kayos.model.mark import BEGINNING, Mark
from kayos.model.record import Kind, decode_record

if TYPE_CHECKING:
    from tests.simulation.node import Node
    from tests.simulation.world import World

ALL_BYTES = 1 << 40


class View:
    """A snapshot (`after_seq`, mark] as it was opened; `state` is what the consumer held after it."""

    __slots__ = ("after_seq", "consumer", "mark", "records", "started_from", "state")

    def __init__(self, consumer: "Consumer", after: Mark, mark: Mark, records: tuple[bytes, ...]) -> None:
        self.consumer = consumer
        self.started_from = after
        self.after_seq = after.seq
        self.mark = mark
        self.records = records
        self.state: dict[bytes, bytes] = {}


class Consumer:
    def __init__(self, world: "World", name: str) -> None:
        self._world = world
        self.name = name
        self.mark = BEGINNING
        self.state: dict[bytes, bytes] = {}
        self.saved: dict[Mark, dict[bytes, bytes]] = {BEGINNING: {}}
        self.committed_seq = 0
        # Until then it waits for the view that it has opened.
        self._patient_until = 0.0
        world.later(3.0 + world.random() * 5.0, None, self._turn, None)

    def _turn(self, _: object) -> None:
        world = self._world
        if not world.is_healing:
            if world.now >= self._patient_until:
                self.read(world.nodes[self._choose_tail()])
            world.later(1.5 + world.random() * 6.0, None, self._turn, None)

    def _choose_tail(self) -> str:
        """By a view that may be old: any node is asked now and then."""
        world = self._world
        names = world.manager.view.tail_nodes if world.random() < 0.8 else tuple(world.nodes)
        return names[int(world.random() * len(names))]

    def read(self, node: "Node") -> None:
        if not node.is_up or node.is_paused or not node.replica.role.is_tail:
            return
        state = node.store.state
        if not state.sync.is_ready or state.is_copying:
            return
        if self._world.random() < 0.1 and not self._world.is_healing:
            self._restart_from(node)
        if not self._can_continue(node):
            return
        mark = Mark(state.takeover.find_history_at(state.high_seq), state.high_seq, self.mark.seq, state.high_seq)
        records = node.store.read_log(self.mark.seq, bytes_max=ALL_BYTES).records
        node.views.append(View(self, self.mark, mark, records))
        self._patient_until = self._world.now + self._world.random() * 60.0
        node.deliver()

    def _can_continue(self, node: "Node") -> bool:
        """A tail must never order a rollback, nor forget what it showed. One that is not sure of its own log (it may be
        behind, or hold what will be undone) cannot judge: the consumer waits."""
        state, mark = node.store.state, self.mark
        try:
            state.takeover.check_position(
                history_id=mark.history_id,
                seq=mark.seq,
                high_seq=state.high_seq,
                floor_seq=state.floors.reader_seq,
            )
        except RollbackRequired as error:
            if not node.replica.is_established:
                return False
            if not self._world.was_forced:
                self._world.fail(f"rollback of a consumer: {self.name} at {mark}, by {node.name}: {error}")
            self._begin_again()
        except ResetRequired as error:
            if not node.replica.is_established and mark.seq >= state.floors.reader_seq:
                return False
            if mark.seq >= state.floors.reader_seq and not self._world.was_forced:
                self._world.fail(f"reset of a consumer: {self.name} at {mark}, by {node.name}: {error}")
            self._begin_again()
        return self.mark.seq <= state.high_seq

    def _begin_again(self) -> None:
        self.mark, self.state = BEGINNING, {}

    def _restart_from(self, node: "Node") -> None:
        """The consumer lost its place; a tail that has released everything tells the stored mark."""
        stored = node.store.find_mark(self.name)
        if stored is None or node.released < node.store.state.high_seq:
            return
        if stored not in self.saved:
            self._world.fail(f"marks: {self.name} never committed {stored}, which {node.name} keeps")
        self.mark, self.state = stored, dict(self.saved[stored])

    def deliver(self, node: "Node", view: View) -> None:
        if view.started_from != self.mark or view.mark.seq < self.mark.seq:
            return
        for stored in view.records:
            record = decode_record(stored)
            if record.key and record.kind == Kind.PUT:
                self.state[record.key] = record.value
            elif record.key:
                self.state.pop(record.key, None)
        view.state = dict(self.state)
        self.mark = view.mark
        self._patient_until = 0.0
        self._world.checks.deliver(node, self, view)
        if self._world.story is not None:
            self._world.note(node, f"shows {self.name}", view.mark)
        if view.mark.seq and self._world.random() < 0.3 and not self._world.is_healing:
            self.saved[view.mark] = view.state
            self._world.clients.send_control(CommitMark(self.name, view.mark), (self, view.mark))
