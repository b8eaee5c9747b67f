"""The producer's core against a real store behind a faulty network: thousands of seeded schedules.

A failure prints its seed; `SEED=n pytest tests/client/test_producer_world.py` replays only that one.
"""

import os
import random

import pytest

from kayos.errors import ConditionFailed, KayosError, WriteUnknown
from tests.client.world import Faults, World

SCHEDULES = 500


def run_schedule(seed: int) -> World:
    """One life of a producer: some tens of sends of every kind while faults come and go, then health, then the end."""
    source = random.Random(seed)
    world = World(seed, delivery_timeout_s=source.choice((0.3, 2.0, 20.0)), timeout_s=source.choice((0.2, 1.0)))
    for _ in range(source.randint(1, 4)):
        world.faults = Faults.draw(source)
        for _ in range(source.randint(1, 15)):
            act(world, source)
            if source.random() < 0.6:
                world.run(world.now + source.random() * 0.3)
    if source.random() < 0.1:
        world.close()
    else:
        world.heal()
    return world


def act(world: World, source: random.Random) -> None:
    shard = source.randint(0, 1)
    match source.randint(0, 9):
        case 0:
            world.transact(shard, source.randint(1, 4))
        case 1:
            world.send_bulk(shard, source.randint(1, 30))
        case 2:
            world.send(shard, expected_seq=source.choice((0, 0, 7)))
        case 3:
            world.send(shard, linger=False)
        case _:
            for _ in range(source.randint(1, 10)):
                world.send(shard, size=source.choice((1, 20, 200)))


@pytest.mark.parametrize("part", range(4))
def test_nothing_is_lost_doubled_or_reordered(part: int) -> None:
    given = os.environ.get("SEED")
    seeds = [int(given)] if given else range(part * SCHEDULES, (part + 1) * SCHEDULES)
    for seed in seeds:
        try:
            run_schedule(seed).check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_the_schedules_meet_every_kind_of_outcome() -> None:
    """Guards the test above: a world in which nothing goes wrong would prove nothing."""
    outcomes = [message.outcomes[0] for seed in range(300) for message in run_schedule(seed).sent]
    delivered = [outcome for outcome in outcomes if isinstance(outcome, int)]
    failed = [outcome for outcome in outcomes if isinstance(outcome, KayosError)]
    unknown = [outcome for outcome in failed if isinstance(outcome, WriteUnknown)]
    certain = [outcome for outcome in failed if not isinstance(outcome, WriteUnknown)]
    refused = [outcome for outcome in certain if isinstance(outcome, ConditionFailed)]
    assert len(delivered) > len(outcomes) / 2
    assert min(len(unknown), len(certain), len(refused)) > 50


def test_numbers_begin_at_one_and_never_leave_a_gap() -> None:
    """What first arrives of each epoch is number 1, and no number comes before the one below it."""
    for seed in range(300):
        world = run_schedule(seed)
        seen: dict[tuple[int, int], int] = {}
        for shard, epoch, number, _ in world.arrivals:
            highest = seen.get((shard, epoch), 0)
            assert number >= 1, f"seed {seed}"
            seen[shard, epoch] = max(highest, number)
        for shard, store in enumerate(world.stores):
            row = store.find_producer(b"producer")
            if row is not None:
                newest = max(epoch for where, epoch in seen if where == shard)
                assert row.producer_epoch <= newest, f"seed {seed}"
                numbers = [result.number for result in row.results]
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), f"seed {seed}"
