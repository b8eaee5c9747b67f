"""Two replicas' stores, proven equal at one boundary or told apart."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kayos.model.control import CommitMark, CreatePin, EndPin
from kayos.model.mark import Mark
from kayos.model.producer import ProducerStamp
from kayos.model.takeover import TakeoverRow
from kayos.model.write import Batch
from kayos.storage.compare import Comparison, compare_stores
from kayos.storage.interface import Identity
from kayos.storage.lmdb_store import LmdbStore, StoreOptions

from .helpers import COMPACT, HISTORY, NEXT_HISTORY, delete, find_rollback, put, wrap

OPTIONS = StoreOptions(map_bytes=1 << 28)
P = ProducerStamp(b"producer", 1, 1)


class Chain:
    """A head and a replica that is fed its batches."""

    def __init__(self, root: Path, identity: Identity = COMPACT) -> None:
        self.head, self.replica = (LmdbStore.open(root / name, identity, OPTIONS) for name in ("head", "replica"))
        self.head.take_over(TakeoverRow(HISTORY, 0, 1))
        self.replica.adopt_takeover(self.head.state.takeover, 1)

    def write(self, *requests: object) -> Batch:
        batch = self.head.commit([wrap(request) for request in requests], now_ms=1000).batch
        assert batch is not None
        return batch

    def compare(self) -> Comparison:
        self.head.close()
        self.replica.close()
        return compare_stores(self.head.directory, self.replica.directory)


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    chain = Chain(tmp_path)
    batches = [
        chain.write(put(("a", "1"), ("b", "1"), ("", "u"), producer=P), CreatePin("p", 9)),
        chain.write(put(("a", "2")), delete("b"), CommitMark("c", Mark(HISTORY, 3))),
        chain.write(put(("n", "1")), CreatePin("q", 9)),
        chain.write(put(("n", "2"))),
    ]
    chain.replica.apply(batches)
    return chain


def test_equal_replicas(chain: Chain) -> None:
    chain.head.save_commit_point(5)
    chain.head.save_epoch(9)
    assert chain.compare() == Comparison((10, 10))


def test_retained_rows_that_no_pin_needs_are_a_copy_s_own(chain: Chain) -> None:
    batch = chain.write(EndPin("p", "released"))
    chain.replica.apply([batch])
    assert chain.head.sweep_retained(1000)
    assert chain.head.usage().retained < chain.replica.usage().retained
    assert chain.compare().is_equal


def diverge(chain: Chain, *requests: object) -> None:
    """The replica writes one thing and the head another, as many sequences of each."""
    chain.replica.commit([wrap(request) for request in requests], now_ms=1000)


DIFFERENCES: dict[str, tuple[Callable[[Chain], object], str]] = {
    "another value": (
        lambda chain: (chain.write(put(("a", "3"))), diverge(chain, put(("a", "4")))),
        "sequence 11 differs",
    ),
    "a row missing": (lambda chain: (chain.write(put(("a", "3"))), diverge(chain, put(("x", "3")))), "sequence 5"),
    "another mark": (
        lambda chain: (
            chain.write(CommitMark("c", Mark(HISTORY, 4))),
            diverge(chain, CommitMark("d", Mark(HISTORY, 4))),
        ),
        "the mark of 'd' stands in",
    ),
    "another pin": (
        lambda chain: (chain.write(CreatePin("x", 5)), diverge(chain, CreatePin("x", 6))),
        "pin 'x' differs",
    ),
    "another producer's row": (
        lambda chain: (
            chain.write(put(("a", "1"), producer=P._replace(number=2))),
            diverge(chain, put(("a", "1"))),
        ),
        f"producer {P.producer_id.hex()} differs",
    ),
    "another table": (
        lambda chain: chain.replica.take_over(TakeoverRow(NEXT_HISTORY, 10, 2)),
        "the takeover tables differ",
    ),
}


@pytest.mark.parametrize(("change", "told"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_differences_are_named(chain: Chain, change: Callable[[Chain], object], told: str) -> None:
    change(chain)
    found = chain.compare()
    assert not found.is_equal
    assert any(told in difference for difference in found.differences), found.differences


def test_one_that_is_behind_may_be_an_earlier_state(chain: Chain) -> None:
    chain.write(put(("a", "3"), ("z", "1")))
    found = chain.compare()
    assert (found.high_seqs, found.is_equal, found.is_prefix) == ((12, 10), False, True)
    assert len(found.differences) == 1
    assert "replica ends at 10" in found.differences[0] and "is an earlier state" in found.differences[0]


def test_one_that_is_behind_in_another_history_is_told(chain: Chain) -> None:
    chain.replica.take_over(TakeoverRow(NEXT_HISTORY, 10, 2))
    chain.replica.commit([put(("a", "x"), ("y", "1"))], now_ms=2000)
    chain.write(put(("b", "3"), ("z", "1"), ("z2", "1")))
    found = chain.compare()
    assert not found.is_prefix
    assert "is not an earlier state" in found.differences[0]
    assert "their histories differ at or below 12" in found.differences
    assert any(difference.startswith("sequence 5 stands in") for difference in found.differences)


def test_what_cannot_be_compared(chain: Chain, tmp_path: Path) -> None:
    other = Chain(tmp_path / "other", replace(COMPACT, shard=7))
    other.compare()
    chain.head.take_over(TakeoverRow(NEXT_HISTORY, 10, 2))
    chain.write(put(("a", "3")))
    chain.replica.take_over(TakeoverRow(b"history-rival-03", 10, 3))
    chain.replica.commit([put(("a", "x"))], now_ms=2000)
    chain.replica.roll_back(find_rollback(chain.replica, chain.head, 10))
    assert "catching_up" in chain.compare().differences[0]
    shards = compare_stores(chain.head.directory, other.head.directory)
    assert "different shards" in shards.differences[0]
    data = next(chain.head.directory.glob("env.*/data.mdb"))
    data.write_bytes(data.read_bytes()[:-5000])
    assert "is damaged" in compare_stores(chain.head.directory, chain.replica.directory).differences[0]
