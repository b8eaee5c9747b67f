"""The number that only rises, and those who wait for it."""

import asyncio

import pytest

from kayos.errors import ShuttingDown
from kayos.server.watermark import Watermark


async def test_waiters_wake_when_their_number_is_reached_and_not_before() -> None:
    mark = Watermark(5)
    await mark.wait_for(5)
    waits = {wanted: asyncio.ensure_future(mark.wait_for(wanted)) for wanted in (6, 8, 10)}
    await asyncio.sleep(0)
    for value, reached in ((5, set()), (7, {6}), (6, {6}), (10, {6, 8, 10})):
        mark.advance(value)
        await asyncio.sleep(0)
        assert {wanted for wanted, wait in waits.items() if wait.done()} == reached
    assert (mark.value, mark.waiters) == (10, 0)


async def test_a_later_waiter_for_less_is_not_forgotten() -> None:
    mark = Watermark()
    far, near = (asyncio.ensure_future(mark.wait_for(wanted)) for wanted in (100, 1))
    await asyncio.sleep(0)
    mark.advance(1)
    await near
    again = asyncio.ensure_future(mark.wait_for(50))
    await asyncio.sleep(0)
    mark.advance(50)
    await again
    assert not far.done()
    far.cancel()


async def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    mark = Watermark()
    waits = [asyncio.ensure_future(mark.wait_for(1)) for _ in range(3)]
    await asyncio.sleep(0)
    waits[0].cancel()
    await asyncio.gather(*waits[:1], return_exceptions=True)
    assert mark.waiters == 2
    mark.advance(1)
    await asyncio.gather(*waits[1:])


async def test_closing_ends_waits_of_now_and_later_with_the_first_reason() -> None:
    mark = Watermark()
    wait = asyncio.ensure_future(mark.wait_for(1))
    await asyncio.sleep(0)
    mark.close(ShuttingDown("first"))
    mark.close(ShuttingDown("second"))
    with pytest.raises(ShuttingDown, match="first"):
        await wait
    with pytest.raises(ShuttingDown, match="first"):
        await mark.wait_for(0)
