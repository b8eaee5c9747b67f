"""A node as the simulator sees it: the core, its disk and a shell that performs effects as the server will.

The disk is the in-memory twin as the fsynced image. The writer does one job after the other; a job takes its time and
changes the image at its end, so a crash before that loses it. A head's group is sequenced on a copy when it starts,
handed to the core at once (forwarded before the fsync), and the copy becomes the image at its end.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kayos.errors import FailedPrecondition, Gap, KayosError, ResetRequired, StaleEpoch, Unavailable
from kayos.model.takeover import TakeoverRow
from kayos.model.write import WriteResult
from kayos.replica.effects import (
    AdoptTable,
    Answer,
    Apply,
    ApplyPiece,
    ApplyRollback,
    BeginCopy,
    CancelCopy,
    FetchView,
    FindDiverged,
    FindRecords,
    Follow,
    Forsake,
    ReadPiece,
    Release,
    SaveCommitPoint,
    SaveEpoch,
    SendDown,
    SendUp,
    Serve,
    TakeOver,
)
from kayos.replica.events import (
    DivergedFound,
    Done,
    Event,
    Failed,
    FromDownstream,
    FromUpstream,
    PieceRead,
    ReadFailed,
    RecordsFound,
    Sequenced,
    Synced,
    Tick,
    Trouble,
    ViewChanged,
    Wait,
)
from kayos.replica.facts import Facts
from kayos.replica.machine import Replica
from kayos.storage.interface import CommitResult, StoreState
from kayos.storage.memory import MemoryStore

if TYPE_CHECKING:
    from tests.simulation.clients import Operation
    from tests.simulation.consumers import View
    from tests.simulation.world import World

GROUP = None
TICK = Tick()


def facts_of(state: StoreState) -> Facts:
    purge_seq, removal_seq = state.floors.purge_seq, state.floors.removal_seq
    log = (state.high_seq, state.takeover, purge_seq, removal_seq)
    return Facts(*log, state.epoch, state.commit_point, state.sync, state.is_copying)


class Node:
    """`life` counts starts and ends: what was meant for another life never happens. `losses` counts what takes a copy
    out of its chain: crashes, lost disks, removals."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.store = world.make_store()
        self.life = 0
        self.losses = 0
        self._wiped_epoch = -1
        self.is_up = False
        self.paused_until = 0.0
        self.suspected_until = 0.0
        self.replica: Replica = None  # type: ignore[assignment]
        self._forget()

    def _forget(self) -> None:
        self.queue: deque[Any] = deque()
        self.busy = False
        self.requests: list[Operation] = []
        self.waits: dict[int, tuple[Operation, WriteResult]] = {}
        self.views: list[View] = []
        self.followed = ""
        self.is_connected = False
        self.serving = False
        self.released = 0

    @property
    def is_paused(self) -> bool:
        return self.paused_until > self.world.now

    @property
    def kept_state(self) -> StoreState:
        """What a crash would leave: the store, not the copy that is filled beside it."""
        left = self.store._left
        return self.store.state if left is None else left[0]

    @property
    def is_whole(self) -> bool:
        state = self.store.state
        return state.sync.is_ready or state.is_copying

    # Coming and going

    def start(self) -> None:
        world = self.world
        self.life += 1
        self.is_up = True
        self._forget()
        if self.replica is not None:
            self.replica.__dict__.clear()  # A knot of references, too.
        self.replica = Replica(self.name, self.draw_incarnation(), facts_of(self.store.state))
        self.released = self.replica.commit_point
        world.later(world.random() * world.tick, self, self._tick, None)
        world.later(0.2 + world.random() * 2.0, self, self.fetch_view, None)
        world.note(self, "starts", self.replica.incarnation)

    def draw_incarnation(self) -> bytes:
        return b"%s/%d" % (self.name.encode(), self.life)

    def crash(self, *, wipe: bool) -> None:
        self.world.note(self, "loses its disk" if wipe else "crashes", None)
        self.life += 1
        self.losses += 1
        self.is_up = False
        self.store.cancel_copy()
        if wipe:
            self.store = self.world.make_store()
            self._wiped_epoch = self.world.manager.view.epoch
        self._forget()

    def lost_its_disk_since(self, epoch: int) -> bool:
        return self._wiped_epoch >= epoch

    def fetch_view(self, _: object = None) -> None:
        view = self.world.manager.view
        if view.epoch > self.replica.view.epoch:
            self.feed(ViewChanged(view))

    def _tick(self, _: object) -> None:
        world = self.world
        if world.is_healing or world.random() < 0.3:
            self.fetch_view()
        self.feed(TICK)
        world.later(world.tick * (0.8 + world.random() * 0.4), self, self._tick, None)

    # The four dull moves: feed, take effects, perform, feed the results back

    def feed(self, event: Event) -> None:
        world = self.world
        world.steps += 1
        if world.story is not None:
            world.note(self, "←", event)
        for effect in self.replica.step(event):
            if world.story is not None:
                world.note(self, "   →", effect)
            _PERFORM[type(effect)](self, effect)
        if not self.busy and self.queue:
            self.start_job()

    # The writer

    def enqueue(self, job: Any) -> None:
        self.queue.append(job)

    def start_job(self) -> None:
        world, job = self.world, self.queue.popleft()
        if job is GROUP:
            self._start_group()
            return
        jobs = [job]
        if type(job) is Apply:
            while self.queue and type(self.queue[0]) is Apply and world.random() < 0.7:
                jobs.append(self.queue.popleft())
        self.busy = True
        world.later(world.draw_fsync(), self, self.finish_job, jobs)

    def finish_job(self, jobs: list[Any]) -> None:
        world = self.world
        trouble = self._draw_trouble(jobs[0])
        reason = "injected"
        if trouble is None:
            try:
                self._perform_job(jobs)
            except (Gap, FailedPrecondition, StaleEpoch) as error:
                trouble, reason = Trouble.RETRY, str(error)
            except ResetRequired as error:
                trouble, reason = Trouble.RESET, str(error)
            except KayosError as error:
                trouble, reason = Trouble.BROKEN, str(error)
        facts = facts_of(self.store.state)
        world.checks.store_changed(self)
        for job in jobs:
            self.feed(Done(job, facts) if trouble is None else Failed(job, trouble, reason, facts))
        self.busy = False
        if self.replica.is_broken:
            world.break_node(self)
        elif self.queue:
            self.start_job()

    def _draw_trouble(self, job: Any) -> Trouble | None:
        weights = self.world.weights
        if weights.no_room and self.world.random() < weights.no_room:
            return Trouble.RETRY
        if weights.broken and self.world.random() < weights.broken:
            return Trouble.BROKEN
        return None

    def _perform_job(self, jobs: list[Any]) -> None:
        store, job = self.store, jobs[0]
        match job:
            case Apply():
                store.apply([one.batch for one in jobs], commit_point=jobs[-1].commit_point)
            case SaveEpoch():
                store.save_epoch(job.epoch)
            case SaveCommitPoint():
                store.save_commit_point(job.commit_point)
            case TakeOver():
                store.take_over(TakeoverRow(self.world.draw_history(), job.start_seq, job.epoch))
            case AdoptTable():
                store.adopt_takeover(job.takeover, job.epoch)
            case ApplyPiece():
                store.apply_catch_up(job.piece)
            case ApplyRollback():
                store.roll_back(job.rollback)
            case BeginCopy():
                store.begin_copy(is_clone=job.is_clone)
            case CancelCopy():
                store.cancel_copy()

    # The head's groups

    def receive(self, operation: "Operation") -> None:
        if not self.serving:
            operation.refused(self, Unavailable("this node takes no writes"))
            return
        if GROUP not in self.queue:
            self.enqueue(GROUP)
        self.requests.append(operation)
        if not self.busy:
            self.start_job()

    def _start_group(self) -> None:
        operations, self.requests = self.requests, []
        if not self.serving:
            for operation in operations:
                operation.refused(self, Unavailable("this node takes no writes"))
        else:
            self._sequence(operations)
        if not self.busy and self.queue:
            self.start_job()

    def _sequence(self, operations: "list[Operation]") -> None:
        world, image = self.world, self.store.copy()
        commit_point = min(self.replica.commit_point, self.store.state.high_seq)
        requests = [operation.request for operation in operations]
        result = image.commit(requests, now_ms=int(world.now * 10), commit_point=commit_point)
        if result.batch is None:
            self._answer(operations, result)
            return
        world.checks.sequenced(self, result.batch, image.state.takeover.current_history_id)
        self.busy = True
        world.later(world.draw_fsync(is_group=True), self, self._finish_group, (image, operations, result))
        self.feed(Sequenced(result.batch))

    def _finish_group(self, group: "tuple[MemoryStore, list[Operation], CommitResult]") -> None:
        image, operations, result = group
        world = self.world
        if world.weights.broken and world.random() < world.weights.broken:
            if world.random() < 0.5:
                self.store = image
            self.feed(Failed(None, Trouble.BROKEN, "injected", facts_of(self.store.state)))
            world.break_node(self)
            return
        self.store = image
        world.checks.store_changed(self)
        self.feed(Synced(facts_of(image.state)))
        self._answer(operations, result)
        self.busy = False
        if self.queue:
            self.start_job()

    def _answer(self, operations: "list[Operation]", result: CommitResult) -> None:
        for operation, answer in zip(operations, result.answers, strict=True):
            if isinstance(answer, WriteResult):
                self.wait(operation, answer)
            else:
                operation.refused(self, answer)

    def wait(self, operation: "Operation", result: WriteResult) -> None:
        token = self.world.draw_token()
        self.waits[token] = (operation, result)
        self.feed(Wait(token, result.history_id, result.last_seq, operation.until, operation.copies))

    # Effects

    def _follow(self, effect: Follow) -> None:
        self.followed = effect.node
        self.is_connected = False
        if effect.node:
            self.world.network.connect(self)

    def _send_up(self, effect: SendUp) -> None:
        if self.is_connected:
            world = self.world
            world.network.send(self, world.nodes[self.followed], FromDownstream(self.name, effect.message))

    def _send_down(self, effect: SendDown) -> None:
        world = self.world
        world.network.send(self, world.nodes[effect.node], FromUpstream(self.name, effect.message))

    def _fetch_view(self, effect: FetchView) -> None:
        self.world.later(0.2 + self.world.random() * 2.0, self, self.fetch_view, None)

    def _answered(self, effect: Answer) -> None:
        operation, result = self.waits.pop(effect.token)
        self.world.checks.answered(self, operation, result, effect.copies)
        operation.answered(result)

    def _forsaken(self, effect: Forsake) -> None:
        operation, _ = self.waits.pop(effect.token)
        operation.forsaken()

    def _release(self, effect: Release) -> None:
        self.released = effect.seq
        self.world.checks.released(self, effect.seq)
        if self.views:
            self.deliver()

    def deliver(self) -> None:
        """Hand out the views that consumers may see by now."""
        waiting, self.views = self.views, []
        for view in waiting:
            if not self.stands(view):
                continue
            if self.may_deliver(view.mark.seq):
                view.consumer.deliver(self, view)
            else:
                self.views.append(view)

    def may_deliver(self, seq: int) -> bool:
        return seq <= self.released

    def stands(self, view: "View") -> bool:
        """Whether the log still holds what was opened: the commit point is a bare sequence, of the log as it is now."""
        return not view.mark.seq or self.replica.holds(view.mark.history_id, view.mark.seq)

    def _serve(self, effect: Serve) -> None:
        self.serving = effect.accepts_writes

    def _read(self, effect: ReadPiece | FindRecords | FindDiverged) -> None:
        world = self.world
        world.later(0.05 + world.random() * world.delay_max, self, self._finish_read, effect)

    def _finish_read(self, effect: ReadPiece | FindRecords | FindDiverged) -> None:
        bounds, store = self.world.bounds, self.store
        event: Event
        try:
            if isinstance(effect, ReadPiece):
                ask = effect.ask
                piece = store.read_catch_up(
                    ask.after_seq,
                    start_seq=ask.start_seq,
                    bytes_max=bounds.piece_bytes,
                    all_retained=ask.all_retained,
                )
                event = PieceRead(effect, piece)
            elif isinstance(effect, FindRecords):
                found = store.find_restorable(effect.ask.keys, effect.ask.through_seq, bytes_max=bounds.piece_bytes)
                event = RecordsFound(effect, found)
            else:
                event = DivergedFound(effect, store.find_diverged(effect.after_seq, rows_max=bounds.rollback_rows))
        except KayosError as error:
            event = ReadFailed(effect, str(error))
        self.feed(event)


_PERFORM: dict[type, Callable[[Node, Any], None]] = {
    Follow: Node._follow,
    SendUp: Node._send_up,
    SendDown: Node._send_down,
    FetchView: Node._fetch_view,
    Answer: Node._answered,
    Forsake: Node._forsaken,
    Release: Node._release,
    Serve: Node._serve,
    ReadPiece: Node._read,
    FindRecords: Node._read,
    FindDiverged: Node._read,
    Apply: Node.enqueue,
    SaveEpoch: Node.enqueue,
    SaveCommitPoint: Node.enqueue,
    TakeOver: Node.enqueue,
    AdoptTable: Node.enqueue,
    ApplyPiece: Node.enqueue,
    ApplyRollback: Node.enqueue,
    BeginCopy: Node.enqueue,
    CancelCopy: Node.enqueue,
}
