"""A chain: keyed messages through three processes, `durability=all`, every replica fsyncing, batches pipelined."""

import random
import time
from pathlib import Path
from typing import Any

from kayos.cli.bench.ceiling import open_bare_log, open_echo, time_commits
from kayos.cli.bench.chain_stage import TOPIC, ChainStage, open_chain
from kayos.cli.bench.latency import percentile, time_calls
from kayos.cli.bench.stage import KEY_BYTES, batches_of, median, random_keys
from kayos.cli.progress import progress

_GROUP = 1_000
_WARM_UP_CALLS = 50


def measure(
    *,
    messages: int,
    batch: int,
    keys: int,
    value_bytes: int,
    nodes: int,
    tails: int,
    calls: int,
    rounds: int,
    directory: Path | None,
) -> dict[str, Any]:
    value = b"v" * value_bytes
    rates: list[float] = []
    ceilings: list[float] = []
    times: dict[str, list[float]] = {"chain": [], "grpc": []}
    with (
        open_chain(directory, nodes=nodes, tails=tails) as stage,
        open_bare_log(stage.directory / "bare") as bare,
        open_echo() as echo,
        progress("chain", total=rounds, unit="turns") as advance,
    ):
        send_all(stage, draw(20 * batch, keys, seed=0), value, batch)
        before, busy_s = stage.cpu_s(), 0.0
        for turn in range(rounds):
            drawn = draw(messages, keys, seed=turn + 1)
            ceilings.append(time_commits(bare, batches_of(drawn, _GROUP), value))
            begun = time.perf_counter()
            rates.append(send_all(stage, drawn, value, batch))
            busy_s += time.perf_counter() - begun
            advance(1)
        after = stage.cpu_s()
        time_latency(stage, echo, value, calls, times)
    middle = {name: percentile(found, 50) for name, found in times.items()}
    return {
        "bench": "chain",
        "nodes": nodes,
        "tails": tails,
        "messages_per_turn": messages,
        "batch": batch,
        "keys": keys or "new",
        "value_bytes": value_bytes,
        "rate_per_s": round(median(rates)),
        "bare_lmdb_in_groups_of_1000_per_s": round(median(ceilings)),
        "ratio": round(median(rates) / median(ceilings), 3),
        "rates_per_s": [round(rate) for rate in rates],
        "cores_by_node": {name: round((after[name] - before[name]) / busy_s, 2) for name in after},
        "awaited_write_p50_us": round(middle["chain"]),
        "awaited_write_p99_us": round(percentile(times["chain"], 99)),
        "bare_grpc_call_p50_us": round(middle["grpc"]),
        "latency_ratio": round(middle["chain"] / middle["grpc"], 2),
    }


def draw(count: int, keys: int, *, seed: int) -> list[bytes]:
    """`keys` distinct ones, or with 0 new ones every time, in no order."""
    if keys:
        return random_keys(count, distinct=keys)
    source = random.Random(seed)
    return [source.randbytes(KEY_BYTES) for _ in range(count)]


def send_all(stage: ChainStage, keys: list[bytes], value: bytes, batch: int) -> float:
    """Messages a second, from the first send to the last answer."""
    values = [value] * batch
    begun = time.perf_counter()
    deliveries = [stage.client.send_many(TOPIC, part, values[: len(part)]) for part in batches_of(keys, batch)]
    for delivery in deliveries:
        delivery.result()
    return len(keys) / (time.perf_counter() - begun)


def time_latency(stage: ChainStage, echo: Any, value: bytes, calls: int, times: dict[str, list[float]]) -> None:
    """One write at a time and one bare call at a time, in turns."""
    keys = [b"%0*d" % (KEY_BYTES, number) for number in range(max(1, calls // 4))]
    subjects = {
        "chain": lambda key: stage.client.produce(TOPIC, value, key=key),
        "grpc": lambda key: echo(key + value),
    }
    for call in subjects.values():
        time_calls(call, keys[:_WARM_UP_CALLS])
    for _ in range(4):
        for name, call in subjects.items():
            times[name] += time_calls(call, keys)
