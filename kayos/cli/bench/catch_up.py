"""Catch-up: an empty replica joins a chain of one that holds everything already."""

import time
from pathlib import Path
from typing import Any

from kayos.cli.bench.ceiling import open_bare_log, time_commits
from kayos.cli.bench.chain import draw, send_all
from kayos.cli.bench.chain_stage import TOPIC, ChainStage, open_chain
from kayos.cli.bench.stage import batches_of

_BATCH = 1_000


def measure(*, messages: int, value_bytes: int, directory: Path | None) -> dict[str, Any]:
    value = b"v" * value_bytes
    drawn = draw(messages, 0, seed=1)
    with (
        open_chain(directory, nodes=2, serving=1) as stage,
        open_bare_log(stage.directory / "bare") as bare,
    ):
        send_all(stage, drawn, value, _BATCH)
        ceiling = time_commits(bare, batches_of(drawn, _BATCH), value)
        before = stage.cpu_s()
        begun = time.perf_counter()
        stage.change(stage.serving, learner="n2")
        stage.wait_for(lambda: is_close(stage), "the newcomer streams")
        elapsed_s = time.perf_counter() - begun
        after = stage.cpu_s()
    return {
        "bench": "catch-up",
        "messages": messages,
        "value_bytes": value_bytes,
        "seconds": round(elapsed_s, 2),
        "rate_per_s": round(messages / elapsed_s),
        "bare_lmdb_in_groups_of_1000_per_s": round(ceiling),
        "ratio": round(messages / elapsed_s / ceiling, 3),
        "cores_by_node": {name: round((after[name] - before[name]) / elapsed_s, 2) for name in after},
    }


def is_close(stage: ChainStage) -> bool:
    """Whether the chain follows the file already, and its newcomer gets batches as they come."""
    found = stage.client.topics.chain(TOPIC, 0)
    status = found.members[len(stage.serving) - 1].status
    return found.epoch == stage.epoch and status is not None and status.learner is not None and status.learner.is_close
