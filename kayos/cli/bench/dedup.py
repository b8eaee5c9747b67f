"""De-duplication at work: few keys overwritten many times, alone and beside a consumer that sleeps.

What must stay flat is printed over time: the node's memory and the shard's file.
"""

import time
from pathlib import Path
from typing import Any

from kayos.cli.bench.stage import Stage, batches_of, open_stage, random_keys
from kayos.cli.progress import Advance, progress
from kayos.client.core.start import Start

_BATCH = 1_000
_SAMPLES = 20


def measure(*, messages: int, keys: int, value_bytes: int, directory: Path | None) -> dict[str, Any]:
    drawn = random_keys(messages, distinct=keys)
    value = b"v" * value_bytes
    with (
        open_stage(directory) as stage,
        progress("dedup", total=2 * messages) as advance,
    ):
        stage.client.topics.create("bench")
        alone = overwrite(stage, drawn, value, advance)
        with stage.client.consume("bench", start=Start.beginning()) as consumer:
            # The consumer takes one batch of its snapshot and sleeps on it.
            asleep = next(consumer).batches()
            next(asleep)
            beside = overwrite(stage, drawn, value, advance)
        (shard,) = stage.client.topics.describe("bench").shards
    return {
        "bench": "dedup",
        "messages": 2 * messages,
        "keys": keys,
        "live_messages": shard.messages,
        "live_bytes": shard.message_bytes,
        "messages_per_live_message": round(2 * messages / max(1, shard.messages), 1),
        "file_bytes": shard.file_bytes,
        "file_bytes_per_live_byte": round(shard.file_bytes / max(1, shard.message_bytes), 2),
        "memory_growth_alone": growth(alone),
        "memory_growth_beside_a_sleeping_consumer": growth(beside),
        "alone": alone,
        "beside_a_sleeping_consumer": beside,
    }


def overwrite(stage: Stage, keys: list[bytes], value: bytes, advance: Advance) -> list[dict[str, float]]:
    """Send all, sampling the node as it goes."""
    samples = []
    begun = time.perf_counter()
    values = [value] * _BATCH
    sent = 0
    for part in batches_of(keys, max(_BATCH, len(keys) // _SAMPLES)):
        deliveries = [stage.client.send_many("bench", few, values[: len(few)]) for few in batches_of(part, _BATCH)]
        for delivery in deliveries:
            delivery.result()
        sent += len(part)
        advance(len(part))
        (shard,) = stage.client.topics.describe("bench").shards
        samples.append(
            {
                "seconds": round(time.perf_counter() - begun, 2),
                "messages": sent,
                "memory_bytes": stage.node_resident_bytes(),
                "file_bytes": shard.file_bytes,
            }
        )
    return samples


def growth(samples: list[dict[str, float]]) -> float:
    """Memory at the end against the middle of the run: 1.0 is flat."""
    return round(samples[-1]["memory_bytes"] / samples[len(samples) // 2]["memory_bytes"], 3)
