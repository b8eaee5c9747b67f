"""Group commit: one thread per shard takes all that waits, commits it once, and answers all.

While the thread fsyncs, the next group gathers in the queue. The event loop never touches the store's
writing side, and the thread never touches futures: results come back with one call per group.

    submit → room in the queue (bytes and count, first come first served) → group → store.commit → answers

Invariants: accounts of room live on the event loop alone; every accepted request is answered exactly once,
also when its caller went away, when the commit failed and when the writer stops. Requests enter groups in
the order of `submit`, because a producer's numbers must not overtake each other.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from kayos.errors import KayosError, Overloaded, ShuttingDown
from kayos.limits import (
    GROUP_BYTES_MAX,
    GROUP_COUNT_MAX,
    WRITE_QUEUE_BYTES_MAX,
    WRITE_QUEUE_COUNT_MAX,
    WRITE_QUEUE_WAIT_S,
)
from kayos.model.control import CreatePin
from kayos.model.write import ControlRequest, Request, WriteResult

T = TypeVar("T")
Answer = WriteResult | KayosError


class GroupHandler(Protocol):
    """What the writer's owner does with a group, in the writer thread, and hears of it on the loop."""

    def commit_group(self, requests: Sequence[Request]) -> Sequence[Answer]:
        """One answer per request; never raises."""
        ...

    def group_committed(self) -> None:
        """On the loop, before the answers reach their callers."""
        ...


@dataclass(slots=True, eq=False)
class _Write:
    request: Request
    size: int
    future: asyncio.Future[WriteResult]


@dataclass(slots=True, eq=False)
class _Work:
    """Something else to do in the writer thread, between two groups."""

    call: Callable[[], Any]
    future: asyncio.Future[Any]


class GroupWriter:
    """Create it on the event loop that will call it."""

    def __init__(self, handler: GroupHandler, name: str) -> None:
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Write | _Work | None] = SimpleQueue()
        self._held: _Write | _Work | None = None
        self._bytes_waiting = 0
        self._count_waiting = 0
        self._room_waiters: deque[tuple[asyncio.Future[None], int]] = deque()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"writer-{name}", daemon=True)
        self._thread.start()

    async def submit(self, request: Request, size: int) -> WriteResult:
        """The answer of the request's commit; Overloaded when there was no room for too long."""
        if self._stopping:
            raise ShuttingDown("the shard is closing: send again, to the node that serves it", retry_delay_ms=500)
        if self._room_waiters or not self._has_room(size):
            await self._wait_for_room(size)
        else:
            self._take_room(size)
        if self._stopping:
            # Room was given just before the stop: nothing may follow the end mark in the queue.
            raise ShuttingDown("the shard is closing: send again", retry_delay_ms=500)
        future: asyncio.Future[WriteResult] = self._loop.create_future()
        self._queue.put(_Write(request, size, future))
        return await future

    async def run(self, call: Callable[[], T]) -> T:
        """Run `call` in the writer thread between two groups. It runs even if the caller goes away."""
        if self._stopping:
            raise ShuttingDown("the shard is closing: send again, to the node that serves it", retry_delay_ms=500)
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Work(call, future))
        return await future

    async def stop(self) -> None:
        """Refuse what comes, finish what waits, end the thread."""
        if not self._stopping:
            self._stopping = True
            for waiter, _ in self._room_waiters:
                if not waiter.done():
                    waiter.set_exception(ShuttingDown("the shard is closing: send again", retry_delay_ms=500))
            self._room_waiters.clear()
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        # The last group's answers were posted before the thread ended; let them run.
        await asyncio.sleep(0)

    # Room, on the event loop

    def _has_room(self, size: int) -> bool:
        return self._count_waiting < WRITE_QUEUE_COUNT_MAX and (
            self._bytes_waiting + size <= WRITE_QUEUE_BYTES_MAX or not self._count_waiting
        )

    def _take_room(self, size: int) -> None:
        self._bytes_waiting += size
        self._count_waiting += 1

    async def _wait_for_room(self, size: int) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        entry = (waiter, size)
        self._room_waiters.append(entry)
        try:
            async with asyncio.timeout(WRITE_QUEUE_WAIT_S):
                await waiter
        except TimeoutError:
            if self._room_was_given(waiter):
                return
            raise Overloaded(
                f"the shard's write queue stayed full for {WRITE_QUEUE_WAIT_S:g} s: nothing was written, send again "
                "later or more slowly",
                retry_delay_ms=1000,
            ) from None
        except asyncio.CancelledError:
            if self._room_was_given(waiter):
                self._give_back(size, 1)
            raise
        finally:
            if entry in self._room_waiters:
                self._room_waiters.remove(entry)

    @staticmethod
    def _room_was_given(waiter: asyncio.Future[None]) -> bool:
        return waiter.done() and not waiter.cancelled() and waiter.exception() is None

    def _give_back(self, size: int, count: int) -> None:
        self._bytes_waiting -= size
        self._count_waiting -= count
        while self._room_waiters:
            waiter, wanted = self._room_waiters[0]
            if not waiter.done():
                if not self._has_room(wanted):
                    return
                self._take_room(wanted)
                waiter.set_result(None)
            self._room_waiters.popleft()

    def _finish_group(self, group: list[_Write], answers: Sequence[Answer]) -> None:
        self._handler.group_committed()
        for write, answer in zip(group, answers, strict=True):
            if write.future.done():
                continue  # The caller went away; its write stands all the same.
            if isinstance(answer, KayosError):
                write.future.set_exception(answer)
            else:
                write.future.set_result(answer)
        self._give_back(sum(write.size for write in group), len(group))

    def _finish_work(self, work: _Work, result: Any, error: BaseException | None) -> None:
        self._handler.group_committed()
        if work.future.done():
            return
        if error is None:
            work.future.set_result(result)
        else:
            work.future.set_exception(error)

    # The thread

    def _run(self) -> None:
        while True:
            item = self._held or self._queue.get()
            self._held = None
            if item is None:
                return
            if isinstance(item, _Work):
                self._do_work(item)
            else:
                group = self._gather(item)
                answers = self._handler.commit_group([write.request for write in group])
                self._loop.call_soon_threadsafe(self._finish_group, group, answers)

    def _gather(self, first: _Write) -> list[_Write]:
        """What waits now, up to the bounds of one group. A pin is a boundary, so it ends its group."""
        group = [first]
        size = first.size
        last: _Write = first
        while len(group) < GROUP_COUNT_MAX and not is_boundary(last.request):
            try:
                item = self._queue.get_nowait()
            except Empty:
                break
            if item is None:
                self._queue.put(None)
                break
            if isinstance(item, _Work) or size + item.size > GROUP_BYTES_MAX:
                self._held = item
                break
            group.append(item)
            size += item.size
            last = item
        return group

    def _do_work(self, work: _Work) -> None:
        try:
            result = work.call()
        except BaseException as error:
            self._loop.call_soon_threadsafe(self._finish_work, work, None, error)
        else:
            self._loop.call_soon_threadsafe(self._finish_work, work, result, None)


def is_boundary(request: Request) -> bool:
    return isinstance(request, ControlRequest) and isinstance(request.control, CreatePin)


def now_ms() -> int:
    return int(time.time() * 1000)
