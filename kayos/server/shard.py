"""One shard on this node: its store, its writer thread, its readers and those who wait for news.

Writes go through the group writer; the state that callers see (`state`) moves on the event loop after the
fsync, so nothing is visible before it is durable. Before the first write of a process, and again after a
commit whose outcome is unknown, the store is made ready in the writer thread: reopened if need be, then a
new history begins durably. Meanwhile writes are refused and reads go on.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Protocol, TypeVar

from kayos.errors import (
    DataLoss,
    DeadlineExceeded,
    InternalError,
    KayosError,
    StaleEpoch,
    Unavailable,
    WriteUnknown,
)
from kayos.limits import LONG_POLL_S_MAX, REOPEN_DELAY_S_MAX, REOPEN_DELAY_S_MIN
from kayos.model.control import Control
from kayos.model.takeover import HISTORY_ID_BYTES, TakeoverRow
from kayos.model.topic import Topic
from kayos.model.write import ControlRequest, Request, WriteRequest, WriteResult
from kayos.server.logs import get_log
from kayos.server.shared_pin import SharedPins
from kayos.server.watermark import Watermark
from kayos.server.writer import Answer, GroupWriter, now_ms
from kayos.storage.interface import Store, StoreState

T = TypeVar("T")
CONTROL_SIZE = 256


class ServedStore(Store, Protocol):
    """What the driver needs beside the store's common interface."""

    def reopen(self) -> None: ...

    def wants_compaction(self) -> bool: ...

    def check_readers(self) -> int: ...


class Shard:
    """Create it on the event loop. `problem` is empty when all is well."""

    def __init__(self, topic: Topic, index: int, epoch: int, store: ServedStore, pool: Executor) -> None:
        self.topic = topic
        self.index = index
        self.epoch = epoch
        self.store = store
        self.state: StoreState = store.state
        self.high = Watermark(self.state.high_seq)
        self.messages = Watermark(self.state.message_seq)
        self.problem = ""
        self.log = get_log(topic=topic.name, shard=index, epoch=epoch)
        self.shared_pins = SharedPins(self, self.log)
        self._pool = pool
        self._background: set[asyncio.Task[Any]] = set()
        self._closed: KayosError | None = None
        self._damage: DataLoss | None = None
        self._ready = False
        self._must_reopen = False
        self._retry_at = 0.0
        self._retry_delay_s = REOPEN_DELAY_S_MIN
        self._committed_state = self.state
        self._writer = GroupWriter(self, f"{topic.topic_id}-{index}")

    # Writing

    async def write(self, request: WriteRequest, size: int) -> WriteResult:
        self._check_open()
        return await self._writer.submit(request, size)

    async def control(self, control: Control) -> WriteResult:
        self._check_open()
        return await self._writer.submit(ControlRequest(control), CONTROL_SIZE)

    async def run_in_writer(self, call: Callable[[], T]) -> T:
        """Something else that must not run beside a commit."""
        self._check_open()
        return await self._writer.run(partial(self._distrusting, call))

    def start_background(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Something long that needs the store; `close` waits for it."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def become_ready(self) -> None:
        """Take over now, so that the first write need not wait for it."""
        if not self._ready:
            self._check_open()
            await self._writer.run(self._make_ready)

    # Reading

    async def read(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """A blocking read in the pool. Damage is remembered for whoever looks at the shard's status."""
        self._check_open()
        job = partial(call, *arguments, **options)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, job)
        except KayosError as error:
            self._check_open()
            if isinstance(error, DataLoss):
                self.problem = error.message
                self.log.error("damage found while reading", reason=error.message, cause=cause_of(error))
            raise

    async def wait_for_seq(self, seq: int) -> None:
        """Until the log has reached `seq`; bounded."""
        try:
            async with asyncio.timeout(LONG_POLL_S_MAX):
                await self.high.wait_for(seq)
        except TimeoutError:
            raise DeadlineExceeded(
                f"the log is at {self.state.high_seq} and did not reach {seq} in {LONG_POLL_S_MAX:g} s: ask again"
            ) from None

    def check_epoch(self, epoch: int) -> None:
        """0 means whatever the current one is."""
        if epoch in (0, self.epoch):
            return
        if epoch < self.epoch:
            raise StaleEpoch(f"epoch {epoch} is over, {self.epoch} is current: fetch the view", epoch=self.epoch)
        raise Unavailable(
            f"epoch {epoch} is not known here yet, {self.epoch} is current: send again",
            epoch=self.epoch,
            retry_delay_ms=200,
        )

    # Ending

    def refuse(self, reason: KayosError) -> None:
        """End the waits of all long polls; the store stays open until `close`."""
        self.high.close(reason)
        self.messages.close(reason)

    async def close(self, reason: KayosError) -> None:
        self.refuse(reason)
        self.shared_pins.close()
        if self._closed is None:
            self._closed = reason
            # A compaction cannot be cut off in the middle of its copy, and must not outlive the store.
            await asyncio.gather(*self._background, return_exceptions=True)
            await self._writer.stop()
            await asyncio.to_thread(self.store.close)

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed

    # The group writer's side

    def commit_group(self, requests: Sequence[Request]) -> Sequence[Answer]:
        try:
            self._make_ready()
            return self._distrusting(lambda: self.store.commit(requests, now_ms=now_ms()).answers)
        except KayosError as error:
            return repeat_error(error, len(requests))
        except Exception:
            error_id = secrets.token_hex(8)
            self.log.exception("commit failed", error_id=error_id)
            self._become_unready(f"a commit failed, error {error_id}")
            failure = InternalError(f"internal error {error_id}: see the node's log", error_id=error_id)
            return repeat_error(failure, len(requests))
        finally:
            self._committed_state = self.store.state

    def _distrusting(self, call: Callable[[], T]) -> T:
        """Change the store; after an error of the disk or of LMDB it is reopened, which verifies all of it."""
        try:
            return call()
        except (WriteUnknown, DataLoss) as error:
            self._become_unready(error.message, cause_of(error))
            raise

    def group_committed(self) -> None:
        self.state = self._committed_state
        self.high.advance(self.state.high_seq)
        self.messages.advance(self.state.message_seq)

    def _become_unready(self, reason: str, cause: str = "") -> None:
        self._ready = False
        self._must_reopen = True
        self.problem = reason
        self.log.error("a commit failed, the store will be reopened", reason=reason, cause=cause)

    def _make_ready(self) -> None:
        """In the writer thread. Tries again at most as often as the back-off allows."""
        if self._ready:
            return
        if self._damage is not None:
            raise self._damage
        left_s = self._retry_at - time.monotonic()
        if left_s > 0:
            raise Unavailable(
                f"the store is being recovered ({self.problem}): nothing was written, send again",
                retry_delay_ms=int(left_s * 1000) + 1,
            )
        try:
            self._reopen_and_take_over()
        except DataLoss as error:
            self._damage = error
            self.problem = error.message
            self.log.error("the store is damaged and takes no writes", reason=error.message, cause=cause_of(error))
            raise
        except KayosError as error:
            self._retry_delay_s = min(REOPEN_DELAY_S_MAX, self._retry_delay_s * 2)
            self._retry_at = time.monotonic() + self._retry_delay_s
            self.problem = error.message
            self.log.warning("the store is not ready for writes", reason=error.message, cause=cause_of(error))
            if isinstance(error, WriteUnknown):
                # Of the takeover, not of the callers' writes: those were certainly not tried.
                self._must_reopen = True
                raise Unavailable(error.message, retry_delay_ms=int(self._retry_delay_s * 1000)) from error
            raise

    def _reopen_and_take_over(self) -> None:
        if self._must_reopen:
            self.store.reopen()
            self._must_reopen = False
        row = TakeoverRow(secrets.token_bytes(HISTORY_ID_BYTES), self.store.state.high_seq, self.epoch)
        self.store.take_over(row)
        self._committed_state = self.store.state
        self._ready = True
        self._retry_delay_s = REOPEN_DELAY_S_MIN
        self.problem = ""
        self.log.info("took over", history=row.history_id.hex(), seq=row.start_seq)


def cause_of(error: KayosError) -> str:
    """What LMDB or the system said, for the log alone."""
    return str(error.__cause__ or "")


def repeat_error(error: KayosError, count: int) -> list[KayosError]:
    """One exception for each caller: a shared one would gather the tracebacks of all."""
    return [type(error)(error.message, **error.fields) for _ in range(count)]
