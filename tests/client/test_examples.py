"""The examples of the three consistency levels run as they are, against one node and against a chain of three."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kayos
from tests.chains import TOPIC, Cluster
from tests.nodes import NodeProcess

ROOT = Path(__file__).parents[2]
NAMES = ["global_causal", "per_key_causal", "eventual"]
TIMEOUT_S = 60


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"kayos.client.examples.{name}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with NodeProcess.start(tmp_path_factory.mktemp("node"), map_bytes=1 << 28) as started:
        yield started.address


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.start(tmp_path_factory.mktemp("chain"), map_bytes=1 << 28) as started:
        yield started


@pytest.mark.parametrize("name", NAMES)
def test_alone_twice_in_one_topic(name: str, node: str) -> None:
    """It makes its topic, and a second run is not confused by what the first one left."""
    for _ in range(2):
        done = run(name, "--servers", node, "--writes", "50")
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_on_a_chain_of_three(name: str, cluster: Cluster) -> None:
    """In a static cluster the topic is the file's."""
    done = run(name, "--servers", cluster.servers, "--topic", TOPIC, "--writes", "50")
    assert done.returncode == 0, done.stdout + done.stderr
    if name == "eventual":
        assert "has 3 now" in done.stdout


def test_the_books_balance_while_the_head_dies(tmp_path: Path) -> None:
    with Cluster.start(tmp_path, map_bytes=1 << 28) as cluster:
        arguments = ["--servers", cluster.servers, "--topic", TOPIC, "--writes", "400"]
        example = subprocess.Popen(
            [sys.executable, "-m", "kayos.client.examples.global_causal", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            cluster.wait_for(lambda: cluster.status("a").high_seq > 50, "transfers are under way")
            cluster.kill("a")
            cluster.remove("a")
            output, _ = example.communicate(timeout=TIMEOUT_S)
        finally:
            example.kill()
            example.wait()
        assert example.returncode == 0, output
        assert "400 transfers" in output
        with kayos.connect(cluster.servers) as client:
            assert len(client.topics.describe(TOPIC).shards[0].takeover) == 2


@pytest.mark.parametrize("name", NAMES)
def test_help_says_what_is_promised(name: str) -> None:
    done = run(name, "--help")
    assert done.returncode == 0 and "Exits with 0 only if" in " ".join(done.stdout.split())


def test_what_cannot_be_is_refused_with_a_word(node: str) -> None:
    done = run("eventual", "--servers", node, "--writes", "0")
    assert done.returncode == 2 and "give 1 or more" in done.stderr
