"""Views of a store at boundaries of the past: what readers see while the commit point lags behind."""

from pathlib import Path

import pytest

from kayos.errors import Unavailable
from kayos.limits import KEPT_VIEWS_MAX
from kayos.model.takeover import TakeoverRow
from kayos.model.topic import Mode
from kayos.model.write import WriteRequest
from kayos.storage import kept_views
from kayos.storage.compaction import Compaction
from kayos.storage.interface import Identity
from kayos.storage.lmdb_store import LmdbStore, StoreOptions
from kayos.storage.memory import MemoryStore

IDENTITY = Identity("0123456789abcdef", 0, Mode.COMPACT)


class Chain:
    """A head in memory and the LMDB store of a tail that applies what the head writes."""

    def __init__(self, directory: Path) -> None:
        self.head = MemoryStore(IDENTITY)
        self.head.take_over(TakeoverRow(b"h" * 16, 0, 1))
        self.tail = LmdbStore.open(directory, IDENTITY, StoreOptions(map_bytes=1 << 26))
        self.tail.adopt_takeover(self.head.state.takeover, 1)

    def write(self, value: bytes, *, commit_point: int) -> int:
        """The tail knows of this commit point when the write arrives."""
        batch = self.head.commit([WriteRequest(keys=[b"k"], values=[value])], now_ms=1).batch
        assert batch is not None
        self.tail.keep_view(commit_point)
        self.tail.apply([batch])
        return batch.last_seq


def value_at(chain: Chain, commit_point: int) -> bytes:
    view = chain.tail.find_view(commit_point)
    assert view is not None
    record = view.get(b"k")
    assert record is not None
    return record.value


def test_while_the_commit_point_stands_still_the_last_released_boundary_is_served(tmp_path: Path) -> None:
    chain = Chain(tmp_path / "tail")
    for seq in range(1, 6):
        chain.write(b"v%d" % seq, commit_point=seq - 1)
    # Given a fault: 4 is the last that was released, and writes go on.
    for seq in range(6, 30):
        chain.write(b"v%d" % seq, commit_point=4)
        assert value_at(chain, 4) == b"v4"
    view = chain.tail.find_view(4)
    assert view is not None and view.seq == 4
    assert [stored[-6:-4] for stored in view.read_log(0, bytes_max=1_000).records] == [b"v4"]
    # When it is over, the newest state is there at once, and what was kept goes with the next write.
    chain.write(b"last", commit_point=29)
    assert value_at(chain, 29) == b"v29"
    with pytest.raises(Unavailable):
        view.get(b"k")


def test_views_are_bounded_in_number_and_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain(tmp_path / "tail")
    for seq in range(1, 50):
        chain.write(b"v%d" % seq, commit_point=0)
    assert len(chain.tail._views._views) == KEPT_VIEWS_MAX
    monkeypatch.setattr(kept_views, "KEPT_VIEW_S_MAX", 0.0)
    chain.write(b"v", commit_point=0)
    chain.write(b"v", commit_point=0)
    assert len(chain.tail._views._views) == 1


def test_compaction_closing_and_a_copy_beside_let_go_of_views(tmp_path: Path) -> None:
    chain = Chain(tmp_path / "tail")
    chain.write(b"v1", commit_point=0)
    chain.write(b"v2", commit_point=1)
    compaction = Compaction(chain.tail)
    compaction.prepare()
    compaction.swap()
    assert chain.tail.find_view(2) is None
    chain.write(b"v3", commit_point=2)
    assert value_at(chain, 2) == b"v2"
    chain.tail.begin_copy(is_clone=True)
    assert chain.tail.find_view(3) is None
    chain.tail.cancel_copy()
    chain.write(b"v4", commit_point=3)
    assert value_at(chain, 3) == b"v3"
    chain.tail.close()
