"""One node for most stories; each story runs with both shells."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.shells import SHELLS
from tests.nodes import NodeProcess

_names = itertools.count(1)


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    data: Path = tmp_path_factory.mktemp("client-node") / "data"
    # Snapshots above 256 KiB come from pins, so that the stories meet both kinds.
    with NodeProcess.start(data, snapshot_copy_bytes_max=256 * 1024, map_bytes=1 << 30) as node:
        yield node
        assert node.stop() == 0
    assert not [entry for entry in node.log if entry["event"] == "internal error"]


@pytest.fixture(params=sorted(SHELLS))
def connect(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`connect(address, **settings)` of one shell."""
    return SHELLS[request.param]


@pytest.fixture
async def client(connect: Callable[..., Any], node: NodeProcess) -> AsyncIterator[Any]:
    async with connect(node.address) as client:
        yield client


@pytest.fixture
def topic_name() -> str:
    return f"topic-{next(_names)}"


@pytest.fixture
async def topic(client: Any, topic_name: str) -> str:
    """A fresh topic of one shard."""
    await client.topics.create(topic_name)
    return topic_name


@pytest.fixture
async def sharded(client: Any, topic_name: str) -> str:
    """A fresh topic of four shards."""
    await client.topics.create(topic_name, shards=4)
    return topic_name
