"""Getting a store back: tried until it works, also when the new life breaks while it begins."""

import asyncio

import pytest

from kayos.errors import DamagedStore, StoreFull
from kayos.server import recovery as recovery_module
from kayos.server.logs import get_log
from kayos.server.recovery import Recovery

TIMEOUT_S = 10.0


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_module, "REOPEN_DELAY_S_MIN", 0.001)


async def test_it_is_tried_until_it_works_and_once_more_when_the_new_life_breaks_at_once() -> None:
    tries = 0
    whole = asyncio.Event()

    async def reopen() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StoreFull("no room")
        recovery.problem = ""
        if tries == 2:
            recovery.begin("the takeover failed on the disk")
        else:
            whole.set()

    recovery = Recovery(get_log(), reopen)
    recovery.begin("a commit failed")
    async with asyncio.timeout(TIMEOUT_S):
        await whole.wait()
        await recovery.wait()
    assert tries == 3 and recovery.problem == "" and recovery.damage is None


async def test_damage_is_final() -> None:
    async def reopen() -> None:
        raise DamagedStore("a flipped bit")

    recovery = Recovery(get_log(), reopen)
    recovery.begin("a commit failed")
    async with asyncio.timeout(TIMEOUT_S):
        await recovery.wait()
    assert recovery.damage is not None and recovery.problem == "a flipped bit"
