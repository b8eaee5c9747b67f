"""Growth: what a message costs when the chain has taken 10^5, 10^6 and 10^7 of them."""

import time
from pathlib import Path
from typing import Any

from kayos.cli.bench.ceiling import open_bare_log, time_commits
from kayos.cli.bench.chain import send_all
from kayos.cli.bench.chain_stage import ChainStage, open_chain
from kayos.cli.bench.stage import KEY_BYTES, batches_of, random_keys
from kayos.cli.progress import progress

_SAMPLE = 100_000
_BATCH = 1_000


def measure(*, messages: int, keys: int, value_bytes: int, directory: Path | None) -> dict[str, Any]:
    """Taken at every power of ten, over the 100,000 messages that lead to it."""
    value = b"v" * value_bytes
    marks = [point for point in (10**5, 10**6, 10**7, 10**8) if point <= messages]
    costs: dict[str, dict[str, float]] = {}
    with (
        open_chain(directory, nodes=3) as stage,
        open_bare_log(stage.directory / "bare") as bare,
        progress("growth", total=messages // _SAMPLE, unit="parts") as advance,
    ):
        for part in range(messages // _SAMPLE):
            drawn = part_of(part, keys)
            reached = (part + 1) * _SAMPLE
            if reached in marks:
                costs[f"{reached:.0e}"] = sample(stage, drawn, value)
                costs[f"{reached:.0e}"]["bare_lmdb_per_s"] = round(time_commits(bare, batches_of(drawn, _BATCH), value))
            else:
                send_all(stage, drawn, value, _BATCH)
                for batch in batches_of(drawn, _BATCH * 10):
                    bare.commit(batch, value)
            advance(1)
    first, last = (costs[f"{point:.0e}"]["processor_us_per_message"] for point in (marks[0], marks[-1]))
    return {
        "bench": "growth",
        "messages": messages,
        "keys": keys or "new, ascending",
        "value_bytes": value_bytes,
        "at": costs,
        "ratio": round(last / first, 3),
    }


def part_of(part: int, keys: int) -> list[bytes]:
    if keys:
        return random_keys(_SAMPLE, distinct=keys)
    return [b"%0*d" % (KEY_BYTES, part * _SAMPLE + number) for number in range(_SAMPLE)]


def sample(stage: ChainStage, drawn: list[bytes], value: bytes) -> dict[str, float]:
    before = sum(stage.cpu_s().values())
    begun = time.perf_counter()
    rate = send_all(stage, drawn, value, _BATCH)
    elapsed_s = time.perf_counter() - begun
    spent = sum(stage.cpu_s().values()) - before
    return {
        "rate_per_s": round(rate),
        "processor_us_per_message": round(spent / len(drawn) * 1e6, 2),
        "seconds": round(elapsed_s, 2),
    }
