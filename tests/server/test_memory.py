"""The shared budget of bytes, and the way out that ends clients which never read."""

import asyncio

import pytest

from kayos.errors import SnapshotExpired
from kayos.server import outlet as outlet_module
from kayos.server.memory import MemoryBudget
from kayos.server.outlet import Outlet


async def test_the_budget_is_never_exceeded_and_served_in_order() -> None:
    budget = MemoryBudget(10)
    order: list[int] = []

    async def use(number: int, size: int) -> None:
        async with budget.hold(size):
            order.append(number)
            assert budget.bytes_held <= 10
            await asyncio.sleep(0)

    # The third is small and would fit beside the first, but the second was there before.
    await asyncio.gather(use(1, 8), use(2, 8), use(3, 1), use(4, 9))
    assert order == [1, 2, 3, 4]
    assert (budget.bytes_held, budget.is_pressed) == (0, False)


async def test_a_hold_larger_than_the_budget_takes_all_of_it() -> None:
    budget = MemoryBudget(10)
    async with budget.hold(1_000) as hold:
        assert (hold.size, budget.bytes_held, budget.has_room(1)) == (10, 10, False)
    assert budget.bytes_held == 0


async def test_shrinking_lets_others_in() -> None:
    budget = MemoryBudget(10)
    async with budget.hold(10) as hold:
        waiting = asyncio.ensure_future(budget.take(4))
        await asyncio.sleep(0)
        assert budget.is_pressed and not waiting.done()
        hold.shrink(7)
        hold.shrink(6)
        hold.shrink(9)
        assert await waiting == 4
        assert budget.bytes_held == 10
    budget.give_back(4)
    assert budget.bytes_held == 0


async def test_a_waiter_that_leaves_gives_nothing_away_and_blocks_nobody() -> None:
    budget = MemoryBudget(10)
    taken = await budget.take(8)
    large = asyncio.ensure_future(budget.take(10))
    small = asyncio.ensure_future(budget.take(2))
    await asyncio.sleep(0)
    assert not small.done()
    large.cancel()
    assert await small == 2
    # One that is cancelled in the moment when it was served gives it back.
    late = asyncio.ensure_future(budget.take(10))
    await asyncio.sleep(0)
    budget.give_back(taken + 2)
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    assert budget.bytes_held == 0


async def test_a_slow_reader_is_waited_for_and_a_stalled_one_is_not() -> None:
    budget = MemoryBudget(10)
    release = asyncio.Event()
    sent: list[bytes] = []

    async def write(encoded: bytes) -> None:
        await release.wait()
        sent.append(encoded)

    patient = asyncio.ensure_future(Outlet(write, budget, stalled_s=20).send(b"slow"))
    with pytest.raises(SnapshotExpired, match="subscribe again from your mark"):
        await Outlet(write, budget, stalled_s=0.05).send(b"never")
    release.set()
    await patient
    assert sent == [b"slow"]


async def test_under_pressure_patience_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet_module, "STALLED_UNDER_PRESSURE_S", 0.05)
    budget = MemoryBudget(10)

    async def write(encoded: bytes) -> None:
        await asyncio.Event().wait()

    async with budget.hold(10):
        waiting = asyncio.ensure_future(budget.take(5))
        await asyncio.sleep(0)
        with pytest.raises(SnapshotExpired):
            await Outlet(write, budget, stalled_s=600).send(b"x")
    await waiting


async def test_an_error_of_the_connection_comes_through() -> None:
    async def write(encoded: bytes) -> None:
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await Outlet(write, MemoryBudget(1), stalled_s=20).send(b"x")
