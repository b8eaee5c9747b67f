"""One shard on this node: its store and writer, the machine that replicates it, its readers and those who wait.

Writes go to the head's group writer and are answered when as many replicas hold them as was asked for. What callers see
(`state`) moves on the event loop after the fsync; what consumers see is gated by the commit point (`visible`).

A store whose state is unknown after an error of the disk is reopened, which verifies it, and is then a new life of
the replica: alone it goes on with a new history, in a longer chain it waits until a higher epoch names it.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Protocol, TypeVar

from kayos.errors import (
    DataLoss,
    DeadlineExceeded,
    InternalError,
    KayosError,
    NotInChain,
    NotMyRole,
    StaleEpoch,
    Unavailable,
    WriteUnknown,
)
from kayos.limits import COPIES_WAIT_S, LONG_POLL_S_MAX
from kayos.model.chain import ChainView
from kayos.model.control import Control
from kayos.model.topic import Topic
from kayos.model.write import ControlRequest, Request, WriteRequest, WriteResult
from kayos.replica.effects import WriterEffect
from kayos.replica.events import (
    Done,
    Event,
    Failed,
    FromDownstream,
    LinkLost,
    StopWaiting,
    Tick,
    Trouble,
    Until,
    ViewChanged,
    Wait,
)
from kayos.replica.machine import Report
from kayos.server.driver import Driver, facts_of
from kayos.server.head_controls import HeadControls
from kayos.server.logs import get_log
from kayos.server.peers import Peers
from kayos.server.recovery import Recovery
from kayos.server.shared_pin import SharedPins
from kayos.server.upstream_link import UpstreamLink
from kayos.server.watermark import Watermark
from kayos.server.writer import Answer, GroupWriter, now_ms
from kayos.storage.interface import Store, StoreState
from kayos.stream.messages import Downward, Hello, Upward
from kayos.wire.replication_codec import ShardKey

T = TypeVar("T")
CONTROL_SIZE = 256


class ServedStore(Store, Protocol):
    """What the driver needs beside the store's common interface."""

    def reopen(self) -> None: ...

    def wants_compaction(self) -> bool: ...

    def check_readers(self) -> int: ...


class DownstreamStream(Protocol):
    def send(self, message: Downward) -> None: ...

    def close(self) -> None: ...


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
        self.addresses: Mapping[str, str] = {}
        self.log = get_log(topic=topic.name, shard=index, node=place.node)
        self.shared_pins = SharedPins(HeadControls(self), self.log)
        self._view: ChainView | None = None
        self._released_seq = 0
        self._is_tail = False
        self._tokens = count(1)
        self._background: set[asyncio.Task[Any]] = set()
        self._closed: KayosError | None = None
        self._refusal: KayosError | None = None
        self._polls: set[asyncio.Future[int]] = set()
        self._damage_seen = ""
        self._committed_state = self.state
        self._has_forwarded = False
        self._link: UpstreamLink | None = None
        self._downstreams: dict[str, DownstreamStream] = {}
        self._writer = GroupWriter(self, f"{topic.topic_id}-{index}")
        self._recovery = Recovery(self.log, self._reopen)
        self._driver = self._make_driver()
        self._close_readers()

    # The chain

    @property
    def epoch(self) -> int:
        return self._driver.replica.view.epoch

    @property
    def is_head(self) -> bool:
        return self._driver.replica.is_head

    @property
    def view(self) -> ChainView:
        return self._driver.replica.view

    @property
    def accepts_writes(self) -> bool:
        return self._driver.may_commit

    @property
    def problem(self) -> str:
        return self._recovery.problem or self._damage_seen or self._driver.replica.problem

    def report(self) -> Report:
        return self._driver.replica.report()

    def adopt(self, view: ChainView, addresses: Mapping[str, str]) -> None:
        """The coordinator's newest word on this shard."""
        self._view = view
        self.addresses = dict(addresses)
        self.feed(ViewChanged(view))

    def tick(self) -> None:
        self.feed(Tick())

    def feed(self, event: Event) -> None:
        if self._closed is not None:
            return
        self._driver.feed(event)
        self._role_changed()

    def _role_changed(self) -> None:
        role = self._driver.replica.role
        is_tail = role.is_tail
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
        self.visible = Watermark(min(self._released_seq, self.state.high_seq))
        self.messages = Watermark(self.state.message_seq)

    def _close_readers(self) -> None:
        reason = self._not_my_role("reads", "a tail")
        self.visible.close(reason)
        self.messages.close(reason)

    def _not_my_role(self, what: str, wanted: str) -> NotMyRole:
        role = self._driver.replica.role
        return NotMyRole(
            f"{self.place.node} is {role.value} of this shard in epoch {self.epoch}, {what} go to {wanted}: fetch the view",
            epoch=self.epoch,
            retry_delay_ms=50,
        )

    def check_hello(self, hello: Hello) -> None:
        """Refuse whoever has no business here, each for its own reason."""
        view = self.view
        if hello.epoch < view.epoch:
            raise StaleEpoch(f"epoch {hello.epoch} is over, {view.epoch} is current: fetch the view", epoch=view.epoch)
        if hello.epoch > view.epoch:
            self.place.fetch_view(hello.epoch)
            return
        member = view.find_member(hello.node)
        if member is None or view.upstream_of(hello.node) != self.place.node:
            raise NotInChain(
                f"{hello.node!r} does not follow {self.place.node!r} in epoch {view.epoch}: fetch the view",
                epoch=view.epoch,
            )
        if member.incarnation and member.incarnation != hello.incarnation:
            raise NotInChain(
                f"epoch {view.epoch} gave the place of {hello.node!r} to another life of it: join at the end",
                epoch=view.epoch,
            )

    def downstream_came(self, node: str, stream: DownstreamStream, hello: Hello) -> None:
        old = self._downstreams.pop(node, None)
        if old is not None:
            old.close()
            self.feed(LinkLost(node))
        self._downstreams[node] = stream
        self.feed(FromDownstream(node, hello))

    def downstream_said(self, node: str, stream: DownstreamStream, message: Upward) -> None:
        if self._downstreams.get(node) is stream:
            self.feed(FromDownstream(node, message))

    def downstream_left(self, node: str, stream: DownstreamStream) -> None:
        if self._downstreams.get(node) is stream:
            del self._downstreams[node]
            self.feed(LinkLost(node))

    # The driver's surroundings

    def follow(self, node: str) -> None:
        if self._link is not None:
            self._end_later(self._link.close())
            self._link = None
        if node:
            self._link = UpstreamLink(
                node,
                self.place.peers.channel(self.addresses[node]),
                key=ShardKey(self.topic.topic_id, self.index),
                feed=self.feed,
                fetch_view=self.place.fetch_view,
                log=self.log,
            )

    def send_up(self, message: Upward) -> None:
        if self._link is not None:
            self._link.send(message)

    def send_down(self, node: str, message: Downward) -> None:
        stream = self._downstreams.get(node)
        if stream is not None:
            stream.send(message)

    def fetch_view(self, epoch: int) -> None:
        self.place.fetch_view(epoch)

    def released(self, seq: int) -> None:
        self._released_seq = seq
        self._update_visible()

    def _update_visible(self) -> None:
        self.visible.advance(min(self._released_seq, self.state.high_seq))

    def order(self, effect: WriterEffect) -> None:
        self._writer.order(effect)

    def broke(self, reason: str) -> None:
        """This life is over; the next one begins when the store was read back."""
        if self._closed is None:
            self._driver.end()
            self._recovery.begin(reason)

    def _make_driver(self) -> Driver:
        return Driver(self.place.node, self.store, self.place.pool, self)

    async def _reopen(self) -> None:
        """One try: read back what the disk holds, and begin a new life with it."""
        await self._writer.run(self.store.reopen)
        self.state = self._committed_state = self.store.state
        self._driver = self._make_driver()
        self._role_changed()
        if self._view is not None:
            self.feed(ViewChanged(self._view))
        await self.settle()

    async def settle(self) -> None:
        """Until what the view asks of the writer is done; a head alone accepts writes then."""
        self._check_open()
        for _ in range(3):
            await self._writer.run(lambda: None)

    # Writing

    async def write(self, request: WriteRequest, size: int, durability: int = 0) -> Acknowledged:
        """`durability` counts the copies; 0 means all."""
        await self._check_accepts(durability)
        result = await self._writer.submit(request, size)
        until = Until.COPIES if durability else Until.ALL
        return Acknowledged(result, await self.wait_for_copies(result.history_id, result.last_seq, until, durability))

    async def control(self, control: Control) -> WriteResult:
        await self._check_accepts(0)
        result = await self._writer.submit(ControlRequest(control), CONTROL_SIZE)
        await self.wait_for_copies(result.history_id, result.last_seq, Until.ALL)
        return result

    async def poll_for_copies(self, history_id: bytes, seq: int, until: Until, copies: int) -> int:
        """The same for somebody who did not write just now: bounded as a long poll, ended by the node's drain."""
        waiting = asyncio.ensure_future(self.wait_for_copies(history_id, seq, until, copies))
        self._polls.add(waiting)
        try:
            async with asyncio.timeout(LONG_POLL_S_MAX):
                return await waiting
        except TimeoutError:
            raise self._too_late(seq) from None
        except asyncio.CancelledError:
            if self._refusal is not None and waiting.cancelled():
                raise type(self._refusal)(self._refusal.message, **self._refusal.fields) from None
            raise
        finally:
            self._polls.discard(waiting)

    async def wait_for_copies(self, history_id: bytes, seq: int, until: Until, copies: int = 0) -> int:
        """How many there are when the wait is over; WriteUnknown when this head cannot tell any more."""
        driver, token = self._driver, next(self._tokens)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        driver.waits[token] = future
        driver.feed(Wait(token, history_id, seq, until, copies))
        try:
            if future.done():
                return future.result()
            async with asyncio.timeout(COPIES_WAIT_S):
                return await future
        except TimeoutError:
            held = driver.replica.ledger.count_copies(seq)
            raise WriteUnknown(
                f"sequence {seq} is on {held} replicas after {COPIES_WAIT_S:g} s: ask again, or send again with the "
                "same producer number",
                retry_delay_ms=500,
            ) from None
        finally:
            if driver.waits.pop(token, None) is not None:
                driver.feed(StopWaiting(token))

    async def _check_accepts(self, durability: int) -> None:
        self._check_open()
        if not self._driver.may_commit:
            await self._recovery.wait()
            self._check_open()
        self._check_role()
        serving = len(self.view.serving)
        if durability > serving:
            raise Unavailable(
                f"durability is {durability} and the chain has {serving} replicas now: nothing was written, try later",
                retry_delay_ms=500,
            )

    def check_head(self) -> None:
        if not self.is_head and not self._recovery.problem:
            raise self._not_my_role("writes", "the head")

    def _check_role(self) -> None:
        if self._driver.may_commit:
            return
        if self._recovery.damage is not None:
            damage = self._recovery.damage
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
            self._distrust(error)
            raise

    def start_background(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Something long that needs the store; `close` waits for it."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def _end_later(self, work: Coroutine[Any, Any, None]) -> None:
        self.start_background(work)

    # Reading

    def check_tail(self) -> None:
        if not self._is_tail:
            raise self._not_my_role("reads", "a tail")

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

    async def read_released(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """The same behind the gate: given out only when all that it can have seen is committed."""
        self.check_tail()
        found = await self.read(call, *arguments, **options)
        await self.wait_for_seq(self.store.state.high_seq)
        return found

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
        self._refusal = reason
        for poll in list(self._polls):
            poll.cancel()
        self.visible.close(reason)
        self.messages.close(reason)

    async def close(self, reason: KayosError) -> None:
        self.refuse(reason)
        self.shared_pins.close()
        if self._closed is None:
            self._closed = reason
            self._driver.end()
            for stream in self._downstreams.values():
                stream.close()
            if self._link is not None:
                await self._link.close()
            await self._recovery.close()
            # A compaction cannot be cut off in the middle of its copy, and must not outlive the store.
            await asyncio.gather(*self._background, return_exceptions=True)
            await self._writer.stop()
            await asyncio.to_thread(self.store.close)

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed

    # The group writer's side

    def commit_group(self, requests: Sequence[Request]) -> Sequence[Answer]:
        """In the writer's thread."""
        self._has_forwarded = False
        try:
            self._check_role()
            driver = self._driver
            commit_point = driver.replica.commit_point
            return self.store.commit(
                requests, now_ms=now_ms(), commit_point=commit_point, forward=partial(self._forward, driver)
            ).answers
        except KayosError as error:
            return repeat_error(self._judge_failure(error), len(requests))
        except Exception:
            error_id = secrets.token_hex(8)
            self.log.exception("commit failed", error_id=error_id)
            self._distrust_from_thread(f"a commit failed, error {error_id}")
            failure = InternalError(f"internal error {error_id}: see the node's log", error_id=error_id)
            return repeat_error(failure, len(requests))
        finally:
            self._committed_state = self.store.state

    def _forward(self, driver: Driver, batch: Any) -> None:
        self._has_forwarded = True
        driver.forward(batch)

    def _judge_failure(self, error: KayosError) -> KayosError:
        """What was forwarded and not committed may stand elsewhere: this head must stop."""
        if isinstance(error, WriteUnknown | DataLoss) or self._has_forwarded:
            self._distrust_from_thread(error.message, cause_of(error))
        if self._has_forwarded and not isinstance(error, WriteUnknown | DataLoss):
            return WriteUnknown(f"{error.message}; send again with the same producer number", retry_delay_ms=200)
        return error

    def group_committed(self) -> None:
        state = self._committed_state
        is_news = state is not self.state
        self.state = state
        if is_news:
            self._driver.group_synced(state)
            self._role_changed()
        self.messages.advance(state.message_seq)
        self._update_visible()

    def perform(self, orders: Sequence[WriterEffect]) -> Sequence[Done | Failed]:
        """In the writer's thread."""
        try:
            return self._driver.perform(orders)
        except Exception:
            error_id = secrets.token_hex(8)
            self.log.exception("the replica's order failed", error_id=error_id, order=type(orders[0]).__name__)
            facts = facts_of(self.store.state)
            reason = f"internal error {error_id}: see the node's log"
            return [Failed(order, Trouble.BROKEN, reason, facts) for order in orders]
        finally:
            self._committed_state = self.store.state

    def performed(self, outcomes: Sequence[Done | Failed]) -> None:
        self.state = self._committed_state
        self._driver.performed(outcomes)
        self._role_changed()
        self.messages.advance(self.state.message_seq)

    def _distrust(self, error: KayosError) -> None:
        self._become_distrusted(error.message, cause_of(error))

    def _distrust_from_thread(self, reason: str, cause: str = "") -> None:
        self._driver.may_commit = False
        self._writer.call_on_loop(self._become_distrusted, reason, cause)

    def _become_distrusted(self, reason: str, cause: str) -> None:
        """The store's state is unknown until it was reopened, which verifies all of it."""
        self.log.error("a commit failed, the store will be reopened", reason=reason, cause=cause)
        if self._closed is None:
            self._driver.feed(Failed(None, Trouble.BROKEN, reason, facts_of(self.store.state)))
            self.broke(reason)
            self._role_changed()


def cause_of(error: KayosError) -> str:
    """What LMDB or the system said, for the log alone."""
    return str(error.__cause__ or "")


def repeat_error(error: KayosError, count: int) -> list[KayosError]:
    """One exception for each caller: a shared one would gather the tracebacks of all."""
    return [type(error)(error.message, **error.fields) for _ in range(count)]
