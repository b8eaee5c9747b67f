"""Group commit: one thread per shard takes all that waits, commits it once, and answers all.

While the thread fsyncs, the next group gathers in the queue. The event loop never touches the store's
writing side, and the thread never touches futures: results come back with one call per group.

    submit → room in the queue (bytes and count, first come first served) → group → store.commit → answers
    order  → what the replica's machine wants done to the store, in the same queue; batches next to each other share
             one commit

Invariants: accounts of room live on the event loop alone; every queued request is answered exactly once,
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
from kayos.replica.effects import Apply, WriterEffect
from kayos.replica.events import Done, Failed

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

    def perform(self, orders: Sequence[WriterEffect]) -> Sequence[Done | Failed]:
        """What became of each order; several only if all are batches to apply. Never raises."""
        ...

    def performed(self, outcomes: Sequence[Done | Failed]) -> None:
        """On the loop."""
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


@dataclass(slots=True, eq=False)
class _Order:
    effect: WriterEffect


_Item = _Write | _Work | _Order


class GroupWriter:
    """Create it on the event loop that will call it."""

    def __init__(self, handler: GroupHandler, name: str) -> None:
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Item | None] = SimpleQueue()
        self._held: _Item | None = None
        self._bytes_queued = 0
        self._count_queued = 0
        self._waiting: deque[_Write] = deque()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"writer-{name}", daemon=True)
        self._thread.start()

    async def submit(self, request: Request, size: int) -> WriteResult:
        """The answer of the request's commit; Overloaded when there was no room for too long."""
        self._check_running()
        write = _Write(request, size, self._loop.create_future())
        if not self._waiting and self._has_room(size):
            self._enqueue(write)
            return await write.future
        self._waiting.append(write)
        timer = self._loop.call_later(WRITE_QUEUE_WAIT_S, self._give_up, write)
        try:
            return await write.future
        except asyncio.CancelledError:
            self._leave(write)
            raise
        finally:
            timer.cancel()

    async def run(self, call: Callable[[], T]) -> T:
        """Run `call` in the writer thread between two groups. It runs even if the caller goes away."""
        self._check_running()
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Work(call, future))
        return await future

    def order(self, effect: WriterEffect) -> None:
        """Do this to the store, behind all that was ordered before. Bounded by the machine's own windows."""
        if not self._stopping:
            self._queue.put(_Order(effect))

    def call_on_loop(self, call: Callable[..., object], *arguments: object) -> None:
        """From the thread, behind what it has already told the loop."""
        self._loop.call_soon_threadsafe(call, *arguments)

    async def stop(self) -> None:
        """Refuse what comes, finish what waits, end the thread."""
        if not self._stopping:
            self._stopping = True
            for write in self._waiting:
                if not write.future.done():
                    write.future.set_exception(closing())
            self._waiting.clear()
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        # The last group's answers were posted before the thread ended; let them run.
        await asyncio.sleep(0)

    def _check_running(self) -> None:
        if self._stopping:
            raise closing()

    # Room, on the event loop

    def _has_room(self, size: int) -> bool:
        return self._count_queued < WRITE_QUEUE_COUNT_MAX and (
            self._bytes_queued + size <= WRITE_QUEUE_BYTES_MAX or not self._count_queued
        )

    def _enqueue(self, write: _Write) -> None:
        self._bytes_queued += write.size
        self._count_queued += 1
        self._queue.put(write)

    def _move_up(self) -> None:
        """Queue those who waited, in their order. Nobody is queued by its own coroutine after a wait: another
        one could run in between and overtake it."""
        while self._waiting:
            write = self._waiting[0]
            if not write.future.done():
                if not self._has_room(write.size):
                    return
                self._enqueue(write)
            self._waiting.popleft()

    def _give_up(self, write: _Write) -> None:
        if self._leave(write) and not write.future.done():
            write.future.set_exception(
                Overloaded(
                    f"the shard's write queue stayed full for {WRITE_QUEUE_WAIT_S:g} s: nothing was written, send "
                    "again later or more slowly",
                    retry_delay_ms=1000,
                )
            )

    def _leave(self, write: _Write) -> bool:
        """Wait no longer; False when it was queued already. Smaller ones behind it may fit now."""
        if write not in self._waiting:
            return False
        self._waiting.remove(write)
        self._move_up()
        return True

    def _finish_group(self, group: list[_Write], answers: Sequence[Answer]) -> None:
        self._handler.group_committed()
        for write, answer in zip(group, answers, strict=True):
            if write.future.done():
                continue  # The caller went away; its write stands all the same.
            if isinstance(answer, KayosError):
                write.future.set_exception(answer)
            else:
                write.future.set_result(answer)
        self._bytes_queued -= sum(write.size for write in group)
        self._count_queued -= len(group)
        self._move_up()

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
            elif isinstance(item, _Order):
                outcomes = self._handler.perform(self._gather_orders(item.effect))
                self._loop.call_soon_threadsafe(self._handler.performed, outcomes)
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
            if not isinstance(item, _Write) or size + item.size > GROUP_BYTES_MAX:
                self._put_back(item)
                break
            group.append(item)
            size += item.size
            last = item
        return group

    def _gather_orders(self, first: WriterEffect) -> list[WriterEffect]:
        """A batch and those that wait right behind it, up to the bounds of one group."""
        orders = [first]
        size = first.batch.size if isinstance(first, Apply) else GROUP_BYTES_MAX
        while size < GROUP_BYTES_MAX and len(orders) < GROUP_COUNT_MAX:
            try:
                item = self._queue.get_nowait()
            except Empty:
                break
            if not isinstance(item, _Order) or not isinstance(item.effect, Apply):
                self._put_back(item)
                break
            orders.append(item.effect)
            size += item.effect.batch.size
        return orders

    def _put_back(self, item: "_Item | None") -> None:
        """Taken too early; the end of the queue is the last item anyway."""
        if item is None:
            self._queue.put(None)
        else:
            self._held = item

    def _do_work(self, work: _Work) -> None:
        try:
            result = work.call()
        except BaseException as error:
            self._loop.call_soon_threadsafe(self._finish_work, work, None, error)
        else:
            self._loop.call_soon_threadsafe(self._finish_work, work, result, None)


def closing() -> ShuttingDown:
    return ShuttingDown("the shard is closing: send again, to the node that serves it", retry_delay_ms=500)


def is_boundary(request: Request) -> bool:
    return isinstance(request, ControlRequest) and isinstance(request.control, CreatePin)


def now_ms() -> int:
    return int(time.time() * 1000)
