"""Replicas driven by hand: the core over the in-memory twin, the test is its network, its clock and its writer's pace.

`Driven` is one replica. `feed` steps it and keeps what the writer and the readers are to do; `work` does it.
`Links` joins several by links that lose nothing, and runs them until nothing is left to do.
"""

from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import TypeVar

from kayos.errors import KayosError, ResetRequired
from kayos.model.chain import ChainView, Member, MemberState
from kayos.model.control import Control
from kayos.model.takeover import TakeoverRow
from kayos.model.topic import Mode
from kayos.model.write import Batch, ControlRequest, WriteRequest, WriteResult
from kayos.replica.effects import (
    AdoptTable,
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
    ReadPiece,
    SaveCommitPoint,
    SaveEpoch,
    SendDown,
    SendUp,
    TakeOver,
)
from kayos.replica.events import (
    DivergedFound,
    Done,
    Event,
    Failed,
    FromDownstream,
    FromUpstream,
    LinkLost,
    LinkReady,
    PieceRead,
    ReadFailed,
    RecordsFound,
    Sequenced,
    Synced,
    Tick,
    Trouble,
    ViewChanged,
)
from kayos.replica.facts import Facts
from kayos.replica.machine import Replica
from kayos.storage.interface import Identity, StoreState
from kayos.storage.memory import MemoryStore
from kayos.stream.messages import Downward, Upward

SHARD = Identity("topic-1", 0, Mode.COMPACT)
WRITER = (Apply, SaveEpoch, SaveCommitPoint, TakeOver, AdoptTable, ApplyPiece, ApplyRollback, BeginCopy, CancelCopy)
READER = (ReadPiece, FindRecords, FindDiverged)
PIECE_BYTES = 60
T = TypeVar("T")


def chain(
    epoch: int,
    nodes: str,
    *,
    tails: int = 1,
    min_durable: int = 9,
    min_replicas: int = 1,
    learner: str = "",
    state: MemberState = MemberState.WAITING,
    lives: dict[str, bytes] | None = None,
) -> ChainView:
    """The chain of `nodes`, one letter each; M is the whole path unless given."""
    named = lives or {}
    members = [Member(node, named.get(node, b"")) for node in nodes]
    members += [Member(node, named.get(node, b""), state) for node in learner]
    view = ChainView(epoch, tuple(members), tails, min_durable, min_replicas)
    view.check()
    return view


def only(effects: list[Effect], kind: type[T]) -> list[T]:
    """The effects of one kind, or the words of one kind among what was sent."""
    words = [effect.message for effect in effects if isinstance(effect, SendUp | SendDown)]
    return [found for found in (*effects, *words) if isinstance(found, kind)]


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


class Driven:
    """`orders` and `reads` wait to be done; `seen` is every effect so far."""

    _numbers = count(1)

    def __init__(self, node: str, store: MemoryStore | None = None, *, life: bytes = b"life-1") -> None:
        self.node = node
        self.store = MemoryStore(SHARD) if store is None else store
        self.replica = Replica(node, life, facts_of(self.store.state))
        self.orders: deque[Effect] = deque()
        self.reads: deque[Effect] = deque()
        self.seen: list[Effect] = []
        self._image: MemoryStore | None = None

    @property
    def facts(self) -> Facts:
        return facts_of(self.store.state)

    def feed(self, event: Event) -> list[Effect]:
        effects = self.replica.step(event)
        self.orders += [effect for effect in effects if isinstance(effect, WRITER)]
        self.reads += [effect for effect in effects if isinstance(effect, READER)]
        self.seen += effects
        return effects

    def work(self) -> list[Effect]:
        """Everything that writer and readers are to do, and what follows from it."""
        effects: list[Effect] = []
        while self.orders or self.reads:
            effects += self.write_one() if self.orders else self.read_one()
        return effects

    def do(self, event: Event) -> list[Effect]:
        return [*self.feed(event), *self.work()]

    def write_one(self) -> list[Effect]:
        order = self.orders.popleft()
        try:
            self._perform(order)
        except KayosError as error:
            trouble = Trouble.RESET if isinstance(error, ResetRequired) else Trouble.RETRY
            return self.feed(Failed(order, trouble, error.message, self.facts))  # type: ignore[arg-type]
        return self.feed(Done(order, self.facts))  # type: ignore[arg-type]

    def read_one(self) -> list[Effect]:
        return self.feed(self._read(self.reads.popleft()))

    def _perform(self, order: Effect) -> None:
        store = self.store
        match order:
            case Apply(batch, commit_point):
                store.apply([batch], commit_point=commit_point)
            case SaveEpoch(epoch):
                store.save_epoch(epoch)
            case SaveCommitPoint(commit_point):
                store.save_commit_point(commit_point)
            case TakeOver(epoch, start_seq):
                history_id = f"{self.node}-{next(self._numbers):014d}".encode()
                store.take_over(TakeoverRow(history_id, start_seq, epoch))
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

    def _read(self, effect: Effect) -> Event:
        store = self.store
        try:
            if isinstance(effect, ReadPiece):
                ask = effect.ask
                piece = store.read_catch_up(
                    ask.after_seq, start_seq=ask.start_seq, bytes_max=PIECE_BYTES, all_retained=ask.all_retained
                )
                return PieceRead(effect, piece)
            if isinstance(effect, FindRecords):
                found = store.find_restorable(effect.ask.keys, effect.ask.through_seq, bytes_max=PIECE_BYTES)
                return RecordsFound(effect, found)
            assert isinstance(effect, FindDiverged)
            return DivergedFound(effect, store.find_diverged(effect.after_seq, rows_max=1000))
        except KayosError as error:
            return ReadFailed(effect, error.message)  # type: ignore[arg-type]

    # The head's groups

    def sequence(self, *requests: WriteRequest | Control, now_ms: int = 1000) -> tuple[list[WriteResult], list[Effect]]:
        """A group gets its sequences and is forwarded; it is fsynced by `sync`."""
        image = self.store.copy()
        wrapped = [each if isinstance(each, WriteRequest) else ControlRequest(each) for each in requests]
        result = image.commit(wrapped, now_ms=now_ms)
        assert result.batch is not None and not any(isinstance(answer, KayosError) for answer in result.answers)
        self._image = image
        return list(result.answers), self.feed(Sequenced(result.batch))  # type: ignore[arg-type]

    def sync(self) -> list[Effect]:
        assert self._image is not None
        self.store, self._image = self._image, None
        return self.feed(Synced(self.facts))

    def write(self, *requests: WriteRequest | Control, now_ms: int = 1000) -> list[Effect]:
        _, effects = self.sequence(*requests, now_ms=now_ms)
        return [*effects, *self.sync()]

    # Short words for a neighbour

    def hear_up(self, node: str, message: Downward) -> list[Effect]:
        return self.feed(FromUpstream(node, message))

    def hear_down(self, node: str, message: Upward) -> list[Effect]:
        return self.feed(FromDownstream(node, message))


def head(nodes: str = "abc", *, epoch: int = 1, store: MemoryStore | None = None, **settings: int) -> Driven:
    """The first of a chain, which has taken over."""
    driven = Driven(nodes[0], store)
    driven.do(ViewChanged(chain(epoch, nodes, **settings)))
    return driven


def last_batch(driven: Driven) -> Batch:
    (batch,) = [effect.batch for effect in driven.seen if isinstance(effect, Apply)][-1:]
    return batch


class Links:
    """Several replicas and what is under way between them. `trace` is every effect with its node, in order."""

    def __init__(self, nodes: str, stores: dict[str, MemoryStore] | None = None) -> None:
        self._lives = count(1)
        self.nodes: dict[str, Driven] = {}
        self.view = ChainView(0, ())
        self.trace: list[tuple[str, Effect]] = []
        self._following: dict[str, str] = {}
        self._queue: deque[tuple[str, Event]] = deque()
        for node in nodes:
            self.start(node, (stores or {}).get(node))

    def __getitem__(self, node: str) -> Driven:
        return self.nodes[node]

    def start(self, node: str, store: MemoryStore | None = None) -> Driven:
        """A new life, over the store that it had or over an empty one."""
        self.nodes[node] = Driven(node, store, life=b"life-%d" % next(self._lives))
        return self.nodes[node]

    def crash(self, node: str) -> MemoryStore:
        """What its disk holds; its neighbours see their links break."""
        driven = self.nodes.pop(node)
        driven.store.cancel_copy()
        self._queue = deque((to, event) for to, event in self._queue if to != node)
        for other in self.nodes:
            self._tell(other, LinkLost(node))
        return driven.store

    def adopt(self, view: ChainView) -> None:
        self.view = view
        for node in self.nodes:
            self._tell(node, ViewChanged(view))
        self.settle()

    def tick(self) -> None:
        for node in self.nodes:
            self._tell(node, Tick())
        self.settle()

    def write(self, node: str, *requests: WriteRequest | Control, now_ms: int = 1000) -> list[WriteResult]:
        """A group at the head, all the way down and its acknowledgements all the way up."""
        results, effects = self.nodes[node].sequence(*requests, now_ms=now_ms)
        self.perform(node, effects)
        self.perform(node, self.nodes[node].sync())
        self.settle()
        return results

    def settle(self) -> None:
        for _ in range(10_000):
            if self._queue:
                node, event = self._queue.popleft()
                if node in self.nodes:
                    self.perform(node, self.nodes[node].feed(event))
            elif not self._work_once():
                return
        raise AssertionError("it never comes to rest")

    def said(self, node: str) -> Iterator[Effect]:
        return (effect for name, effect in self.trace if name == node)

    def _work_once(self) -> bool:
        for node, driven in self.nodes.items():
            if driven.orders or driven.reads:
                self.perform(node, driven.write_one() if driven.orders else driven.read_one())
                return True
        return False

    def perform(self, node: str, effects: list[Effect]) -> None:
        for effect in effects:
            self.trace.append((node, effect))
            match effect:
                case Follow(upstream):
                    self._following[node] = upstream
                    if upstream in self.nodes:
                        self._tell(node, LinkReady(upstream))
                case SendUp(message):
                    self._tell(self._following[node], FromDownstream(node, message))
                case SendDown(downstream, message):
                    self._tell(downstream, FromUpstream(node, message))
                case FetchView():
                    self._tell(node, ViewChanged(self.view))

    def _tell(self, node: str, event: Event) -> None:
        self._queue.append((node, event))
