"""kill -9 at random moments: what was acknowledged stays, transactions are whole, retries store once."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from kayos.storage.check import check_store
from kayos.storage.lmdb_store import LmdbStore
from tests.seeds import choose_seed

from .fork_server import Child, ForkServer
from .helpers import COMPACT
from .replica_story import ReplicaStory, check_replica
from .story import OPTIONS, Point, Writer, check_story, find_number, point_of, read_points, send_again

STORES = 12
ROUNDS = 20
REPLICAS = 60


def write_until_killed(job: dict[str, object], tell: Callable[[str], None]) -> None:
    Writer(Path(str(job["directory"])), int(str(job["seed"])), tell).write(groups=10_000)


def test_kill_at_random_moments(tmp_path: Path) -> None:
    seed = choose_seed()
    rng = random.Random(seed)
    in_flight_stored = 0
    with ForkServer("storage.test_kill:write_until_killed") as server:
        for store_number in range(STORES):
            directory = tmp_path / str(store_number)
            begun = Point()
            for _ in range(ROUNDS):
                acknowledged, intended = run_and_kill(server, directory, rng, begun)
                begun = recover(directory, acknowledged, intended)
                in_flight_stored += begun.number > acknowledged.number + 1
    print(f"{in_flight_stored} of {STORES * ROUNDS} kills hit between the commit and its acknowledgement")


def run_and_kill(server: ForkServer, directory: Path, rng: random.Random, begun: Point) -> tuple[Point, Point]:
    """Kill after a random number of groups and a random moment more; sometimes while the store opens."""
    child = server.start(directory=str(directory), seed=rng.randrange(2**32))
    return read_points(tell_and_kill(child, rng, [0, 1, 5, 30]), begun)


def tell_and_kill(child: Child, rng: random.Random, counts: list[int]) -> list[str]:
    """What the child told before it was killed."""
    lines, told = child.lines(), []
    for _ in range(rng.choice(counts)):
        told.append(next(lines))
    end = time.perf_counter() + rng.random() * rng.choice([0.001, 0.02])
    while time.perf_counter() < end:
        """Busy on purpose: the moment is what is drawn."""
    os.kill(child.pid, signal.SIGKILL)
    told += lines
    assert child.exit_code == -signal.SIGKILL
    return told


def follow_until_killed(job: dict[str, object], tell: Callable[[str], None]) -> None:
    ReplicaStory(Path(str(job["directory"])), int(str(job["seed"])), tell).tell_on(turns=10_000)


def test_kill_a_replica_at_random_moments(tmp_path: Path) -> None:
    """Between batches, in a rollback, a catch-up, a full copy or the switch to it: it is before or after each step."""
    seed = choose_seed()
    rng = random.Random(seed)
    with ForkServer("storage.test_kill:follow_until_killed") as server:
        for number in range(REPLICAS):
            directory = tmp_path / str(number)
            child = server.start(directory=str(directory), seed=rng.randrange(2**32))
            told = tell_and_kill(child, rng, [0, 3, 10, 40, 80])
            if (directory / "CURRENT").exists():
                assert check_store(directory).problems == (), f"replica {number}, seed {seed}"
            check_replica(directory, told)
            assert check_store(directory).problems == (), f"replica {number}, seed {seed}"


def recover(directory: Path, acknowledged: Point, intended: Point) -> Point:
    """Open, check everything, send the unacknowledged transaction again, and close."""
    if (directory / "CURRENT").exists():
        assert check_store(directory).problems == ()
    store = LmdbStore.open(directory, COMPACT, OPTIONS)
    try:
        check_story(store, acknowledged, intended)
        send_again(store, acknowledged)
        assert find_number(store) >= acknowledged.number + 1
        return point_of(store)
    finally:
        store.close()
        assert check_store(directory).problems == ()
