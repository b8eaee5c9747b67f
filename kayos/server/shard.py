"""One shard on this node: its store and writer, the machine that replicates it, its readers and those who wait.

Writes go to the head's group writer and are answered when as many replicas hold them as was asked for. What callers see
(`state`) moves on the event loop after the fsync; what consumers see is gated by the commit point (`visible`).

A store whose state is unknown after an error of the disk is reopened, which verifies it, and is then a new life of
the replica: alone it goes on with a new history, in a longer chain it waits until a higher epoch names it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from kayos.errors import DataLoss, DeadlineExceeded, KayosError, NotMyRole, StaleEpoch, Unavailable, WriteUnknown
from kayos.limits import GATE_PATIENCE_S, LONG_POLL_S_MAX
from kayos.model.chain import ChainView
from kayos.model.control import Control
from kayos.model.topic import Topic
from kayos.model.write import ControlRequest, WriteRequest, WriteResult
from kayos.replica.effects import WriterEffect
from kayos.replica.events import Event, Failed, Trouble, Until, ViewChanged
from kayos.replica.report import Report
from kayos.server.committer import Committer, cause_of
from kayos.server.driver import Driver, facts_of
from kayos.server.head_calls import HeadCalls
from kayos.server.logs import get_log
from kayos.server.neighbours import Neighbours
from kayos.server.peers import Peers
from kayos.server.polls import Polls
from kayos.server.reads import KeptReads, Reads
from kayos.server.recovery import Recovery
from kayos.server.shared_pin import SharedPins
from kayos.server.watermark import Watermark
from kayos.server.writer import GroupWriter
from kayos.storage.interface import Store, StoreState
from kayos.wire.replication_codec import ShardKey

T = TypeVar("T")
CONTROL_SIZE = 256


class ServedStore(Store, Protocol):
    """What the driver needs beside the store's common interface."""

    def reopen(self) -> None: ...

    def wants_compaction(self) -> bool: ...

    def check_readers(self) -> int: ...

    def keep_view(self, commit_point: int) -> None: ...

    def find_view(self, commit_point: int) -> KeptReads | None: ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where the shard stands: on which node, with which ways to the others."""

    node: str
    pool: Executor
    peers: Peers
    fetch_view: Callable[[int], None]


class Acknowledged(NamedTuple):
    result: WriteResult
    copies: int


class Shard:
    """Create it on the event loop, then let it `adopt` a view. `problem` is empty when all is well."""

    def __init__(self, topic: Topic, index: int, store: ServedStore, place: Place) -> None:
        self.topic = topic
        self.index = index
        self.store = store
        self.place = place
        self.state: StoreState = store.state
        self.visible = Watermark()
        self.messages = Watermark()
        self.log = get_log(topic=topic.name, shard=index, node=place.node)
        self.head = HeadCalls(self)
        self.shared_pins = SharedPins(self.head, self.log)
        self.neighbours = Neighbours(
            ShardKey(topic.topic_id, index), place.peers, feed=self.feed, fetch_view=place.fetch_view, log=self.log
        )
        self._view: ChainView | None = None
        self._is_tail = False
        self._background: set[asyncio.Task[Any]] = set()
        self._closed: KayosError | None = None
        self._polls = Polls()
        self._damage_seen = ""
        loop = asyncio.get_running_loop()
        self._writer = GroupWriter(
            Committer(store, self, loop.call_soon_threadsafe, self.log), f"{topic.topic_id}-{index}"
        )
        self._recovery = Recovery(self.log, self._reopen)
        self.driver = self._make_driver()
        self._close_readers()

    # The chain

    @property
    def epoch(self) -> int:
        return self.view.epoch

    @property
    def is_head(self) -> bool:
        return self.driver.replica.is_head

    @property
    def view(self) -> ChainView:
        return self.driver.replica.view

    @property
    def addresses(self) -> Mapping[str, str]:
        return self.neighbours.addresses

    @property
    def accepts_writes(self) -> bool:
        return self.driver.may_commit

    @property
    def problem(self) -> str:
        return self._recovery.problem or self._damage_seen or self.driver.replica.problem

    def report(self) -> Report:
        return self.driver.replica.report()

    def adopt(self, view: ChainView, addresses: Mapping[str, str]) -> None:
        """The coordinator's newest word on this shard."""
        self._view = view
        self.neighbours.addresses = dict(addresses)
        self.feed(ViewChanged(view))

    def feed(self, event: Event) -> None:
        if self._closed is None:
            self.driver.feed(event)
            self._role_changed()

    async def settle(self) -> None:
        """Until what the view asks of the writer is done; a head alone accepts writes then."""
        self._check_open()
        for _ in range(3):
            await self._writer.run(lambda: None)

    def _role_changed(self) -> None:
        replica = self.driver.replica
        # What a rollback or a copy leaves is another log: a reader that waits at the gate must not wake up in it.
        is_tail = replica.role.is_tail and self.state.sync.is_ready and not self.state.is_copying
        # Alone, a replica that is being recovered is all there is: what it has committed can be read meanwhile.
        is_recovering = bool(self._recovery.problem) and len(self.view.serving) <= 1
        if is_tail != self._is_tail and not is_recovering:
            self._is_tail = is_tail
            if is_tail:
                self._open_readers()
            else:
                self._close_readers()
        self._update_visible()

    def _open_readers(self) -> None:
        self.visible = Watermark(self._visible_seq())
        self.messages = Watermark(self.state.message_seq)

    def _close_readers(self) -> None:
        reason = self._why_no_reads()
        self.visible.close(reason)
        self.messages.close(reason)

    def _why_no_reads(self) -> KayosError:
        if self.driver.replica.role.is_tail:
            return Unavailable("this tail is catching up: read from another one, or later", retry_delay_ms=200)
        return self._not_my_role("reads", "a tail")

    def _not_my_role(self, what: str, wanted: str) -> NotMyRole:
        node, role, epoch = self.place.node, self.driver.replica.role.value, self.epoch
        return NotMyRole(
            f"{node} is {role} of this shard in epoch {epoch}, {what} go to {wanted}: fetch the view",
            epoch=epoch,
            retry_delay_ms=50,
        )

    # What the driver and the committer ask of their surroundings

    def released(self, seq: int) -> None:
        self._update_visible()

    def state_moved(self, state: StoreState) -> None:
        """The writer finished something; before anybody hears of the result."""
        self.state = state
        self._role_changed()
        self.messages.advance(state.message_seq)

    def _update_visible(self) -> None:
        self.visible.advance(self._visible_seq())

    def _visible_seq(self) -> int:
        """What is committed, as far as it stands here."""
        return min(self.driver.replica.commit_point, self.state.high_seq)

    def order(self, effect: WriterEffect) -> None:
        self._writer.order(effect)

    def broke(self, reason: str) -> None:
        """This life is over; the next one begins when the store was read back."""
        if self._closed is None:
            self.driver.end()
            self._recovery.begin(reason)

    def distrust(self, reason: str, cause: str) -> None:
        """The store's state is unknown until it was reopened, which verifies all of it."""
        self.log.error("a commit failed, the store will be reopened", reason=reason, cause=cause)
        if self._closed is None:
            self.driver.feed(Failed(None, Trouble.BROKEN, reason, facts_of(self.store.state)))
            self.broke(reason)
            self._role_changed()

    def _make_driver(self) -> Driver:
        return Driver(self.place.node, self.store, self.place.pool, self)

    async def _reopen(self) -> None:
        """One try: read back what the disk holds, and begin a new life with it."""
        await self._writer.run(self.store.reopen)
        self.state = self.store.state
        self.driver = self._make_driver()
        if self._view is not None:
            self.driver.feed(ViewChanged(self._view))
        # Before anybody can write to the new life: who was told that a write is stored finds no problem any more.
        self._recovery.problem = ""
        self._role_changed()
        await self.settle()

    # Writing

    async def write(self, request: WriteRequest, size: int, durability: int = 0) -> Acknowledged:
        """`durability` counts the copies; 0 means all."""
        await self._check_accepts(durability)
        driver = self.driver
        result = await self._writer.submit(request, size)
        until = Until.COPIES if durability else Until.ALL
        copies = await driver.wait_for_copies(result.history_id, result.last_seq, until, durability)
        return Acknowledged(result, copies)

    async def control(self, control: Control) -> WriteResult:
        await self._check_accepts(0)
        driver = self.driver
        result = await self._writer.submit(ControlRequest(control), CONTROL_SIZE)
        await driver.wait_for_copies(result.history_id, result.last_seq, Until.ALL)
        return result

    async def poll_for_copies(self, history_id: bytes, seq: int, until: Until, copies: int) -> int:
        """The wait of somebody who did not write just now: bounded as a long poll, ended by the node's drain."""
        self._check_open()
        try:
            async with asyncio.timeout(LONG_POLL_S_MAX):
                return await self._polls.run(self.driver.wait_for_copies(history_id, seq, until, copies))
        except TimeoutError:
            raise self._too_late(seq) from None

    async def _check_accepts(self, durability: int) -> None:
        self._check_open()
        if not self.driver.may_commit:
            await self._recovery.wait()
            self._check_open()
        self.check_role()
        serving = len(self.view.serving)
        if durability > serving:
            raise Unavailable(
                f"durability is {durability} and the chain has {serving} replicas now: nothing was written, try later",
                retry_delay_ms=500,
            )

    def check_head(self) -> None:
        if not self.is_head and not self._recovery.problem:
            raise self._not_my_role("writes", "the head")

    def check_role(self) -> None:
        """Whether this is a head that accepts writes; asked by callers, and again by the writer before it commits."""
        if self.driver.may_commit:
            return
        damage = self._recovery.damage
        if damage is not None:
            raise type(damage)(damage.message, **damage.fields)
        self.check_head()
        reason = self.problem or "the head is taking over"
        raise Unavailable(f"no writes yet ({reason}): nothing was written, send again", retry_delay_ms=100)

    async def run_in_writer(self, call: Callable[[], T]) -> T:
        """Something else that must not run beside a commit."""
        self._check_open()
        try:
            return await self._writer.run(call)
        except (WriteUnknown, DataLoss) as error:
            self.distrust(error.message, cause_of(error))
            raise

    def start_background(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Something long that needs the store; `close` waits for it."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    # Reading

    def check_tail(self) -> None:
        if not self._is_tail:
            raise self._why_no_reads()

    def check_established(self) -> None:
        """Only a tail that knows its log to be the chain's may tell a consumer to undo or to drop what it holds: one
        that has not heard of the newest history would make good consumers start again."""
        if not self.driver.replica.is_established:
            raise Unavailable("this tail is finding its place in the chain: ask again", retry_delay_ms=100)

    async def read(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """A blocking read in the pool. Damage is remembered for whoever looks at the shard's status."""
        self._check_open()
        job = partial(call, *arguments, **options)
        try:
            return await asyncio.get_running_loop().run_in_executor(self.place.pool, job)
        except KayosError as error:
            self._check_open()
            if isinstance(error, DataLoss):
                self._damage_seen = error.message
                self.log.error("damage found while reading", reason=error.message, cause=cause_of(error))
            raise

    async def read_committed(self, look: Callable[[Reads], T]) -> T:
        """At the head: given out only when every replica up to a tail holds what it can have seen."""
        self.check_head()
        found = await self.read(look, self.store)
        state = self.store.state
        if state.high_seq:
            history_id = state.takeover.find_history_at(state.high_seq)
            await self.poll_for_copies(history_id, state.high_seq, Until.ALL, 0)
        return found

    async def read_released(self, look: Callable[[Reads], T], *, min_seq: int = 0) -> T:
        """Behind the gate: given out only when all that it can have seen is committed. While a fault holds the commit
        point back, the last released boundary is looked at instead, unless that is below `min_seq`."""
        self.check_tail()
        found = await self.read(look, self.store)
        seen_seq = self.store.state.high_seq
        if not await self.is_released_soon(seen_seq):
            kept = self.find_released_view(above_seq=min_seq - 1)
            if kept is not None:
                return await self.read(look, kept)
        await self.wait_for_seq(seen_seq)
        return found

    async def is_released_soon(self, seq: int) -> bool:
        """In health the commit point is a millisecond behind."""
        try:
            async with asyncio.timeout(GATE_PATIENCE_S):
                await self.visible.wait_for(seq)
        except TimeoutError:
            return False
        return True

    def find_released_view(self, *, above_seq: int) -> KeptReads | None:
        kept = self.store.find_view(self.visible.value)
        return kept if kept is not None and kept.seq > above_seq else None

    async def wait_for_seq(self, seq: int) -> None:
        """Until consumers may see `seq`; bounded."""
        try:
            async with asyncio.timeout(LONG_POLL_S_MAX):
                await self.visible.wait_for(seq)
        except TimeoutError:
            raise self._too_late(seq) from None

    def _too_late(self, seq: int) -> DeadlineExceeded:
        return DeadlineExceeded(
            f"the log is at {self.visible.value} and did not reach {seq} in {LONG_POLL_S_MAX:g} s: ask again"
        )

    def check_epoch(self, epoch: int) -> None:
        """0 means whatever the current one is."""
        if epoch in (0, self.epoch):
            return
        if epoch < self.epoch:
            raise StaleEpoch(f"epoch {epoch} is over, {self.epoch} is current: fetch the view", epoch=self.epoch)
        self.place.fetch_view(epoch)
        raise Unavailable(
            f"epoch {epoch} is not known here yet, {self.epoch} is current: send again",
            epoch=self.epoch,
            retry_delay_ms=200,
        )

    # Ending

    def refuse(self, reason: KayosError) -> None:
        """End the waits of all long polls; the store stays open until `close`."""
        self._polls.refuse(reason)
        self.visible.close(reason)
        self.messages.close(reason)

    async def close(self, reason: KayosError) -> None:
        self.refuse(reason)
        self.shared_pins.close()
        if self._closed is None:
            self._closed = reason
            self.driver.end()
            await self.neighbours.close()
            await self._recovery.close()
            # A compaction cannot be cut off in the middle of its copy, and must not outlive the store.
            await asyncio.gather(*self._background, return_exceptions=True)
            await self._writer.stop()
            await asyncio.to_thread(self.store.close)

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed
