"""The seed of random tests: the same in every run, unless somebody looks for more with KAYOS_TEST_SEED."""

import os

DEFAULT_SEED = 20_261_118


def choose_seed() -> int:
    """Print it, so that a failure names the seed that replays it."""
    seed = int(os.environ.get("KAYOS_TEST_SEED", DEFAULT_SEED))
    print(f"seed {seed}: replay with KAYOS_TEST_SEED={seed}")
    return seed
