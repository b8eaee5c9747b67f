"""Consuming from a real node: snapshots and their boundaries, marks, starts, shards, pins."""

import asyncio
from typing import Any

import pytest

from kayos import Mark, Start
from kayos.errors import (
    FailedPrecondition,
    InvalidArgument,
    MarkBackwards,
    MarkNotFound,
    OutOfRange,
    PinNotFound,
    ResetRequired,
    SnapshotExpired,
)


async def values_of(messages: Any) -> list[bytes | None]:
    return [message.value async for message in messages]


async def consume_all(client: Any, topic: str, consumer: str | None = None, **options: Any) -> list[bytes | None]:
    """What one run to the end gives; each snapshot is committed when there is a consumer."""
    found: list[bytes | None] = []
    async for snapshot in client.consume(topic, consumer, stop_at_end=True, **options):
        found += await values_of(snapshot)
        if consumer:
            await snapshot.commit()
    return found


async def fill(client: Any, topic: str, *values: bytes) -> list[Any]:
    return [await client.produce(topic, value) for value in values]


# Snapshots


async def test_a_snapshot_holds_the_newest_revision_of_each_key(client: Any, topic: str) -> None:
    for value in (b"1", b"2", b"3"):
        await client.produce(topic, value, key=b"a")
        await client.produce(topic, value, key=b"b")
    async with client.consume(topic, "dw") as consumer:
        snapshot = await anext(consumer)
        found = [message async for message in snapshot]
        assert [(message.seq, message.key, message.value) for message in found] == [(5, b"a", b"3"), (6, b"b", b"3")]
        assert (snapshot.topic, snapshot.shard, snapshot.start_seq, snapshot.end_seq) == (topic, 0, 0, 6)
        assert (snapshot.mark.seq, snapshot.mark.snapshot_end_seq) == (6, 6)
        await client.delete(topic, b"a")
        later = await anext(consumer)
        assert [(message.key, message.value) async for message in later] == [(b"a", None)]
        assert later.start_seq == 6


async def test_a_boundary_is_there_only_when_all_was_read(client: Any, topic: str) -> None:
    await fill(client, topic, b"1", b"2")
    async with client.consume(topic, "dw") as consumer:
        snapshot = await anext(consumer)
        for refused in (lambda: snapshot.mark, snapshot.commit):
            with pytest.raises(FailedPrecondition, match="not read to its end"):
                result = refused()
                await result
        async for message in snapshot:
            assert message.value == b"1"
            break
        with pytest.raises(FailedPrecondition, match="read it before the next one"):
            await anext(consumer)
        # The loop that was left goes on where it was.
        assert await values_of(snapshot) == [b"2"]
        assert snapshot.is_whole
        await snapshot.commit()
        assert await values_of(snapshot) == []


async def test_a_consumer_resumes_at_its_mark(client: Any, topic: str) -> None:
    await fill(client, topic, b"1", b"2")
    assert await consume_all(client, topic, "dw") == [b"1", b"2"]
    assert await consume_all(client, topic, "dw") == []
    await fill(client, topic, b"3")
    assert await consume_all(client, topic, "dw") == [b"3"]
    assert await consume_all(client, topic, "another") == [b"1", b"2", b"3"]


async def test_without_a_commit_everything_comes_again(client: Any, topic: str) -> None:
    await fill(client, topic, b"1")
    for _ in range(2):
        async with client.consume(topic, "dw") as consumer:
            assert await values_of(await anext(consumer)) == [b"1"]


async def test_a_commit_needs_a_consumer(client: Any, topic: str) -> None:
    await fill(client, topic, b"1")
    async with client.consume(topic) as consumer:
        snapshot = await anext(consumer)
        await values_of(snapshot)
        with pytest.raises(InvalidArgument, match="give consumer="):
            await snapshot.commit()


async def test_a_mark_that_the_consumer_keeps_itself(client: Any, topic: str) -> None:
    await fill(client, topic, b"1", b"2")
    kept: dict[int, Mark] = {}
    for expected in ([b"1", b"2"], [b"3"]):
        async with client.consume(topic, start=Start.mark(kept)) as consumer:
            snapshot = await anext(consumer)
            assert await values_of(snapshot) == expected
            kept[snapshot.shard] = snapshot.mark
        await fill(client, topic, b"3")
    assert await client.marks.list(topic) == []


async def test_a_mark_of_a_strange_history_is_told_to_reset(client: Any, topic: str) -> None:
    await fill(client, topic, b"1")
    with pytest.raises(ResetRequired):
        await consume_all(client, topic, start=Start.mark({0: Mark(bytes(16), 1)}))


async def test_a_large_snapshot_comes_in_batches_and_is_one_boundary(client: Any, topic: str) -> None:
    count = 20_000
    await (await client.send_many(topic, None, [b"%0200d" % number for number in range(count)]))
    async with client.consume(topic, "dw") as consumer:
        snapshot = await anext(consumer)
        sizes = []
        expected = 0
        async for batch in snapshot.batches():
            sizes.append(len(batch))
            assert [int(message.value) for message in batch] == list(range(expected, expected + len(batch)))
            expected += len(batch)
        assert len(sizes) > 3
        assert (expected, snapshot.mark.seq >= count) == (count, True)


async def test_invariants_over_two_keys_hold_at_every_boundary(client: Any, topic: str) -> None:
    """Writers move amounts between x and y; no consumer ever sees them not add up."""

    async def move_amounts() -> None:
        for amount in range(60):
            async with client.transaction(topic) as transaction:
                transaction.put(b"x", b"%d" % amount)
                transaction.put(b"y", b"%d" % (100 - amount))

    writing = asyncio.ensure_future(move_amounts())
    state: dict[bytes, int] = {}
    async with client.consume(topic) as consumer:
        while state.get(b"x") != 59:
            async for message in await anext(consumer):
                state[message.key] = int(message.value)
            assert state[b"x"] + state[b"y"] == 100
    await writing


# Where to begin


async def test_every_way_to_begin(client: Any, topic: str) -> None:
    first, second, third = await fill(client, topic, b"1", b"2", b"3")
    await client.marks.set(topic, "dw", {0: Mark(second.history_id, second.seq, second.seq, second.seq)})
    cases = [
        (Start.beginning(), None, [b"1", b"2", b"3"]),
        (Start.after(first.seq), None, [b"2", b"3"]),
        (Start.after(third.seq), None, []),
        (Start.time(0), None, [b"1", b"2", b"3"]),
        (Start.time(third.timestamp + 60_000), None, []),
        (Start.latest(), None, []),
        (Start.consumer_mark(), "dw", [b"3"]),
        (None, "dw", [b"3"]),
        (Start.mark({0: Mark(first.history_id, first.seq)}), None, [b"2", b"3"]),
    ]
    for start, consumer, expected in cases:
        found: list[bytes | None] = []
        async for snapshot in client.consume(topic, consumer, start=start, stop_at_end=True):
            found += await values_of(snapshot)
        assert found == expected, start


async def test_a_start_by_time_begins_with_the_first_message_of_that_time(client: Any, topic: str) -> None:
    (early,) = await fill(client, topic, b"early")
    late = early
    while late.timestamp == early.timestamp:
        (late,) = await fill(client, topic, b"late")
    found = [m async for m in client.messages(topic, start=Start.time(late.timestamp), stop_at_end=True)]
    assert found[-1].seq == late.seq
    assert all(message.timestamp >= late.timestamp for message in found)


async def test_latest_is_when_the_block_is_entered(client: Any, topic: str) -> None:
    await fill(client, topic, b"before")
    async with client.consume(topic, start=Start.latest()) as consumer:
        await fill(client, topic, b"after")
        assert await values_of(await anext(consumer)) == [b"after"]


async def test_a_sequence_beyond_the_end_is_refused(client: Any, topic: str) -> None:
    await fill(client, topic, b"1")
    with pytest.raises(OutOfRange):
        await consume_all(client, topic, start=Start.after(1_000))


# Message by message


async def test_message_by_message_with_a_mark_behind_each(client: Any, topic: str) -> None:
    await fill(client, topic, b"1", b"2", b"3")
    async with client.messages(topic, "worker") as consumer:
        async for message in consumer:
            if message.value == b"2":
                await consumer.commit(message)
                break
        # Leaving the loop lost nothing.
        async for message in consumer:
            assert message.value == b"3"
            break
        (waiting,) = await fill(client, topic, b"4")
        async for message in consumer:
            assert (message.value, message.seq) == (b"4", waiting.seq)
            break
    assert (await client.marks.get(topic, "worker"))[0].mark.seq == 2
    resumed = client.messages(topic, "worker", stop_at_end=True)
    assert await values_of(resumed) == [b"3", b"4"]
    batches = [batch async for batch in client.messages(topic, "worker", stop_at_end=True).batches()]
    assert [message.value for batch in batches for message in batch] == [b"3", b"4"]


async def test_a_message_of_somebody_else_cannot_be_committed(client: Any, topic: str) -> None:
    await fill(client, topic, b"1")
    async with client.messages(topic, "worker") as consumer:
        async for message in consumer:
            with pytest.raises(FailedPrecondition, match="was not given by this consumer"):
                await consumer.commit(message._replace(seq=77))
            break


# Several shards


async def test_several_shards_have_their_own_snapshots_and_marks(client: Any, sharded: str) -> None:
    keys = [b"key-%d" % number for number in range(40)]
    await (await client.send_many(sharded, keys, [b"v"] * 40))
    seen: dict[int, set[bytes]] = {}
    async for snapshot in client.consume(sharded, "dw", stop_at_end=True):
        seen.setdefault(snapshot.shard, set()).update([message.key async for message in snapshot])
        await snapshot.commit()
    assert set(seen) == {0, 1, 2, 3}
    assert sorted(key for found in seen.values() for key in found) == sorted(keys)
    infos = await client.marks.list(sharded)
    assert [(info.consumer, info.shard) for info in infos] == [("dw", shard) for shard in range(4)]
    chosen = {message.shard async for message in client.messages(sharded, shards=[2, 0], stop_at_end=True)}
    assert chosen == {0, 2}
    with pytest.raises(InvalidArgument, match="has no shard 4"):
        await consume_all(client, sharded, shards=[4])


async def test_a_waiting_consumer_of_many_shards_is_woken_by_any(client: Any, sharded: str) -> None:
    async with client.consume(sharded, "dw", start=Start.latest()) as consumer:
        for number in range(12):
            sent = await client.produce(sharded, b"%d" % number, key=b"key-%d" % number)
            snapshot = await anext(consumer)
            assert snapshot.shard == sent.shard
            assert await values_of(snapshot) == [b"%d" % number]
            await snapshot.commit()


# Marks


async def test_the_lag_counts_messages_and_not_the_marks_themselves(client: Any, topic: str) -> None:
    """A mark is a control record with a sequence of its own; a consumer that has all lags by nothing."""
    await fill(client, topic, b"1", b"2", b"3")
    await consume_all(client, topic, "dw")
    assert [info.lag for info in await client.marks.list(topic)] == [0]
    await fill(client, topic, b"4")
    (info,) = await client.marks.list(topic)
    assert info.lag == info.message_seq - 3 > 0


async def test_marks_are_listed_set_and_reset(client: Any, topic: str) -> None:
    sent = await fill(client, topic, b"1", b"2", b"3")
    await consume_all(client, topic, "dw")
    info = (await client.marks.get(topic, "dw"))[0]
    assert (info.mark.seq, info.consumer, info.lag) == (3, "dw", 0)
    with pytest.raises(MarkBackwards):
        await client.marks.set(topic, "dw", {0: Mark(sent[0].history_id, 1)})
    (change,) = await client.marks.reset(topic, "dw", seq=1, dry_run=True)
    assert (change.before.seq, change.after.seq) == (3, 1)
    assert await consume_all(client, topic, "dw") == []
    await client.marks.reset(topic, "dw", seq=1)
    assert await consume_all(client, topic, "dw") == [b"2", b"3"]
    await client.marks.reset(topic, "dw", seq=0)
    assert await consume_all(client, topic, "dw") == [b"1", b"2", b"3"]
    await client.marks.reset(topic, "dw", time_ms=0)
    await client.marks.reset(topic, "dw", latest=True)
    assert await consume_all(client, topic, "dw") == []
    await client.marks.reset(topic, "dw", drop=True)
    with pytest.raises(MarkNotFound):
        await client.marks.get(topic, "dw")
    with pytest.raises(InvalidArgument, match="exactly one"):
        await client.marks.reset(topic, "dw", seq=1, latest=True)


# Pins


async def test_a_pin_is_read_in_ranges_in_parallel_and_never_changes(client: Any, sharded: str) -> None:
    keys = [b"key-%d" % number for number in range(400)]
    await (await client.send_many(sharded, keys, [b"old"] * 400))
    pins = await client.pins.create(sharded, pin_id="export", lease_ms=30_000)
    await (await client.send_many(sharded, keys, [b"new"] * 400))
    await client.delete(sharded, keys[0])

    async def read(pin: Any, after_seq: int, end_seq: int) -> list[Any]:
        return [m async for m in client.pins.read(pin, after_seq=after_seq, end_seq=end_seq)]

    jobs = [read(pin, *part) for pin in pins for part in pin.ranges(3)]
    parts = await asyncio.gather(*jobs)
    assert len(jobs) == 12
    found = [(message.key, message.value) for part in parts for message in part]
    assert sorted(found) == sorted((key, b"old") for key in keys)
    batches = [batch async for batch in client.pins.batches(pins[0])]
    assert sum(map(len, batches)) == sum(message.shard == pins[0].shard for part in parts for message in part)
    await client.pins.release(sharded, "export")
    with pytest.raises((SnapshotExpired, PinNotFound)):
        await read(pins[0], 0, 0)


async def test_pins_are_listed_renewed_and_released(client: Any, topic: str) -> None:
    await fill(client, topic, b"1")
    (pin,) = await client.pins.create(topic, lease_ms=5_000)
    (listed_pin,) = await client.pins.list(topic)
    assert (listed_pin.pin_id, listed_pin.seq) == (pin.pin_id, pin.seq)
    (renewed,) = await client.pins.renew([pin], lease_ms=60_000)
    assert renewed.pin.lease_until_ms > pin.pin.lease_until_ms
    assert renewed.history_id == pin.history_id
    await client.pins.release(topic, pin.pin_id)
    assert [found.pin.ended for found in await client.pins.list(topic) if found.pin.is_alive] == []
    with pytest.raises(PinNotFound):
        await client.pins.release(topic, "no-such-pin")


async def test_a_consumer_can_go_on_from_a_pin(client: Any, topic: str) -> None:
    """Read the pin, then everything after it: nothing is missed and nothing comes twice."""
    await fill(client, topic, b"1", b"2")
    (pin,) = await client.pins.create(topic)
    await fill(client, topic, b"3")
    assert await values_of(client.pins.read(pin)) == [b"1", b"2"]
    start = Start.mark({0: Mark(pin.history_id, pin.seq)})
    assert await consume_all(client, topic, start=start) == [b"3"]


# Administration


async def test_topics_are_made_described_altered_and_deleted(client: Any, topic_name: str) -> None:
    made = await client.topics.create(topic_name, shards=2, max_age_ms=60_000)
    assert (made.shards, made.retention.max_age_ms, made.mode) == (2, 60_000, "compact")
    assert await client.topics.create(topic_name, shards=2, max_age_ms=60_000) == made
    assert made in await client.topics.list()
    altered = await client.topics.alter(topic_name, max_age_ms=0)
    assert altered.retention.max_age_ms == 0
    await client.produce(topic_name, b"v", key=b"k")
    described = await client.topics.describe(topic_name)
    assert described.topic == altered
    assert sorted(status.messages for status in described.shards) == [0, 1]
    assert topic_name in {status.topic for status in (await client.status()).shards}
    await client.topics.delete(topic_name)
    assert altered not in await client.topics.list()
