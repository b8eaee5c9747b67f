"""One node process for most tests of a worker, and the command line that speaks to it."""

import itertools
from collections.abc import Iterator

import pytest

from tests.cli.command import Kayos
from tests.nodes import NodeProcess

_names = itertools.count(1)


@pytest.fixture(scope="session")
def cli_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess.start(tmp_path_factory.mktemp("cli") / "data", map_bytes=1 << 30) as node:
        yield node
        assert node.stop() == 0
    assert not [entry for entry in node.log if entry["event"] == "internal error"]


@pytest.fixture
def kayos(cli_node: NodeProcess) -> Kayos:
    return Kayos(cli_node.address)


@pytest.fixture
def topic(kayos: Kayos) -> str:
    """The name of a fresh topic of mode compact with one shard."""
    name = f"topic-{next(_names)}"
    kayos.ok("topic", "create", name)
    return name
