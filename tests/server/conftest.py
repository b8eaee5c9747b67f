"""One node process for most tests of a worker; tests that kill or configure a node start their own."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.nodes import NodeProcess
from tests.server.calls import Calls

_names = itertools.count(1)


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    data: Path = tmp_path_factory.mktemp("node") / "data"
    # Housekeeping runs fast and snapshots above 256 KiB come from pins, so that tests meet both soon.
    with NodeProcess.start(
        data, maintenance_interval_s=0.05, snapshot_copy_bytes_max=256 * 1024, map_bytes=1 << 30
    ) as node:
        yield node
        assert node.stop() == 0
    assert not [entry for entry in node.log if entry["event"] == "internal error"]


@pytest.fixture
async def calls(node: NodeProcess) -> AsyncIterator[Calls]:
    async with Calls(node.address) as calls:
        yield calls


@pytest.fixture
async def topic(calls: Calls) -> str:
    """The name of a fresh topic of mode compact."""
    name = f"topic-{next(_names)}"
    await calls.create_topic(name)
    return name


@pytest.fixture
async def log_topic(calls: Calls) -> str:
    """The name of a fresh topic of mode log."""
    name = f"log-{next(_names)}"
    await calls.create_topic(name, mode=2)
    return name
