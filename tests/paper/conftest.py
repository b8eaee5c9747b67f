"""Stores for claims about one copy: the real one and its in-memory twin. A cluster for claims about several."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import kayos
from kayos.model.takeover import TakeoverRow
from kayos.storage.check import check_store
from kayos.storage.interface import Store
from kayos.storage.lmdb_store import LmdbStore, StoreOptions
from tests.chains import Cluster
from tests.storage.helpers import COMPACT, HISTORY, new_memory


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LmdbStore]:
    """The LMDB store of a head; sound when the test is over."""
    opened = LmdbStore.open(tmp_path / "store", COMPACT, StoreOptions(map_bytes=1 << 28))
    opened.take_over(TakeoverRow(HISTORY, 0, 1))
    yield opened
    opened.close()
    assert check_store(opened.directory).problems == ()


@pytest.fixture(params=["lmdb", "memory"])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue("disk") if request.param == "lmdb" else new_memory()
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Producer(s) → a → b → c → consumer(s); shared by the tests of a file, which leave it whole."""
    with Cluster.start(tmp_path_factory.mktemp("chain"), map_bytes=1 << 28) as started:
        started.wait_until_serving()
        yield started
        started.wait_until_whole()


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[kayos.Client]:
    with kayos.connect(cluster.servers) as connected:
        yield connected
