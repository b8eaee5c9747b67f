"""The shell around one replica's machine: feed an event, take the effects, perform them, feed back what came of it.

Everything of the machine happens on the event loop, one event at a time. The writer's thread performs what changes the
store, in the order of the effects; a head's group is forwarded from inside its commit, before the fsync, so that all
replicas fsync at the same time.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from kayos.errors import DataLoss, KayosError, ResetRequired, WriteUnknown
from kayos.limits import COPIES_WAIT_S, READ_CHUNK_BYTES_MAX, ROLLBACK_ROWS_MAX
from kayos.model.chain import Role
from kayos.model.takeover import HISTORY_ID_BYTES, TakeoverRow
from kayos.model.write import Batch
from kayos.replica.effects import (
    AdoptTable,
    Answer,
    Apply,
    ApplyPiece,
    ApplyRollback,
    BeginCopy,
    CancelCopy,
    Effect,
    FetchView,
    FindDiverged,
    FindRecords,
    Follow,
    Forsake,
    ReaderEffect,
    ReadPiece,
    Release,
    SaveCommitPoint,
    SaveEpoch,
    SendDown,
    SendUp,
    Serve,
    TakeOver,
    WriterEffect,
)
from kayos.replica.events import (
    DivergedFound,
    Done,
    Event,
    Failed,
    PieceRead,
    ReadFailed,
    RecordsFound,
    Sequenced,
    StopWaiting,
    Synced,
    Trouble,
    Until,
    Wait,
)
from kayos.replica.facts import Facts
from kayos.replica.machine import Replica
from kayos.storage.interface import Store, StoreState

if TYPE_CHECKING:
    # The shard owns its driver; the other direction is for the type checker.
    from kayos.server.neighbours import Neighbours
    from kayos.server.shard import Place, ServedStore


class Surroundings(Protocol):
    """What the driver needs of the shard around it; all on the event loop."""

    place: "Place"
    neighbours: "Neighbours"
    log: Any

    def released(self, seq: int) -> None: ...

    def order(self, effect: WriterEffect) -> None: ...

    def broke(self, reason: str) -> None: ...


class Driver:
    """One life of a replica."""

    def __init__(self, node: str, store: "ServedStore", pool: Executor, around: Surroundings) -> None:
        self.store = store
        self.replica = Replica(node, store.state.incarnation, facts_of(store.state))
        self._tokens = count(1)
        # The futures behind the tokens of the machine's waits.
        self._waits: dict[int, asyncio.Future[int]] = {}
        self.may_commit = False
        self._pool = pool
        self._around = around
        self._loop = asyncio.get_running_loop()
        self._events: deque[Event] = deque()
        self._is_stepping = False
        self._is_over = False
        self._performers: dict[type, Callable[[Any], None]] = {
            Follow: lambda effect: around.neighbours.follow(effect.node),
            SendUp: lambda effect: around.neighbours.send_up(effect.message, effect.can_wait),
            SendDown: lambda effect: around.neighbours.send_down(effect.node, effect.message, effect.can_wait),
            FetchView: lambda effect: around.place.fetch_view(effect.epoch),
            Release: lambda effect: around.released(effect.seq),
            Serve: self._serve,
            Answer: self._answer,
            Forsake: self._forsake,
            ReadPiece: self._read,
            FindRecords: self._read,
            FindDiverged: self._read,
        }

    def feed(self, event: Event) -> None:
        """One event at a time, in the order they come, also those that performing an effect brings about."""
        if self._is_over:
            if isinstance(event, Wait):
                self._forsake(Forsake(event.token, "the replica stopped"))
            return
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._events:
                for effect in self.replica.step(self._events.popleft()):
                    self._perform(effect)
        except Exception:
            # A machine that fell over in the middle of a step is not to be trusted with the next one.
            self._events.clear()
            self._around.log.exception("the replica's machine failed", node=self.replica.node)
            self._loop.call_soon(self._around.broke, "a bug in the replica's machine: see the node's log")
        finally:
            self._is_stepping = False

    def end(self) -> None:
        """This life of the replica is over: nothing that still comes back concerns it."""
        self._is_over = True
        self.may_commit = False
        for token in list(self._waits):
            self._forsake(Forsake(token, "the replica stopped"))

    def _perform(self, effect: Effect) -> None:
        performer = self._performers.get(type(effect))
        if performer is not None:
            performer(effect)
        else:
            self._around.order(effect)  # type: ignore[arg-type]

    async def wait_for_copies(self, history_id: bytes, seq: int, until: Until, copies: int = 0) -> int:
        """How many there are when the wait is over; WriteUnknown when this head cannot tell any more."""
        token = next(self._tokens)
        future: asyncio.Future[int] = self._loop.create_future()
        self._waits[token] = future
        self.feed(Wait(token, history_id, seq, until, copies))
        try:
            if future.done():
                return future.result()
            async with asyncio.timeout(COPIES_WAIT_S):
                return await future
        except TimeoutError:
            held = self.replica.ledger.count_copies(seq)
            raise WriteUnknown(
                f"sequence {seq} is on {held} replicas after {COPIES_WAIT_S:g} s: ask again, or send again with the "
                "same producer number",
                retry_delay_ms=500,
            ) from None
        finally:
            if self._waits.pop(token, None) is not None:
                self.feed(StopWaiting(token))

    def _serve(self, effect: Serve) -> None:
        self.may_commit = effect.accepts_writes

    def _answer(self, effect: Answer) -> None:
        future = self._waits.pop(effect.token, None)
        if future is not None and not future.done():
            future.set_result(effect.copies)

    def _forsake(self, effect: Forsake) -> None:
        future = self._waits.pop(effect.token, None)
        if future is not None and not future.done():
            future.set_exception(
                WriteUnknown(
                    f"{effect.reason}: the write may or may not be kept; send again with the same producer number",
                    retry_delay_ms=100,
                )
            )

    # The writer's thread

    def forward(self, batch: Batch) -> None:
        self._loop.call_soon_threadsafe(self.feed, Sequenced(batch))

    def perform(self, orders: Sequence[WriterEffect]) -> Sequence[Done | Failed]:
        """All of them, or none when one fails; what became of each."""
        try:
            if isinstance(orders[0], Apply):
                self._apply([order for order in orders if isinstance(order, Apply)])
            else:
                (order,) = orders
                self._change(order)
        except KayosError as error:
            failed = facts_of(self.store.state)
            return [Failed(order, trouble_of(error), error.message, failed) for order in orders]
        facts = facts_of(self.store.state)
        return [Done(order, facts) for order in orders]

    def _apply(self, orders: list[Apply]) -> None:
        if self.replica.role is Role.TAIL:
            self.store.keep_view(self.replica.commit_point)
        self.store.apply([order.batch for order in orders], commit_point=orders[-1].commit_point)

    def _change(self, order: WriterEffect) -> None:
        store = self.store
        match order:
            case SaveEpoch(epoch):
                store.save_epoch(epoch)
            case SaveCommitPoint(commit_point):
                store.save_commit_point(commit_point)
            case TakeOver(epoch, start_seq):
                store.take_over(TakeoverRow(secrets.token_bytes(HISTORY_ID_BYTES), start_seq, epoch))
            case AdoptTable(takeover, epoch):
                store.adopt_takeover(takeover, epoch)
            case ApplyPiece(_, piece):
                store.apply_catch_up(piece)
            case ApplyRollback(_, rollback):
                store.roll_back(rollback)
            case BeginCopy(_, is_clone):
                store.begin_copy(is_clone=is_clone)
            case CancelCopy():
                store.cancel_copy()

    def synced(self, state: StoreState) -> None:
        self.feed(Synced(facts_of(state)))

    def performed(self, outcomes: Sequence[Done | Failed]) -> None:
        for outcome in outcomes:
            self.feed(outcome)
        for outcome in outcomes:
            if isinstance(outcome, Failed) and outcome.trouble is Trouble.BROKEN:
                self._around.broke(outcome.reason)
                return

    # Readers

    def _read(self, effect: ReaderEffect) -> None:
        task = self._loop.run_in_executor(self._pool, read, self.store, effect)
        task.add_done_callback(self._has_read)

    def _has_read(self, task: "asyncio.Future[Event]") -> None:
        if not task.cancelled():
            self.feed(task.result())


def read(store: Store, effect: ReaderEffect) -> Event:
    """In the read pool."""
    try:
        match effect:
            case ReadPiece(_, ask):
                piece = store.read_catch_up(
                    ask.after_seq,
                    start_seq=ask.start_seq,
                    bytes_max=READ_CHUNK_BYTES_MAX,
                    all_retained=ask.all_retained,
                )
                return PieceRead(effect, piece)
            case FindRecords(_, ask):
                found = store.find_restorable(ask.keys, ask.through_seq, bytes_max=READ_CHUNK_BYTES_MAX)
                return RecordsFound(effect, found)
            case FindDiverged(_, after_seq):
                return DivergedFound(effect, store.find_diverged(after_seq, rows_max=ROLLBACK_ROWS_MAX))
    except KayosError as error:
        return ReadFailed(effect, error.message)


def facts_of(state: StoreState) -> Facts:
    return Facts(
        high_seq=state.high_seq,
        takeover=state.takeover,
        purge_seq=state.floors.purge_seq,
        removal_seq=state.floors.removal_seq,
        epoch=state.epoch,
        commit_point=state.commit_point,
        sync=state.sync,
        is_copying=state.is_copying,
    )


def trouble_of(error: KayosError) -> Trouble:
    if isinstance(error, ResetRequired):
        return Trouble.RESET
    return Trouble.BROKEN if isinstance(error, WriteUnknown | DataLoss) else Trouble.RETRY
