"""Running schedules: one with its story, or many, as fast as they go."""

import gc
import traceback
from collections.abc import Iterable
from typing import NamedTuple

from tests.simulation.checks import Violation
from tests.simulation.mutants import Mutant, put_in_place
from tests.simulation.weights import SWARM, Profile, bounds_given_back
from tests.simulation.world import World

COLLECT_EVERY = 2_000


class Failure(NamedTuple):
    seed: int
    text: str


def run_world(world: World) -> Failure | None:
    """A rule that was broken, or a core that fell over: both are failures."""
    try:
        world.run()
    except Violation as violation:
        return Failure(world.seed, str(violation))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Failure(world.seed, f"crash: {error!r} in {where.name}, {where.filename}:{where.lineno}")
    return None


def run_schedule(
    seed: int, mutant: Mutant | None = None, profile: Profile | None = None, *, keep_story: bool = False
) -> tuple[list[str], Failure | None]:
    with put_in_place(mutant), bounds_given_back():
        world = World(seed, profile or (mutant.profile if mutant is not None else SWARM), keep_story=keep_story)
        failure = run_world(world)
        return world.story or [], failure


def run_schedules(
    seeds: Iterable[int],
    mutant: Mutant | None = None,
    profile: Profile | None = None,
    *,
    stop_at_first: bool = False,
) -> tuple[int, list[Failure]]:
    """(steps, failures). The collector is off meanwhile: each world is untied by hand."""
    chosen = profile or (mutant.profile if mutant is not None else SWARM)
    failures: list[Failure] = []
    steps = 0
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with put_in_place(mutant), bounds_given_back():
            for index, seed in enumerate(seeds):
                world = World(seed, chosen)
                failure = run_world(world)
                steps += world.steps
                world.dismantle()
                if failure is not None:
                    failures.append(failure)
                    if stop_at_first:
                        break
                if index % COLLECT_EVERY == COLLECT_EVERY - 1:
                    gc.collect()
    finally:
        if was_enabled:
            gc.enable()
    return steps, failures
