"""Words on their way out: in order, none lost but signs of life that a newer one replaces."""

import asyncio

from kayos.server.outgoing import Outgoing
from kayos.stream.messages import Bye, Downward, Progress


def progress(seq: int) -> Progress:
    return Progress(1, 1, seq, {})


async def test_a_sign_of_life_gives_way_to_a_newer_one_but_never_overtakes() -> None:
    outgoing: Outgoing[Downward] = Outgoing()
    for seq in range(1, 1_000):
        outgoing.put(progress(seq))
    outgoing.put(Bye(1, 1, "over"))
    for seq in range(1_000, 2_000):
        outgoing.put(progress(seq))
    assert len(outgoing) == 3
    assert [await outgoing.take() for _ in range(3)] == [progress(999), Bye(1, 1, "over"), progress(1_999)]


async def test_who_waits_gets_the_next_word_or_hears_of_the_end() -> None:
    outgoing: Outgoing[Downward] = Outgoing()
    waiting = asyncio.ensure_future(outgoing.take())
    await asyncio.sleep(0)
    outgoing.put(progress(1))
    assert await waiting == progress(1)
    waiting = asyncio.ensure_future(outgoing.take())
    await asyncio.sleep(0)
    outgoing.close()
    assert await waiting is None


async def test_a_word_that_can_wait_goes_with_the_next_one_or_after_a_moment() -> None:
    outgoing: Outgoing[Downward] = Outgoing()
    waiting = asyncio.ensure_future(outgoing.take())
    await asyncio.sleep(0)
    outgoing.put(progress(1), can_wait=True)
    await asyncio.sleep(0)
    assert not waiting.done()
    outgoing.put(Bye(1, 1, "over"))
    assert await waiting == progress(1) and await outgoing.take() == Bye(1, 1, "over")
    outgoing.put(progress(2), can_wait=True)
    async with asyncio.timeout(5):
        assert await outgoing.take() == progress(2)
