"""Fan-out: the same writes into a chain with one tail and into one with three, in turns."""

import time
from pathlib import Path
from typing import Any

from kayos.cli.bench.chain import draw, send_all
from kayos.cli.bench.chain_stage import ChainStage, open_chain
from kayos.cli.bench.stage import median
from kayos.cli.progress import progress


def measure(*, messages: int, batch: int, keys: int, value_bytes: int, rounds: int, directory: Path | None) -> Any:
    value = b"v" * value_bytes
    rates: dict[str, list[float]] = {"one_tail": [], "three_tails": []}
    cpu_s = dict.fromkeys(rates, 0.0)
    with (
        open_chain(directory, nodes=2) as one,
        open_chain(directory, nodes=4, tails=3) as three,
        progress("fan-out", total=rounds, unit="turns") as advance,
    ):
        stages: dict[str, ChainStage] = {"one_tail": one, "three_tails": three}
        for stage in stages.values():
            send_all(stage, draw(20 * batch, keys, seed=0), value, batch)
        for turn in range(rounds):
            drawn = draw(messages, keys, seed=turn + 1)
            for name, stage in stages.items():
                before = sum(stage.cpu_s().values()) + time.process_time()
                rates[name].append(send_all(stage, drawn, value, batch))
                cpu_s[name] += sum(stage.cpu_s().values()) + time.process_time() - before
            advance(1)
    middle = {name: median(found) for name, found in rates.items()}
    cost_us = {name: spent / (messages * rounds) * 1e6 for name, spent in cpu_s.items()}
    return {
        "bench": "fan-out",
        "messages_per_turn": messages,
        "batch": batch,
        "keys": keys or "new",
        "value_bytes": value_bytes,
        "rate_with_one_tail_per_s": round(middle["one_tail"]),
        "rate_with_three_tails_per_s": round(middle["three_tails"]),
        "ratio": round(middle["three_tails"] / middle["one_tail"], 3),
        "processor_us_per_message": {name: round(found, 2) for name, found in cost_us.items()},
        "ratio_that_the_cores_explain": round(cost_us["one_tail"] / cost_us["three_tails"], 3),
    }
