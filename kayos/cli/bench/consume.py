"""Draining: one consumer reads a topic from its beginning, as messages in lists."""

import os
import time
from pathlib import Path
from typing import Any

from kayos.cli.bench.ceiling import open_bare_log, time_commits
from kayos.cli.bench.stage import KEY_BYTES, Stage, batches_of, median, open_stage
from kayos.cli.progress import progress
from kayos.client.core.start import Start

_BATCH = 10_000


def measure(*, messages: int, value_bytes: int, rounds: int, directory: Path | None) -> dict[str, Any]:
    keys = [b"%0*d" % (KEY_BYTES, number) for number in range(messages)]
    value = b"v" * value_bytes
    drains: list[Drain] = []
    scans: list[float] = []
    with (
        open_stage(directory) as stage,
        open_bare_log(stage.directory / "bare") as bare,
        progress("consume", total=rounds, unit="turns") as advance,
    ):
        stage.client.topics.create("bench")
        fill(stage, keys, value)
        time_commits(bare, batches_of(keys, _BATCH), value)
        for _ in range(rounds):
            begun = time.perf_counter()
            assert bare.scan() == messages
            scans.append(messages / (time.perf_counter() - begun))
            drains.append(drain(stage, messages))
            advance(1)
    rate = median([each.rate for each in drains])
    middle = min(drains, key=lambda each: abs(each.rate - rate))
    return {
        "bench": "consume",
        "messages": messages,
        "value_bytes": value_bytes,
        "rate_per_s": round(rate),
        "ceiling_scan_per_s": round(median(scans)),
        "ratio": round(rate / median(scans), 3),
        "rates_per_s": [round(each.rate) for each in drains],
        "consumer_cpu_share": round(middle.consumer_share, 2),
        "node_cpu_share": round(middle.node_share, 2),
        "bound_by": "the consumer's processor" if middle.consumer_share > middle.node_share else "the node's processor",
        "cores": os.cpu_count(),
    }


class Drain:
    """One pass over the topic: its rate, and how busy either side was."""

    def __init__(self, *, count: int, elapsed_s: float, consumer_cpu_s: float, node_cpu_s: float) -> None:
        self.rate = count / elapsed_s
        self.consumer_share = consumer_cpu_s / elapsed_s
        self.node_share = node_cpu_s / elapsed_s


def drain(stage: Stage, expected: int) -> Drain:
    node_cpu_s, consumer_cpu_s, begun = stage.node_cpu_s(), time.process_time(), time.perf_counter()
    count = 0
    with stage.client.consume("bench", start=Start.beginning(), stop_at_end=True) as consumer:
        for snapshot in consumer:
            for batch in snapshot.batches():
                count += len(batch)
    elapsed_s = time.perf_counter() - begun
    assert count == expected, f"{count} of {expected} messages arrived"
    return Drain(
        count=count,
        elapsed_s=elapsed_s,
        consumer_cpu_s=time.process_time() - consumer_cpu_s,
        node_cpu_s=stage.node_cpu_s() - node_cpu_s,
    )


def fill(stage: Stage, keys: list[bytes], value: bytes) -> None:
    for part in batches_of(keys, _BATCH):
        stage.client.send_many("bench", part, [value] * len(part))
    if stage.client.flush():
        raise AssertionError("a send of the benchmark failed")
