"""Producing through a real node: single messages, batches, bulk, transactions, conditions."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kayos import Start
from kayos.client.core.route import shard_of
from kayos.errors import (
    ConditionFailed,
    FailedPrecondition,
    InvalidArgument,
    MarkNotFound,
    ProducerFenced,
    ResetRequired,
    TopicNotFound,
    WrongMode,
)
from tests.nodes import NodeProcess


async def read_all(client: Any, topic: str) -> list[Any]:
    """Every message of the topic, in the order of arrival."""
    found = []
    async for snapshot in client.consume(topic, stop_at_end=True):
        async for batch in snapshot.batches():
            found += batch
    return found


async def test_what_was_produced_can_be_had_by_key_and_deleted(client: Any, topic: str) -> None:
    first = await client.produce(topic, b"1", key=b"k", headers={"trace": b"\x00\xff"})
    assert (first.topic, first.shard, first.seq, first.copies, first.duplicate) == (topic, 0, 1, 1, False)
    found = await client.get(topic, b"k", min_seq=first.seq)
    assert (found.seq, found.key, found.value, found.headers) == (1, b"k", b"1", (("trace", b"\x00\xff"),))
    assert found.timestamp == first.timestamp
    second = await client.delete(topic, b"k")
    assert second.seq == 2
    assert await client.get(topic, b"k") is None
    assert await client.get(topic, b"never") is None
    await client.produce(topic, None, key=b"k")
    assert [(message.seq, message.value) for message in await read_all(client, topic)] == [(3, None)]


async def test_an_empty_value_is_not_a_delete_and_no_key_is_not_an_empty_key(client: Any, topic: str) -> None:
    await client.produce(topic, b"", key=b"k")
    await client.produce(topic, b"", key=None)
    keyed, unkeyed = await read_all(client, topic)
    assert (keyed.key, keyed.value, unkeyed.key, unkeyed.value) == (b"k", b"", None, b"")


async def test_sends_linger_together_and_each_has_its_own_delivery(
    connect: Callable[..., Any], node: NodeProcess, client: Any, topic: str
) -> None:
    async with connect(node.address, linger_ms=5_000) as patient:
        futures = [await patient.send(topic, b"%d" % number, key=b"k%d" % number) for number in range(100)]
        assert not any(future.done() for future in futures)
        assert await read_all(client, topic) == []
        assert await patient.flush() == 0
        deliveries = [await future for future in futures]
    assert [delivery.seq for delivery in deliveries] == list(range(1, 101))
    # One request: all of them carry its one timestamp.
    assert len({delivery.timestamp for delivery in deliveries}) == 1
    assert [message.value for message in await read_all(client, topic)] == [b"%d" % number for number in range(100)]


async def test_a_lingering_batch_goes_out_by_itself(client: Any, topic: str) -> None:
    future = await client.send(topic, b"v", key=b"k")
    assert (await asyncio.wait_for(future, 20)).seq == 1


async def test_a_full_batch_does_not_wait_for_the_linger(
    connect: Callable[..., Any], node: NodeProcess, topic: str
) -> None:
    async with connect(node.address, linger_ms=60_000, batch_bytes=1_000) as patient:
        futures = [await patient.send(topic, bytes(100)) for _ in range(10)]
        assert (await asyncio.wait_for(futures[0], 20)).seq == 1


async def test_producing_one_message_takes_the_lingering_ones_along(
    connect: Callable[..., Any], node: NodeProcess, topic: str
) -> None:
    async with connect(node.address, linger_ms=60_000) as patient:
        future = await patient.send(topic, b"1")
        assert (await patient.produce(topic, b"2")).seq == 2
        assert (await future).seq == 1


async def test_a_bulk_send_spreads_over_shards_and_keeps_the_order_of_keys(client: Any, sharded: str) -> None:
    keys = [b"k%d" % (number % 50) for number in range(1000)]
    values: list[bytes | None] = [b"%d" % number for number in range(1000)]
    values[7] = None
    delivery = await (await client.send_many(sharded, keys, values))
    assert delivery.count == 1000
    assert {batch.shard for batch in delivery.batches} == {0, 1, 2, 3}
    found = await read_all(client, sharded)
    assert {message.key: message.value for message in found} == {b"k%d" % n: b"%d" % (950 + n) for n in range(50)}
    assert all(message.shard == shard_of(message.key, 4) for message in found)
    unkeyed = await (await client.send_many(sharded, None, [b"x"] * 10, route=b"r"))
    assert [batch.shard for batch in unkeyed.batches] == [shard_of(b"r", 4)]


async def test_a_transaction_is_whole_and_in_one_snapshot(client: Any, topic: str) -> None:
    async with client.transaction(topic) as transaction:
        transaction.put(b"x", b"60")
        transaction.put(b"y", b"40")
        transaction.append(b"note")
        transaction.delete(b"z")
        assert await client.get(topic, b"x") is None
    assert [delivery.seq for delivery in transaction.deliveries] == [1, 2, 3, 4]
    found = await read_all(client, topic)
    written = [(message.key, message.value) for message in found]
    assert written == [(b"x", b"60"), (b"y", b"40"), (None, b"note"), (b"z", None)]


async def test_a_transaction_whose_block_raises_leaves_nothing(client: Any, topic: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with client.transaction(topic) as transaction:
            transaction.put(b"x", b"1")
            raise ZeroDivisionError
    assert await read_all(client, topic) == []
    with pytest.raises(FailedPrecondition, match="not committed"):
        _ = transaction.deliveries


async def test_an_empty_transaction_is_nothing(client: Any, topic: str) -> None:
    async with client.transaction(topic) as transaction:
        pass
    assert transaction.deliveries == ()


async def test_a_transaction_stays_in_one_shard_unless_routed(client: Any, sharded: str) -> None:
    keys = [b"key-%d" % number for number in range(8)]
    with pytest.raises(InvalidArgument, match="pass route="):
        async with client.transaction(sharded) as transaction:
            for key in keys:
                transaction.put(key, b"1")
    assert await read_all(client, sharded) == []
    async with client.transaction(sharded, route=b"account-1") as transaction:
        for key in keys:
            transaction.put(key, b"1")
    assert {delivery.shard for delivery in transaction.deliveries} == {shard_of(b"account-1", 4)}
    assert (await client.get(sharded, keys[0], route=b"account-1")).value == b"1"


async def test_a_conditional_write_tells_where_the_key_stands(client: Any, topic: str) -> None:
    first = await client.produce(topic, b"1", key=b"k", expected_seq=0)
    second = await client.produce(topic, b"2", key=b"k", expected_seq=first.seq)
    with pytest.raises(ConditionFailed) as caught:
        await client.produce(topic, b"3", key=b"k", expected_seq=first.seq)
    assert caught.value.current_seq == second.seq
    with pytest.raises(ConditionFailed):
        await client.delete(topic, b"k", expected_seq=99)
    await client.delete(topic, b"k", expected_seq=second.seq)
    assert await client.get(topic, b"k") is None


async def test_a_failed_condition_refuses_its_whole_transaction_and_nothing_else(client: Any, topic: str) -> None:
    before = await client.send(topic, b"1", key=b"a")
    with pytest.raises(ConditionFailed):
        async with client.transaction(topic) as transaction:
            transaction.put(b"a", b"2")
            transaction.put(b"b", b"2", expected_seq=7)
    after = await client.send(topic, b"1", key=b"c")
    assert [(await before).seq, (await after).seq] == [1, 2]
    assert {message.key: message.value for message in await read_all(client, topic)} == {b"a": b"1", b"c": b"1"}


async def test_racing_counters_lose_no_step(client: Any, topic: str) -> None:
    async def add_one() -> None:
        while True:
            found = await client.get(topic, b"counter")
            value, seq = (int(found.value), found.seq) if found else (0, 0)
            try:
                await client.produce(topic, b"%d" % (value + 1), key=b"counter", expected_seq=seq)
                return
            except ConditionFailed:
                continue

    await asyncio.gather(*(add_one() for _ in range(10)))
    assert (await client.get(topic, b"counter")).value == b"10"


async def test_a_newer_life_of_a_producer_fences_the_older_one(
    connect: Callable[..., Any], node: NodeProcess, client: Any, topic: str
) -> None:
    async with (
        connect(node.address, producer_id="worker-1", producer_epoch=1) as older,
        connect(node.address, producer_id="worker-1", producer_epoch=2) as newer,
    ):
        await older.produce(topic, b"1")
        await newer.produce(topic, b"2")
        with pytest.raises(ProducerFenced):
            await older.produce(topic, b"3")
        await newer.produce(topic, b"4")
    assert [message.value for message in await read_all(client, topic)] == [b"1", b"2", b"4"]


async def test_refusals_of_the_node_arrive_as_their_errors(client: Any, topic: str, topic_name: str) -> None:
    with pytest.raises(TopicNotFound):
        await client.produce("no-such-topic", b"v")
    with pytest.raises(InvalidArgument, match="has 1 replicas"):
        await client.produce(topic, b"v", durability=2)
    with pytest.raises(MarkNotFound):
        await client.marks.get(topic, "nobody")
    await client.topics.create(f"{topic_name}-log", mode="log")
    with pytest.raises(WrongMode):
        await client.get(f"{topic_name}-log", b"k")
    with pytest.raises(ResetRequired):
        await client.wait((await client.produce(topic, b"v"))._replace(history_id=bytes(16)))


async def test_a_failed_request_leaves_the_next_ones_in_order(client: Any, topic: str) -> None:
    futures = [
        await client.send(topic, b"1", durability=2),
        await client.send(topic, b"2"),
        await client.send(topic, b"3"),
    ]
    assert await client.flush() == 1
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(outcomes[0], InvalidArgument)
    assert [delivery.seq for delivery in outcomes[1:]] == [1, 2]
    assert await client.flush() == 0


async def test_waiting_for_copies_of_a_write(client: Any, topic: str) -> None:
    delivery = await client.produce(topic, b"v")
    for until in (1, "all", "any_tail", "all_tails"):
        assert await client.wait(delivery, until=until) == 1
    with pytest.raises(InvalidArgument, match="until is"):
        await client.wait(delivery, until="some")


async def test_a_topic_that_is_deleted_and_made_again_is_found_again(client: Any, topic: str) -> None:
    await client.produce(topic, b"1", key=b"k")
    await client.topics.delete(topic)
    with pytest.raises(TopicNotFound):
        await client.produce(topic, b"2", key=b"k")
    await client.topics.create(topic)
    assert (await client.produce(topic, b"3", key=b"k")).seq == 1
    assert [message.value async for message in client.messages(topic, start=Start.beginning(), stop_at_end=True)] == [
        b"3"
    ]
