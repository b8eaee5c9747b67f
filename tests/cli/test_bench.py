"""The benchmarks run, measure what they say and clean up; how fast they are is nobody's test."""

from pathlib import Path

import pytest

from tests.cli.command import Kayos

SMALL = {
    "produce": ["--messages", "2000", "--batch", "100", "--rounds", "1"],
    "consume": ["--messages", "3000", "--rounds", "1"],
    "latency": ["--calls", "10", "--rounds", "1"],
    "dedup": ["--messages", "10000", "--keys", "100"],
}
FIELDS = {
    "produce": {"rate_per_s", "ceiling_per_s", "ratio", "node_memory_bytes_by_turn"},
    "consume": {"rate_per_s", "ceiling_scan_per_s", "ratio", "bound_by"},
    "latency": {"produce_p50_us", "bare_grpc_p50_us", "bare_lmdb_p50_us", "ratio"},
    "dedup": {"live_messages", "file_bytes", "memory_growth_alone", "beside_a_sleeping_consumer"},
}


@pytest.mark.parametrize("name", SMALL)
def test_a_small_run_prints_its_figures_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    figures = Kayos("").ok("bench", name, *SMALL[name], "--directory", str(tmp_path)).json
    assert figures["bench"] == name
    assert FIELDS[name] <= set(figures)
    assert list(tmp_path.iterdir()) == []
    if name == "dedup":
        assert figures["live_messages"] == 100
    else:
        assert figures["ratio"] > 0
