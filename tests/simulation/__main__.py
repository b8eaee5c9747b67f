"""`python -m tests.simulation`: run schedules, find the one that breaks a rule, tell its story.

python -m tests.simulation --count 20000 --processes 2
python -m tests.simulation --seed 4711 --trace
python -m tests.simulation --mutant no-gate
"""

import argparse
import sys
from multiprocessing import get_context
from time import perf_counter, process_time
from typing import NamedTuple

from tests.simulation.mutants import MUTANTS
from tests.simulation.run import Failure, run_schedule, run_schedules

SEED_DEFAULT = 1
COUNT_DEFAULT = 1_000


def main() -> int:
    options = parse()
    mutant = MUTANTS[options.mutant] if options.mutant else None
    seed = options.seed if options.seed is not None else mutant.seed if mutant is not None else SEED_DEFAULT
    if options.trace:
        return tell(seed, options.mutant)
    count = options.count or (1 if options.seed is not None else COUNT_DEFAULT)
    begun = perf_counter()
    shares = [(range(seed + at, seed + count, options.processes), options.mutant) for at in range(options.processes)]
    if options.processes == 1:
        found = [run_share(shares[0])]
    else:
        with get_context("fork").Pool(options.processes) as pool:
            found = pool.map(run_share, shares, chunksize=1)
    seconds = perf_counter() - begun
    failures = sorted((failure for share in found for failure in share.failures), key=lambda failure: failure.seed)
    steps = sum(share.steps for share in found)
    rate = f"{count / seconds:.0f} a second, {count / sum(share.seconds for share in found):.0f} per second of one core"
    print(f"{count} schedules from seed {seed}, {len(failures)} failed; {rate}, {steps / count:.0f} steps each")
    for failure in failures[:10]:
        again = f" --mutant {options.mutant}" if options.mutant else ""
        print(f"seed {failure.seed}: {failure.text}")
        print(f"    python -m tests.simulation --seed {failure.seed}{again} --trace")
    return 1 if failures else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; alone it runs that one")
    parser.add_argument("--count", type=int, help="how many schedules")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with one rule taken away")
    parser.add_argument("--trace", action="store_true", help="tell the whole story of one seed")
    parser.add_argument("--processes", type=int, default=1)
    return parser.parse_args()


class Share(NamedTuple):
    """What one process found; `seconds` are its processor's."""

    steps: int
    failures: list[Failure]
    seconds: float


def run_share(share: tuple[range, str]) -> Share:
    seeds, mutant = share
    begun = process_time()
    steps, failures = run_schedules(seeds, MUTANTS.get(mutant))
    return Share(steps, failures, process_time() - begun)


def tell(seed: int, mutant: str) -> int:
    story, failure = run_schedule(seed, MUTANTS.get(mutant), keep_story=True)
    print("\n".join(story))
    print(f"seed {seed}: {failure.text if failure is not None else 'healed, nothing broken'}")
    return 0 if failure is None else 1


sys.exit(main())
