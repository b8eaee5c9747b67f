"""Group commit: bounds of a group, order, cancellation, a full queue, and the end."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from kayos.errors import ConditionFailed, KayosError, Overloaded, ShuttingDown
from kayos.limits import GROUP_BYTES_MAX, GROUP_COUNT_MAX, WRITE_QUEUE_BYTES_MAX, WRITE_QUEUE_COUNT_MAX
from kayos.model.control import CreatePin, DropMark
from kayos.model.write import ControlRequest, Request, WriteRequest, WriteResult
from kayos.server import writer as writer_module
from kayos.server.writer import Answer, GroupWriter

TIMEOUT_S = 20.0


class Handler:
    """Commits nothing, but notes every group; `gate` holds the thread inside a commit."""

    def __init__(self) -> None:
        self.groups: list[list[bytes]] = []
        self.committed = 0
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def commit_group(self, requests: Sequence[Request]) -> Sequence[Answer]:
        self.entered.set()
        assert self.gate.wait(TIMEOUT_S)
        self.groups.append([name_of(request) for request in requests])
        return [answer_to(request) for request in requests]

    def group_committed(self) -> None:
        self.committed += 1


def write(name: bytes) -> WriteRequest:
    return WriteRequest(keys=[name], values=[b""])


def name_of(request: Request) -> bytes:
    return request.keys[0] if isinstance(request, WriteRequest) else type(request.control).__name__.encode()


def answer_to(request: Request) -> Answer:
    if name_of(request).startswith(b"bad"):
        return ConditionFailed("no")
    return WriteResult(name_of(request), 1, 1, 0)


@pytest.fixture
def handler() -> Handler:
    return Handler()


async def block(handler: Handler, writer: GroupWriter) -> "asyncio.Future[WriteResult]":
    """Bring the thread to a halt inside the commit of a first write."""
    handler.gate.clear()
    first = asyncio.ensure_future(writer.submit(write(b"first"), 1))
    assert await asyncio.to_thread(handler.entered.wait, TIMEOUT_S)
    return first


async def submit_all(writer: GroupWriter, names: list[bytes], size: int = 1) -> "list[asyncio.Future[WriteResult]]":
    """Started and inside `submit`, in that order."""
    tasks = [asyncio.ensure_future(writer.submit(write(name), size)) for name in names]
    await asyncio.sleep(0)
    return tasks


async def test_all_that_waits_is_one_group_and_each_gets_its_own_answer(handler: Handler) -> None:
    writer = GroupWriter(handler, "t")
    first = await block(handler, writer)
    tasks = await submit_all(writer, [b"a", b"bad", b"c"])
    handler.gate.set()
    answers = await asyncio.gather(first, *tasks, return_exceptions=True)
    assert handler.groups == [[b"first"], [b"a", b"bad", b"c"]]
    assert isinstance(answers[2], ConditionFailed)
    assert [answer.history_id for answer in answers if isinstance(answer, WriteResult)] == [b"first", b"a", b"c"]
    assert handler.committed == 2
    await writer.stop()


async def test_a_group_is_bounded_in_count_and_bytes(handler: Handler) -> None:
    writer = GroupWriter(handler, "t")
    first = await block(handler, writer)
    many = await submit_all(writer, [b"%d" % number for number in range(GROUP_COUNT_MAX + 10)])
    large = await submit_all(writer, [b"L%d" % number for number in range(3)], size=GROUP_BYTES_MAX // 2)
    handler.gate.set()
    await asyncio.gather(first, *many, *large)
    assert [len(group) for group in handler.groups] == [1, GROUP_COUNT_MAX, 11, 2]
    assert [name for group in handler.groups[1:] for name in group] == [
        *(b"%d" % number for number in range(GROUP_COUNT_MAX + 10)),
        b"L0",
        b"L1",
        b"L2",
    ]
    await writer.stop()


async def test_a_pin_ends_its_group_and_other_controls_do_not(handler: Handler) -> None:
    writer = GroupWriter(handler, "t")
    first = await block(handler, writer)
    requests: list[Request] = [
        write(b"a"),
        ControlRequest(DropMark("c")),
        write(b"b"),
        ControlRequest(CreatePin("p", 1_000)),
        write(b"c"),
    ]
    tasks = [asyncio.ensure_future(writer.submit(request, 1)) for request in requests]
    await asyncio.sleep(0)
    handler.gate.set()
    await asyncio.gather(first, *tasks)
    assert handler.groups[1:] == [[b"a", b"DropMark", b"b", b"CreatePin"], [b"c"]]
    await writer.stop()


async def test_work_runs_between_groups_in_its_turn(handler: Handler) -> None:
    writer = GroupWriter(handler, "t")
    first = await block(handler, writer)
    before = await submit_all(writer, [b"a"])
    working = asyncio.ensure_future(writer.run(lambda: len(handler.groups)))
    await asyncio.sleep(0)
    after = await submit_all(writer, [b"b"])
    handler.gate.set()
    await asyncio.gather(first, *before, *after)
    assert await working == 2
    assert handler.groups == [[b"first"], [b"a"], [b"b"]]
    with pytest.raises(ZeroDivisionError):
        await writer.run(lambda: 1 // 0)
    await writer.submit(write(b"still here"), 1)
    await writer.stop()


async def test_a_caller_that_leaves_does_not_take_its_write_along(handler: Handler) -> None:
    writer = GroupWriter(handler, "t")
    first = await block(handler, writer)
    left, stayed = await submit_all(writer, [b"left", b"stayed"])
    left.cancel()
    handler.gate.set()
    await asyncio.gather(first, stayed)
    assert left.cancelled()
    assert handler.groups[1] == [b"left", b"stayed"]
    await writer.stop()


async def test_who_waits_for_room_keeps_its_place(handler: Handler) -> None:
    """The order of `submit` is the order of groups, also when the queue was full and others come meanwhile."""
    writer = GroupWriter(handler, "t")
    handler.gate.clear()

    async def one_after_the_other() -> None:
        await writer.submit(write(b"first"), 1_000)
        # Room came with the answer, and the one that waited was given it: this one must not overtake.
        await writer.submit(write(b"last"), 100)

    going = asyncio.ensure_future(one_after_the_other())
    assert await asyncio.to_thread(handler.entered.wait, TIMEOUT_S)
    queued = await submit_all(writer, [b"queued"], size=WRITE_QUEUE_BYTES_MAX - 1_000)
    waiting = await submit_all(writer, [b"waiting"], size=500)
    handler.gate.set()
    await asyncio.gather(going, *queued, *waiting)
    assert [name for group in handler.groups for name in group] == [b"first", b"queued", b"waiting", b"last"]
    await writer.stop()


async def test_a_queue_that_stays_full_refuses_with_a_delay(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "WRITE_QUEUE_WAIT_S", 0.05)
    writer = GroupWriter(handler, "t")
    first = await block(handler, writer)
    queued = await submit_all(writer, [b"1"], size=WRITE_QUEUE_BYTES_MAX - 10)
    with pytest.raises(Overloaded) as refused:
        await writer.submit(write(b"2"), 11)
    assert refused.value.retry_delay_ms > 0 and "nothing was written" in refused.value.message
    handler.gate.set()
    await asyncio.gather(first, *queued)
    assert handler.groups == [[b"first"], [b"1"]]
    # All room came back.
    await writer.submit(write(b"3"), WRITE_QUEUE_BYTES_MAX)
    await writer.stop()


async def test_one_that_leaves_the_wait_makes_way_for_the_smaller_one_behind(
    handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "WRITE_QUEUE_WAIT_S", 0.05)
    writer = GroupWriter(handler, "t")
    first = await block(handler, writer)
    queued = await submit_all(writer, [b"1"], size=WRITE_QUEUE_BYTES_MAX - 100)
    (large,) = await submit_all(writer, [b"large"], size=1_000)
    (small,) = await submit_all(writer, [b"small"], size=10)
    large.cancel()
    # Were it still waiting for room, it would be refused after its time.
    await asyncio.wait([small], timeout=0.2)
    handler.gate.set()
    await asyncio.gather(first, *queued, small)
    assert handler.groups == [[b"first"], [b"1"], [b"small"]]
    await writer.stop()


async def test_the_queue_is_bounded_in_count(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "WRITE_QUEUE_WAIT_S", 0.05)
    writer = GroupWriter(handler, "t")
    first = await block(handler, writer)
    tasks = await submit_all(writer, [b"x"] * (WRITE_QUEUE_COUNT_MAX - 1))
    with pytest.raises(Overloaded):
        await writer.submit(write(b"one too many"), 1)
    handler.gate.set()
    await asyncio.gather(first, *tasks)
    await writer.stop()


async def test_stopping_answers_what_was_queued_and_refuses_the_rest(handler: Handler) -> None:
    writer = GroupWriter(handler, "t")
    first = await block(handler, writer)
    queued = await submit_all(writer, [b"1"], size=WRITE_QUEUE_BYTES_MAX - 10)
    waiting = await submit_all(writer, [b"2"], size=1_000)
    stopping = asyncio.ensure_future(writer.stop())
    await asyncio.sleep(0)
    for late in (writer.submit(write(b"late"), 1), writer.run(lambda: None)):
        with pytest.raises(ShuttingDown):
            await late
    handler.gate.set()
    await stopping
    answers: list[WriteResult | BaseException] = await asyncio.gather(first, *queued, *waiting, return_exceptions=True)
    assert [isinstance(answer, KayosError) for answer in answers] == [False, False, True]
    assert handler.groups == [[b"first"], [b"1"]]
    await writer.stop()  # Again is harmless.
