"""One shard in this process: epochs, recovery after a failed commit, shared pins, the end."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from kayos.errors import (
    DamagedStore,
    InternalError,
    KayosError,
    StaleEpoch,
    TopicNotFound,
    Unavailable,
    WriteUnknown,
)
from kayos.limits import PIN_LEASE_MS_DEFAULT
from kayos.model.chain import ChainView, Member
from kayos.model.control import CommitMark, CreatePin
from kayos.model.mark import Mark
from kayos.model.record import Record
from kayos.server import shared_pin as shared_pin_module
from kayos.server.shard import Shard
from tests.server.shards import open_shard, put

TIMEOUT_S = 20.0


async def test_a_request_names_the_current_epoch_or_none(tmp_path: Path) -> None:
    async with open_shard(tmp_path / "store") as shard:
        shard.adopt(ChainView(5, (Member("n"),)), shard.addresses)
        shard.check_epoch(0)
        shard.check_epoch(5)
        with pytest.raises(StaleEpoch, match="fetch the view") as stale:
            shard.check_epoch(4)
        assert stale.value.number("epoch") == 5
        with pytest.raises(Unavailable, match="send again") as future:
            shard.check_epoch(6)
        assert future.value.retry_delay_ms > 0


async def accepted(shard: Shard, values: dict[bytes, bytes]) -> int:
    """Retry while the answer is a retryable one."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                return await put(shard, values)
            except KayosError as error:
                if not error.retryable:
                    raise


async def read_patiently(shard: Shard, key: bytes) -> Record | None:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                return await shard.read(shard.store.get, key)
            except Unavailable:
                await asyncio.sleep(0)


class Broken:
    """The store, whose next commits raise."""

    def __init__(self, store: Any, *errors: Exception) -> None:
        self._commit = store.commit
        self._errors = list(errors)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self._errors:
            raise self._errors.pop(0)
        return self._commit(*arguments, **options)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (WriteUnknown("the disk said no"), WriteUnknown),
        (DamagedStore("LMDB said no"), DamagedStore),
        (RuntimeError("a bug with a secret"), InternalError),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
async def test_after_a_failed_commit_the_store_is_reopened_and_a_new_history_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, told: type[KayosError]
) -> None:
    async with open_shard(tmp_path / "store") as shard:
        await put(shard, {b"a": b"1"})
        history_id = shard.state.takeover.current_history_id
        monkeypatch.setattr(shard.store, "commit", Broken(shard.store, failure))
        with pytest.raises(told) as refused:
            await put(shard, {b"a": b"2"})
        assert "secret" not in refused.value.message
        assert shard.problem
        # Reads go on (or are told to try again); the next write finds a store that was verified and taken over anew.
        found = await read_patiently(shard, b"a")
        assert found is not None and found.value == b"1"
        await accepted(shard, {b"a": b"3"})
        assert shard.problem == ""
        assert shard.state.takeover.current_history_id != history_id


async def test_work_that_fails_on_the_disk_does_not_leave_the_shard_stuck(tmp_path: Path) -> None:
    async with open_shard(tmp_path / "store") as shard:

        def fail() -> None:
            raise WriteUnknown("the disk said no")

        with pytest.raises(WriteUnknown):
            await shard.run_in_writer(fail)
        await accepted(shard, {b"a": b"1"})


async def test_a_store_found_damaged_takes_no_writes_ever_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_shard(tmp_path / "store") as shard:
        await put(shard, {b"a": b"v" * 500})
        (file,) = (tmp_path / "store").glob("*/data.mdb")
        content = file.read_bytes()
        descriptor = os.open(file, os.O_WRONLY)
        os.pwrite(descriptor, b"?", content.index(b"v" * 500) + 100)
        os.close(descriptor)
        monkeypatch.setattr(shard.store, "commit", Broken(shard.store, WriteUnknown("the disk said no")))
        with pytest.raises(WriteUnknown):
            await put(shard, {b"b": b"1"})
        for _ in range(2):
            with pytest.raises(DamagedStore):
                await put(shard, {b"b": b"1"})
        assert shard.problem


async def test_who_reads_or_writes_a_closed_shard_hears_why(tmp_path: Path) -> None:
    async with open_shard(tmp_path / "store") as shard:
        waiting = asyncio.ensure_future(shard.wait_for_seq(9))
        await asyncio.sleep(0)
        await shard.close(TopicNotFound("topic 't' was deleted"))
        for call in (
            waiting,
            put(shard, {b"a": b"1"}),
            shard.read(shard.store.get, b"a"),
            shard.control(CreatePin("p", 1)),
        ):
            with pytest.raises(TopicNotFound, match="was deleted"):
                await call


async def test_closing_waits_for_what_runs_in_the_background(tmp_path: Path) -> None:
    async with open_shard(tmp_path / "store") as shard:
        release, ended = asyncio.Event(), []

        async def work() -> None:
            await release.wait()
            # The store is still open.
            ended.append(shard.store.usage().messages)

        shard.start_background(work())
        closing = asyncio.ensure_future(shard.close(TopicNotFound("gone")))
        await asyncio.sleep(0)
        release.set()
        await closing
        assert ended == [0]


async def test_a_shared_pin_lives_while_it_is_used_and_ends_when_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_pin_module, "SHARED_PIN_IDLE_S", 0.05)
    monkeypatch.setattr(shared_pin_module, "SHARED_PIN_INTERVAL_S", 0.2)
    monkeypatch.setattr(shared_pin_module, "_RENEW_S", 0.1)
    async with open_shard(tmp_path / "store") as shard:
        await put(shard, {b"a": b"1"})
        async with shard.shared_pins.use(above_seq=0) as pin, shard.shared_pins.use(above_seq=0) as same:
            assert same is pin
            lease_ms = find_pin(shard, pin.pin_id).lease_until_ms
            async with asyncio.timeout(TIMEOUT_S):
                while find_pin(shard, pin.pin_id).lease_until_ms == lease_ms:
                    await put(shard, {b"a": b"2"})
            assert not find_pin(shard, pin.pin_id).ended
            assert lease_ms >= find_pin(shard, pin.pin_id).created_ms + PIN_LEASE_MS_DEFAULT
            # Whoever needs what came later gets a newer one, but not sooner than the interval allows.
            async with shard.shared_pins.use(above_seq=pin.seq) as newer:
                assert newer.seq > pin.seq
                assert newer.created_at - pin.created_at >= 0.2
        async with asyncio.timeout(TIMEOUT_S):
            while not all(find_pin(shard, used.pin_id).ended for used in (pin, newer)):
                await put(shard, {b"a": b"3"})
        assert find_pin(shard, pin.pin_id).ended == "no reader left"


def find_pin(shard: Shard, pin_id: str) -> Any:
    found = shard.store.find_pin(pin_id)
    assert found is not None
    return found


async def test_a_storm_of_leaving_users_makes_one_shared_pin(tmp_path: Path) -> None:
    async with open_shard(tmp_path / "store") as shard:
        await put(shard, {b"a": b"1"})

        async def use() -> None:
            async with shard.shared_pins.use(above_seq=0):
                await asyncio.Event().wait()

        for _ in range(20):
            user = asyncio.ensure_future(use())
            await asyncio.sleep(0)
            user.cancel()
            await asyncio.gather(user, return_exceptions=True)
        async with shard.shared_pins.use(above_seq=0):
            assert len(shard.store.list_pins()) <= 2


async def test_a_mark_wakes_nobody_who_waits_for_messages(tmp_path: Path) -> None:
    """Else two idle consumers that commit would wake each other for ever."""
    async with open_shard(tmp_path / "store") as shard:
        last_seq = await put(shard, {b"a": b"1"})
        mark = Mark(shard.state.takeover.current_history_id, last_seq)
        waiting = asyncio.ensure_future(shard.messages.wait_for(last_seq + 1))
        for consumer in ("one", "two", "one"):
            await shard.control(CommitMark(consumer, mark))
        assert shard.visible.value == last_seq + 3
        assert not waiting.done() and shard.messages.waiters == 1
        await put(shard, {b"a": b"2"})
        await waiting
