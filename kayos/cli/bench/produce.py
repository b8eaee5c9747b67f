"""Ingest: batches of keyed messages over one pipelined stream, each batch fsynced before its answer."""

import time
from pathlib import Path
from typing import Any

from kayos.cli.bench.ceiling import open_bare_log, time_commits
from kayos.cli.bench.stage import Stage, batches_of, median, open_stage, random_keys
from kayos.cli.progress import progress

_LARGE_GROUP = 10_000


def measure(
    *, messages: int, batch: int, keys: int, value_bytes: int, rounds: int, directory: Path | None
) -> dict[str, Any]:
    drawn = random_keys(messages, distinct=keys)
    value = b"v" * value_bytes
    rates: list[float] = []
    ceilings: list[float] = []
    large_ceilings: list[float] = []
    resident: list[int] = []
    with (
        open_stage(directory) as stage,
        open_bare_log(stage.directory / "bare") as bare,
        open_bare_log(stage.directory / "bare-large") as bare_large,
        progress("produce", total=rounds, unit="turns") as advance,
    ):
        stage.client.topics.create("bench")
        send_all(stage, drawn[: 20 * batch], value, batch)
        for _ in range(rounds):
            ceilings.append(time_commits(bare, batches_of(drawn, batch), value))
            rates.append(send_all(stage, drawn, value, batch))
            large_ceilings.append(time_commits(bare_large, batches_of(drawn, _LARGE_GROUP), value))
            resident.append(stage.node_resident_bytes())
            advance(1)
    return {
        "bench": "produce",
        "messages_per_turn": messages,
        "batch": batch,
        "keys": keys,
        "value_bytes": value_bytes,
        "rate_per_s": round(median(rates)),
        "ceiling_per_s": round(median(ceilings)),
        "ratio": round(median(rates) / median(ceilings), 3),
        "ceiling_in_groups_of_10000_per_s": round(median(large_ceilings)),
        "rates_per_s": [round(rate) for rate in rates],
        "ceilings_per_s": [round(rate) for rate in ceilings],
        "node_memory_bytes_by_turn": resident,
    }


def send_all(stage: Stage, keys: list[bytes], value: bytes, batch: int) -> float:
    """Messages a second, from the first send to the last answer."""
    values = [value] * batch
    begun = time.perf_counter()
    deliveries = [stage.client.send_many("bench", part, values[: len(part)]) for part in batches_of(keys, batch)]
    for delivery in deliveries:
        delivery.result()
    return len(keys) / (time.perf_counter() - begun)
