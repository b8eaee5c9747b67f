"""Housekeeping on a running node: ages, trims, purges, forgotten producers, compaction beside the work."""

import asyncio
from pathlib import Path

import grpc

from kayos.errors import OutOfRange, ResetRequired, WrongMode
from kayos.limits import PRODUCER_RETENTION_MS
from kayos.model.control import ForgetProducers
from kayos.model.producer import ProducerStamp
from kayos.server.maintenance import ProducerClock
from kayos.wire.v1 import cluster_pb2, log_pb2
from tests.nodes import NodeProcess
from tests.server.calls import TIMEOUT_S, Calls, apply, error_of
from tests.server.shards import open_shard, put


async def test_keyed_messages_past_max_age_become_tombstones_and_then_nothing(calls: Calls) -> None:
    await calls.create_topic("aging", retention=cluster_pb2.Retention(max_age_ms=200, tombstone_ms=1))
    await calls.put("aging", {b"a": b"1"})
    await calls.append("aging", b"unkeyed")
    kinds = []
    async for snapshot in calls.subscribe("aging", after_seq=0):
        kinds += [(record.kind, record.key) for record in snapshot.records]
        if (2, b"a") in kinds:
            break
    assert kinds == [(1, b"a"), (1, b""), (2, b"a")]
    while (await calls.status("aging")).messages:
        pass
    assert await calls.contents("aging") == {}
    # What is written later is not touched by what was removed.
    await calls.put("aging", {b"a": b"2"})
    assert await calls.contents("aging") == {b"a": b"2"}


async def test_a_log_keeps_at_most_so_many_messages(calls: Calls) -> None:
    await calls.create_topic("counted", mode=2, retention=cluster_pb2.Retention(max_messages=10))
    for number in range(5):
        await calls.append("counted", *(b"%d" % (number * 20 + step) for step in range(20)))
    while (await calls.status("counted")).messages > 10:
        pass
    (snapshot,) = await calls.read_all("counted")
    assert [record.value for record in snapshot.records] == [b"%d" % number for number in range(90, 100)]


async def test_a_log_keeps_at_most_so_many_bytes(calls: Calls) -> None:
    await calls.create_topic("weighed", mode=2)
    await calls.append("weighed", *([b"v" * 1_000] * 50))
    request = cluster_pb2.AlterTopicRequest(name="weighed", max_bytes=10_300)
    await calls.AlterTopic(request, timeout=TIMEOUT_S)
    while (status := await calls.status("weighed")).message_bytes > 10_300:
        pass
    assert status.messages == 10


async def test_a_log_forgets_what_is_too_old(calls: Calls) -> None:
    await calls.create_topic("dated", mode=2, retention=cluster_pb2.Retention(max_age_ms=100))
    written = await calls.append("dated", b"1", b"2")
    while (await calls.status("dated")).messages:
        pass
    request = log_pb2.SubscribeRequest(shard=log_pb2.ShardRef(topic="dated"), after_seq=1)
    code, error = await error_of(calls.Subscribe(request, timeout=TIMEOUT_S))
    assert code is grpc.StatusCode.ABORTED and isinstance(error, ResetRequired)
    assert (await calls.append("dated", b"3")).first_seq > written.last_seq


async def test_an_operator_trims_a_log_and_only_a_log(calls: Calls, topic: str, log_topic: str) -> None:
    await calls.append(log_topic, b"1", b"2", b"3")
    request = cluster_pb2.TrimShardRequest(topic=log_topic, through_seq=2)
    assert (await calls.TrimShard(request, timeout=TIMEOUT_S)).through_seq == 2
    assert await calls.contents(log_topic) == {b"": b"3"}
    request.through_seq = 1_000
    code, error = await error_of(calls.TrimShard(request, timeout=TIMEOUT_S))
    assert code is grpc.StatusCode.OUT_OF_RANGE and isinstance(error, OutOfRange)
    await calls.append(topic, b"1")
    request = cluster_pb2.TrimShardRequest(topic=topic, through_seq=1)
    code, error = await error_of(calls.TrimShard(request, timeout=TIMEOUT_S))
    assert code is grpc.StatusCode.FAILED_PRECONDITION and isinstance(error, WrongMode)


async def test_producers_idle_for_long_are_forgotten(tmp_path: Path) -> None:
    clock = ProducerClock()
    async with open_shard(tmp_path / "store") as shard:
        await put(shard, {b"a": b"1"}, producer=ProducerStamp(b"idle", 0, 1))
        assert clock.find_idle_seq(0, shard.state.high_seq) == 0
        await put(shard, {b"a": b"2"}, producer=ProducerStamp(b"busy", 0, 1))
        assert clock.find_idle_seq(PRODUCER_RETENTION_MS - 1, shard.state.high_seq) == 0
        idle_seq = clock.find_idle_seq(PRODUCER_RETENTION_MS, shard.state.high_seq)
        assert idle_seq == 1
        await shard.control(ForgetProducers(idle_seq))
        assert shard.store.find_producer(b"idle") is None
        assert shard.store.find_producer(b"busy") is not None


async def test_compaction_beside_writers_and_readers_loses_nothing(tmp_path: Path) -> None:
    with NodeProcess.start(tmp_path / "data", map_bytes=1 << 30, snapshot_copy_bytes_max=256 * 1024) as node:
        async with Calls(node.address) as calls:
            await calls.create_topic("t")
            for start in range(0, 20_000, 2_000):
                await calls.put("t", {b"k%05d" % key: b"v" * 300 for key in range(start, start + 2_000)})
            await calls.delete("t", *(b"k%05d" % key for key in range(4_000, 20_000)))
            compacted = asyncio.Event()
            written: dict[bytes, bytes] = {}
            followed: dict[bytes, bytes] = {}

            async def write() -> int:
                number = last = 0
                while not compacted.is_set():
                    number += 1
                    values = {b"k%05d" % (number % 4_000): b"w%d" % number}
                    last = (await calls.put("t", values)).last_seq
                    written.update(values)
                return last

            async def follow(writing: "asyncio.Future[int]") -> None:
                async for snapshot in calls.subscribe("t", after_seq=0, timeout=60):
                    apply(followed, snapshot)
                    if writing.done() and snapshot.end_seq >= writing.result():
                        return

            writing = asyncio.ensure_future(write())
            following = asyncio.ensure_future(follow(writing))
            request = cluster_pb2.CompactShardRequest(topic="t")
            first = await calls.CompactShard(request, timeout=60)
            # Two callers share one compaction, and one that leaves does not cut it off.
            leaving = calls.CompactShard(request, timeout=60)
            staying = calls.CompactShard(request, timeout=60)
            leaving.cancel()
            await staying
            compacted.set()
            await asyncio.gather(writing, following)
            assert first.bytes_after < first.bytes_before / 2
            contents = await calls.contents("t")
            assert len(contents) == 4_000 and contents == followed
            assert {key: contents[key] for key in written} == written
            assert (await calls.status("t")).problem == ""
            assert len(list((tmp_path / "data" / "shards").glob("*/*/data.mdb"))) == 1
        assert node.stop() == 0
    # And what is on the disk is that, too.
    with NodeProcess.start(tmp_path / "data", map_bytes=1 << 30) as node:
        async with Calls(node.address) as calls:
            assert await calls.contents("t") == followed
