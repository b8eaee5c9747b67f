"""Pins: the same rows for every reader, before, during and after overwrites and a restart."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import google_crc32c
import grpc

from kayos.errors import FailedPrecondition, OutOfRange, PinNotFound, SnapshotExpired
from kayos.model.record import Record
from kayos.wire.codec import records_from_columns
from kayos.wire.v1 import log_pb2, types_pb2
from tests.nodes import NodeProcess
from tests.server.calls import TIMEOUT_S, Calls, error_of, shard


async def create_pin(calls: Calls, topic: str, pin_id: str = "", lease_ms: int = 0) -> types_pb2.Pin:
    request = log_pb2.CreatePinRequest(shard=shard(topic), pin_id=pin_id, lease_ms=lease_ms)
    return (await calls.CreatePin(request, timeout=TIMEOUT_S)).pin


async def read_pin(calls: Calls, topic: str, pin_id: str, **fields: Any) -> list[Record]:
    """The rows, with count and checksum verified."""
    records: list[Record] = []
    checksum = 0
    request = log_pb2.ReadPinRequest(shard=shard(topic), pin_id=pin_id, **fields)
    async for piece in calls.ReadPin(request, timeout=TIMEOUT_S):
        if piece.HasField("end"):
            assert (piece.end.count, piece.end.checksum) == (len(records), checksum)
            return records
        checksum = google_crc32c.extend(checksum, piece.columns)
        records += records_from_columns(piece.columns)
    raise AssertionError("the stream ended without its end")


async def pins_of(calls: Calls, topic: str) -> dict[str, types_pb2.Pin]:
    response = await calls.ListPins(log_pb2.ListPinsRequest(shard=shard(topic)), timeout=TIMEOUT_S)
    return {pin.pin_id: pin for pin in response.pins}


async def fill(calls: Calls, topic: str, count: int, value: bytes) -> None:
    for start in range(0, count, 1_000):
        await calls.put(topic, {b"k%05d" % key: value for key in range(start, min(count, start + 1_000))})


async def test_a_reader_who_knows_of_a_pin_waits_until_it_is_known_here(calls: Calls, topic: str) -> None:
    """As at a tail that is behind the one at which the pin was seen."""
    last_seq = (await calls.put(topic, {b"a": b"1"})).last_seq
    reading = asyncio.ensure_future(read_pin(calls, topic, "soon", min_seq=last_seq + 1))
    await calls.status(topic)
    assert (await create_pin(calls, topic, "soon")).seq == last_seq + 1
    assert [record.value for record in await reading] == [b"1"]


async def test_a_pin_gives_the_same_rows_before_during_and_after_overwrites(calls: Calls, topic: str) -> None:
    await fill(calls, topic, 2_000, b"old")
    await calls.delete(topic, b"k00007")
    pin = await create_pin(calls, topic)
    before = await read_pin(calls, topic, pin.pin_id)
    assert len(before) == 1_999 and {record.value for record in before} == {b"old"}

    async def overwrite() -> None:
        for revision in range(10):
            await fill(calls, topic, 2_000, b"new %d" % revision)
        await calls.delete(topic, *(b"k%05d" % key for key in range(0, 2_000, 2)))

    writing = asyncio.ensure_future(overwrite())
    while not writing.done():
        assert await read_pin(calls, topic, pin.pin_id, batch_bytes=10_000) == before
    await writing
    assert await read_pin(calls, topic, pin.pin_id) == before
    with_tombstones = await read_pin(calls, topic, pin.pin_id, tombstones=True)
    assert [record.key for record in with_tombstones if record.kind == 2] == [b"k00007"]


async def test_ranges_read_in_parallel_are_the_whole(calls: Calls, topic: str) -> None:
    await fill(calls, topic, 3_000, b"v" * 50)
    pin = await create_pin(calls, topic)
    await fill(calls, topic, 1_500, b"newer")
    cuts = [0, 1, 700, 1_500, 2_999, pin.seq]
    ranges = [{"after_seq": after, "end_seq": end} for after, end in pairwise(cuts)]
    parts = await asyncio.gather(*(read_pin(calls, topic, pin.pin_id, **part, batch_bytes=5_000) for part in ranges))
    whole = await read_pin(calls, topic, pin.pin_id)
    assert [record for part in parts for record in part] == whole and len(whole) == 3_000
    assert await read_pin(calls, topic, pin.pin_id, after_seq=pin.seq, end_seq=pin.seq) == []
    for wrong in ({"after_seq": pin.seq + 1}, {"end_seq": pin.seq + 1}, {"after_seq": 5, "end_seq": 4}):
        code, error = await error_of(read_pin(calls, topic, pin.pin_id, **wrong))
        assert code is grpc.StatusCode.OUT_OF_RANGE and isinstance(error, OutOfRange)


async def test_a_pin_survives_a_restart_of_the_node(tmp_path: Path) -> None:
    with NodeProcess.start(tmp_path / "data") as node:
        async with Calls(node.address) as calls:
            await calls.create_topic("t")
            await fill(calls, "t", 500, b"old")
            await create_pin(calls, "t", "backup")
            before = await read_pin(calls, "t", "backup")
            await fill(calls, "t", 500, b"new")
        node.kill()
    with NodeProcess.start(tmp_path / "data") as node:
        async with Calls(node.address) as calls:
            assert await read_pin(calls, "t", "backup") == before
            await fill(calls, "t", 500, b"newest")
            assert await read_pin(calls, "t", "backup") == before


async def test_renewed_it_lives_on_and_its_lease_ended_it_is_expired(calls: Calls, topic: str) -> None:
    await fill(calls, topic, 10, b"old")
    short = await create_pin(calls, topic, "short", lease_ms=1_000)
    kept = await create_pin(calls, topic, "kept", lease_ms=1_000)
    assert short.lease_until_ms == short.created_ms + 1_000
    request = log_pb2.RenewPinRequest(shard=shard(topic), pin_id="kept", lease_ms=60_000)
    renewed = (await calls.RenewPin(request, timeout=TIMEOUT_S)).pin
    assert renewed.lease_until_ms > kept.lease_until_ms + 50_000
    await fill(calls, topic, 10, b"new")
    while not (await pins_of(calls, topic))["short"].ended:
        assert len(await read_pin(calls, topic, "kept")) == 10
    assert (await pins_of(calls, topic))["short"].ended == "lease ended"
    code, error = await error_of(read_pin(calls, topic, "short"))
    assert code is grpc.StatusCode.ABORTED and isinstance(error, SnapshotExpired)
    request.pin_id = "short"
    _, error = await error_of(calls.RenewPin(request, timeout=TIMEOUT_S))
    assert isinstance(error, SnapshotExpired)
    assert {record.value for record in await read_pin(calls, topic, "kept")} == {b"old"}


async def test_released_its_rows_are_freed(calls: Calls, topic: str) -> None:
    await fill(calls, topic, 100, b"old")
    await create_pin(calls, topic, "p")
    await fill(calls, topic, 100, b"new")
    assert (await calls.status(topic)).retained == 100
    await calls.ReleasePin(log_pb2.ReleasePinRequest(shard=shard(topic), pin_id="p"), timeout=TIMEOUT_S)
    while (await calls.status(topic)).retained:
        pass
    code, error = await error_of(read_pin(calls, topic, "p"))
    assert code is grpc.StatusCode.ABORTED and isinstance(error, SnapshotExpired)
    code, error = await error_of(create_pin(calls, topic, "p"))
    assert code is grpc.StatusCode.FAILED_PRECONDITION and isinstance(error, FailedPrecondition)


async def test_an_unknown_pin_is_not_found(calls: Calls, topic: str) -> None:
    for call in (
        read_pin(calls, topic, "nobody"),
        calls.RenewPin(log_pb2.RenewPinRequest(shard=shard(topic), pin_id="nobody"), timeout=TIMEOUT_S),
        calls.ReleasePin(log_pb2.ReleasePinRequest(shard=shard(topic), pin_id="nobody"), timeout=TIMEOUT_S),
    ):
        code, error = await error_of(call)
        assert code is grpc.StatusCode.NOT_FOUND and isinstance(error, PinNotFound)


async def test_over_the_budget_the_oldest_pin_ends_and_the_file_stays_bounded(tmp_path: Path) -> None:
    """A consumer sleeps in the middle of a snapshot (from a shared pin) while its keys are overwritten."""
    budget = 2 << 20
    with NodeProcess.start(
        tmp_path / "data",
        maintenance_interval_s=0.02,
        pin_retained_bytes_max=budget,
        snapshot_copy_bytes_max=256 * 1024,
        map_bytes=1 << 30,
    ) as node:
        async with Calls(node.address) as calls, Calls(node.address) as sleeper:
            await calls.create_topic("t")
            await fill(calls, "t", 10_000, b"v" * 400)
            request = log_pb2.SubscribeRequest(shard=shard("t"), after_seq=0, batch_bytes=16 * 1024)
            events = aiter(sleeper.Subscribe(request, timeout=60))
            assert (await anext(events)).HasField("begin")
            resident = node.resident_bytes()
            sizes = []
            for revision in range(15):
                await fill(calls, "t", 10_000, b"%0400d" % revision)
                sizes.append((await calls.status("t")).file_bytes)
            assert (await calls.status("t")).retained_bytes <= budget
            pins = await pins_of(calls, "t")
            assert {pin.ended for pin in pins.values()} == {"retained bytes over budget"}
            # 10,000 keys take 5 MB; 150,000 overwrites wrote 75 MB.
            assert max(sizes) < 40 << 20, sizes
            assert node.resident_bytes() - resident < 60 << 20
            code, error = await error_of(events)
            assert code is grpc.StatusCode.ABORTED and isinstance(error, SnapshotExpired)
            # From its mark (here the beginning) it gets all of it.
            contents = await calls.contents("t")
            assert len(contents) == 10_000 and set(contents.values()) == {b"%0400d" % 14}
