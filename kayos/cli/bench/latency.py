"""Latency: one write at a time, from the call to the fsynced answer."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kayos.cli.bench.ceiling import open_bare_log, open_echo
from kayos.cli.bench.stage import KEY_BYTES, open_stage
from kayos.cli.progress import progress

_WARM_UP = 50


def measure(*, calls: int, value_bytes: int, rounds: int, directory: Path | None) -> dict[str, Any]:
    value = b"v" * value_bytes
    keys = [b"%0*d" % (KEY_BYTES, number % 1000) for number in range(calls)]
    times: dict[str, list[float]] = {"produce": [], "grpc": [], "lmdb": []}
    with (
        open_stage(directory) as stage,
        open_bare_log(stage.directory / "bare") as bare,
        open_echo() as echo,
        progress("latency", total=rounds, unit="turns") as advance,
    ):
        client = stage.client
        client.topics.create("bench")
        subjects: dict[str, Callable[[bytes], object]] = {
            "produce": lambda key: client.produce("bench", value, key=key),
            "grpc": lambda key: echo(key + value),
            "lmdb": lambda key: bare.commit([key], value),
        }
        for call in subjects.values():
            time_calls(call, keys[:_WARM_UP])
        for _ in range(rounds):
            for name, call in subjects.items():
                times[name] += time_calls(call, keys)
            advance(1)
    middle = {name: percentile(found, 50) for name, found in times.items()}
    return {
        "bench": "latency",
        "calls": calls * rounds,
        "value_bytes": value_bytes,
        "produce_p50_us": round(middle["produce"]),
        "produce_p99_us": round(percentile(times["produce"], 99)),
        "bare_grpc_p50_us": round(middle["grpc"]),
        "bare_lmdb_p50_us": round(middle["lmdb"]),
        "ratio": round(middle["produce"] / (middle["grpc"] + middle["lmdb"]), 3),
    }


def time_calls(call: Callable[[bytes], object], keys: list[bytes]) -> list[float]:
    """Microseconds of each call."""
    times = []
    for key in keys:
        begun = time.perf_counter()
        call(key)
        times.append((time.perf_counter() - begun) * 1e6)
    return times


def percentile(times: list[float], percent: int) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]
