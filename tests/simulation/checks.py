"""What must never happen, looked at while it could, and once more over the whole story when a schedule has healed.

During the schedule the world is asked, with its knowledge of every disk, whether an answer is true: that many
replicas hold that write of that history. At the end the log of the last chain is walked from its first batch, as
the heads sequenced them, by a small model of its own; every delivered snapshot, every acknowledgement and every table
of the replicas is compared with it.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from kayos.model.chain import ChainView
from kayos.model.control import CommitMark, Purge, Trim
from kayos.model.record import Kind, decode_record
from kayos.model.takeover import TakeoverTable
from kayos.model.topic import Mode
from kayos.model.write import Batch, WriteResult
from kayos.replica.events import Until
from kayos.storage.control_codec import decode_control

if TYPE_CHECKING:
    from tests.simulation.clients import Operation
    from tests.simulation.consumers import Consumer, View
    from tests.simulation.node import Node
    from tests.simulation.world import World


class Violation(AssertionError):
    """A rule was broken; the text begins with the rule's name."""


class Acknowledged(NamedTuple):
    """`holders` had it on disk when it was acknowledged, with the count of their losses then."""

    operation: "Operation"
    result: WriteResult
    needed: int
    holders: "tuple[tuple[Node, int], ...]"


class Model:
    """The log's state after each batch, written as plainly as can be."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.rows: dict[int, bytes] = {}
        self.keys: dict[bytes, int] = {}
        self.values: dict[bytes, bytes] = {}
        self.marks: dict[str, Any] = {}
        self.producers: dict[bytes, Any] = {}
        self.purge_seq = 0
        self.places: dict[bytes, set[int]] = {}

    def take(self, batch: Batch) -> None:
        for stored in batch.records:
            record = decode_record(stored)
            if record.kind == Kind.CONTROL:
                self._control(decode_control(record.value))
                continue
            self.places.setdefault(record.value.partition(b"#")[0], set()).add(record.seq)
            if self.mode is Mode.COMPACT and record.key:
                self._replace(record.key, record.seq)
                if record.kind == Kind.PUT:
                    self.values[record.key] = record.value
            self.rows[record.seq] = stored
        for row in batch.producers:
            self.producers[row.producer_id] = row

    def _replace(self, key: bytes, seq: int) -> None:
        older = self.keys.get(key)
        if older is not None:
            del self.rows[older]
        self.keys[key] = seq
        self.values.pop(key, None)

    def _control(self, control: Any) -> None:
        if isinstance(control, CommitMark):
            before = self.marks.get(control.consumer)
            if before is not None and before.seq > control.mark.seq:
                raise Violation(f"marks: {control.consumer} went back from {before.seq} to {control.mark.seq}")
            self.marks[control.consumer] = control.mark
        elif isinstance(control, Purge):
            self.purge_seq = max(self.purge_seq, control.through_seq)
            for key, seq in list(self.keys.items()):
                if seq <= control.through_seq and key not in self.values:
                    del self.keys[key], self.rows[seq]
        elif isinstance(control, Trim):
            self.rows = {seq: stored for seq, stored in self.rows.items() if seq > control.through_seq}


class Checks:
    def __init__(self, world: "World") -> None:
        self._world = world
        self.batches: dict[bytes, list[Batch]] = {}
        self.acknowledged: list[Acknowledged] = []
        self.delivered: list[tuple[Consumer, View]] = []
        self.committed: dict[bytes, int] = {}
        self._floors: dict[bytes, tuple[int, int, int]] = {}
        self._tables: dict[str, TakeoverTable] = {}

    # While it happens

    def sequenced(self, node: "Node", batch: Batch, history_id: bytes) -> None:
        """One history has one writer, who never writes a sequence twice."""
        earlier = self.batches.setdefault(history_id, [])
        if earlier and earlier[-1].last_seq != batch.previous_seq:
            raise Violation(
                f"one head: {node.name} sequences {batch.previous_seq + 1} in a history that stood at "
                f"{earlier[-1].last_seq}"
            )
        earlier.append(batch)

    def store_changed(self, node: "Node") -> None:
        """What never falls on one disk."""
        state = node.store.state
        if state.is_copying:
            return
        # A purge that was never committed may go with the history that it stood in.
        purge_seq = state.floors.purge_seq if state.floors.removal_seq <= state.commit_point else 0
        now = (state.epoch, purge_seq, state.commit_point)
        before = self._floors.get(state.incarnation)
        if before is not None and (state.epoch < before[0] or state.floors.purge_seq < before[1] or now[2] < before[2]):
            raise Violation(f"never down: epoch, purge_seq, commit point of {node.name} fell from {before} to {now}")
        self._floors[state.incarnation] = now
        if self._tables.get(node.name) is not state.takeover:
            self._tables[node.name] = state.takeover
            if not state.takeover.is_sound():
                raise Violation(f"takeover: the table of {node.name} is unsound: {state.takeover}")

    def holders(self, view: ChainView, history_id: bytes, seq: int) -> "list[Node]":
        """The serving members whose disks hold that write. One that has moved on to another epoch, or lost its disk
        since, cannot be judged and counts."""
        nodes = self._world.nodes
        return [nodes[name] for name in view.serving if self._holds(nodes[name], view, history_id, seq)]

    def _holds(self, node: "Node", view: ChainView, history_id: bytes, seq: int) -> bool:
        state = node.kept_state
        end = state.takeover.find_end(history_id, high_seq=state.high_seq)
        if end is not None and end >= seq:
            return True
        return state.epoch > view.epoch or node.lost_its_disk_since(view.epoch)

    def answered(self, node: "Node", operation: "Operation", result: WriteResult, copies: int) -> None:
        view = node.replica.view
        holders = self.holders(view, result.history_id, result.last_seq)
        names = [holder.name for holder in holders]
        if not is_enough(view, operation, names):
            raise Violation(
                f"false ack: {result.last_seq} of {result.history_id!r} was acknowledged for {operation.until.name} "
                f"{operation.copies} by {node.name} in epoch {view.epoch}, held by {names}"
            )
        needed = needed_copies(view, operation)
        # One that was removed and does not know it yet is lost already.
        serving = self._world.manager.view.serving
        held = tuple((holder, holder.losses if holder.name in serving else -1) for holder in holders)
        self.acknowledged.append(Acknowledged(operation, result, needed, held))

    def deliver(self, node: "Node", consumer: "Consumer", view: "View") -> None:
        chain, seq = node.replica.view, view.mark.seq
        if not self.was_committed(node, seq):
            holders = self.holders(chain, view.mark.history_id, seq)
            if len(holders) >= chain.copies_to_commit:
                self.committed[view.mark.history_id] = seq
            else:
                raise Violation(
                    f"dirty read: {consumer.name} was given {seq} by {node.name} in epoch {chain.epoch}, held by "
                    f"{[holder.name for holder in holders]} of {chain.copies_to_commit}"
                )
        self.delivered.append((consumer, view))

    def was_committed(self, node: "Node", seq: int) -> bool:
        """Whether that many replicas ever held it: then disks may have gone since."""
        rows = node.store.state.takeover.rows
        return not seq or any(self.committed.get(row.history_id, 0) >= seq for row in rows)

    def released(self, node: "Node", seq: int) -> None:
        """A commit point must be true when a replica first learns of it."""
        state = node.store.state
        if node.replica.commit_point <= state.high_seq and not self.was_committed(node, seq):
            history_id = state.takeover.find_history_at(seq)
            if len(self.holders(node.replica.view, history_id, seq)) >= node.replica.view.copies_to_commit:
                self.committed[history_id] = seq

    # At the end

    def finish(self) -> None:
        world = self._world
        head = world.nodes[world.manager.view.head]
        self._compare_replicas(head)
        rows = head.store.state.takeover.rows
        ends = [row.start_seq for row in rows[1:]] + [head.store.state.high_seq]
        lineage = {row.history_id: (row.start_seq, end) for row, end in zip(rows, ends, strict=True)}
        self._check_survival(lineage)
        model = self._walk(lineage)
        self._compare_model(head, model)
        self._check_operations(model, lineage)

    def _compare_replicas(self, head: "Node") -> None:
        expected = list(head.store.dump())
        for name in self._world.manager.view.serving:
            if list(self._world.nodes[name].store.dump()) != expected:
                raise Violation(f"convergence: {name} and {head.name} differ after healing")

    def _check_survival(self, lineage: dict[bytes, tuple[int, int]]) -> None:
        if self._world.was_forced:
            return
        for operation, result, needed, holders in self.acknowledged:
            end = lineage.get(result.history_id, (0, 0))[1]
            if end >= result.last_seq:
                continue
            lost = sum(node.losses != losses for node, losses in holders)
            if lost < needed or operation.is_committed:
                raise Violation(
                    f"durability: {operation} at {result.last_seq} was acknowledged with {needed} copies and is gone, "
                    f"{lost} were lost"
                )

    def _walk(self, lineage: dict[bytes, tuple[int, int]]) -> Model:
        waiting = sorted(self.delivered, key=lambda one: one[1].mark.seq)
        model, at = Model(self._world.settings.mode), 0
        while at < len(waiting) and not waiting[at][1].mark.seq:
            at += 1
        for history_id, (start, end) in lineage.items():
            reached = start
            for batch in self.batches.get(history_id, ()):
                if batch.last_seq > end:
                    break
                model.take(batch)
                reached = batch.last_seq
                while at < len(waiting) and waiting[at][1].mark.seq <= reached:
                    self._check_delivered(waiting[at], model, history_id, reached)
                    at += 1
            if reached != end:
                raise Violation(f"boundary: a history ends at {end}, its batches at {reached}")
        if at < len(waiting) and not self._world.was_forced:
            raise Violation(f"delivered: {waiting[at][1].mark} of {waiting[at][0].name} is not in the log")
        return model

    def _check_delivered(
        self, delivered: "tuple[Consumer, View]", model: Model, history_id: bytes, reached: int
    ) -> None:
        consumer, view = delivered
        if view.mark.history_id != history_id or view.mark.seq != reached:
            if self._world.was_forced:
                return
            raise Violation(f"delivered: {view.mark} of {consumer.name} is not in the log, which stands at {reached}")
        expected = [stored for seq, stored in model.rows.items() if seq > view.after_seq]
        if list(view.records) != expected:
            raise Violation(
                f"snapshot: ({view.after_seq}, {reached}] of {consumer.name} is {show(view.records)}, "
                f"the log holds {show(expected)}"
            )
        if model.mode is Mode.COMPACT and view.state != model.values:
            raise Violation(f"state: {consumer.name} holds {view.state} at {reached}, the log {model.values}")

    def _compare_model(self, head: "Node", model: Model) -> None:
        store = head.store
        tables = store._tables
        found = [row.stored for row in tables.log.values()]
        if found != list(model.rows.values()):
            raise Violation(f"log: the replicas hold {show(found)}, the history {show(list(model.rows.values()))}")
        if tables.keys != model.keys:
            raise Violation(f"keys: the replicas hold {tables.keys}, the history {model.keys}")
        if tables.marks != model.marks or tables.producers != model.producers:
            raise Violation("tables: marks or producer rows are not those of the history")
        if store.state.floors.purge_seq != model.purge_seq:
            raise Violation(f"purge_seq: {store.state.floors.purge_seq}, the history {model.purge_seq}")

    def _check_operations(self, model: Model, lineage: dict[bytes, tuple[int, int]]) -> None:
        world = self._world
        for operation in world.clients.operations:
            places = model.places.get(operation.name, ())
            if operation.is_refused and places:
                raise Violation(f"definite failure: {operation} was refused and stands at {sorted(places)}")
            if places and max(places) - min(places) >= operation.request_count:
                raise Violation(f"idempotence: {operation} stands at {sorted(places)}")
            result = operation.result
            if result is None or not places or lineage.get(result.history_id, (0, 0))[1] < result.last_seq:
                continue
            if not result.first_seq <= min(places) <= max(places) <= result.last_seq:
                raise Violation(f"idempotence: {operation} was answered {result} and stands at {sorted(places)}")
        for consumer in world.consumers:
            committed, kept = consumer.committed_seq, model.marks.get(consumer.name)
            if committed and not world.was_forced and (kept is None or kept.seq < committed):
                raise Violation(f"marks: {consumer.name} committed {committed}, the log keeps {kept}")


def is_enough(view: ChainView, operation: "Operation", names: list[str]) -> bool:
    durable = dict.fromkeys(names, 1)
    match operation.until:
        case Until.ALL:
            return view.is_on_all(durable, 1)
        case Until.ANY_TAIL:
            return any(name in durable for name in view.tail_nodes)
        case Until.ALL_TAILS:
            return all(name in durable for name in view.tail_nodes)
        case Until.COPIES:
            return len(names) >= operation.copies


def needed_copies(view: ChainView, operation: "Operation") -> int:
    match operation.until:
        case Until.ALL:
            return view.path_length
        case Until.COPIES:
            return operation.copies
        case _:
            return 1


def show(records: "list[bytes] | tuple[bytes, ...]") -> list[str]:
    decoded = (decode_record(stored) for stored in records)
    return [f"{one.seq}:{one.key.decode()}={one.value.decode() or '-'}" for one in decoded]
