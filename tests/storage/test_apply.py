"""Several batches in one commit: a replica ends as if each had been applied alone, on both stores."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kayos.errors import DamagedRecord, FailedPrecondition, Gap, KayosError, StaleEpoch
from kayos.model.control import CommitMark, Control, CreatePin, EndPin, Expire, ForgetProducers, Purge
from kayos.model.mark import Mark
from kayos.model.producer import ProducerStamp
from kayos.model.record import encode_record
from kayos.model.takeover import TakeoverRow, TakeoverTable
from kayos.model.write import Batch, WriteRequest
from kayos.storage.check import check_store
from kayos.storage.interface import Store
from kayos.storage.lmdb_store import LmdbStore, StoreOptions
from kayos.storage.memory import MemoryStore

from .helpers import COMPACT, HISTORY, NEXT_HISTORY, delete, new_memory, put, retained_of, wrap

P = ProducerStamp(b"p", 1, 1)
Groups = list[list[WriteRequest | Control]]

# Groups of a head; each is a batch.
STORIES: dict[str, Groups] = {
    "a key again and again": [[put(("a", str(number)))] for number in range(5)],
    "put, delete, put": [[put(("a", "1"))], [delete("a")], [put(("a", "2"))], [delete("a")]],
    "what was to expire is replaced": [[put(("a", "1"), ttl_ms={0: 5})], [put(("a", "2"))], [put(("b", "1"))]],
    "expired in its own group": [[put(("a", "1"))], [put(("b", "1")), Expire(0, 0, 2)], [put(("a", "2"))]],
    "a purge between": [[delete("a")], [Purge(1)], [put(("a", "1"))], [delete("a")]],
    "a pin between": [[put(("a", "1"))], [CreatePin("p", 9)], [put(("a", "2"))], [put(("a", "3"))], [put(("a", "4"))]],
    "a pin that ends between": [
        [put(("a", "1")), CreatePin("p", 9)],
        [put(("a", "2"))],
        [EndPin("p", "x")],
        [put(("a", "3"))],
    ],
    "two pins": [
        [put(("a", "1"), ("b", "1")), CreatePin("p", 9)],
        [put(("a", "2"))],
        [put(("a", "3")), CreatePin("q", 9)],
        [put(("a", "4"), ("b", "2"))],
        [delete("a")],
    ],
    "producers that are forgotten": [
        [put(("a", "1"), producer=P)],
        [put(("b", "1"), producer=ProducerStamp(b"q", 1, 1))],
        [ForgetProducers(1)],
        [put(("a", "2"), producer=ProducerStamp(b"q", 1, 2))],
    ],
    "marks": [[put(("a", "1"))], [CommitMark("c", Mark(HISTORY, 1))], [CommitMark("c", Mark(HISTORY, 2))]],
    "long and unkeyed": [[put(("k" * 511, "1"), ("", "1"))], [put(("k" * 511, "2"), ("", "2"), ("k" * 512, "1"))]],
}


def batches_of(groups: Groups) -> tuple[MemoryStore, list[Batch]]:
    head, batches = new_memory(), []
    for number, group in enumerate(groups):
        head.commit([wrap(request) for request in group], now_ms=1000 + number, forward=batches.append)
    return head, batches


@pytest.fixture(params=["lmdb", "memory"])
def replica(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        yield (store := MemoryStore(COMPACT))
        return
    store = LmdbStore.open(tmp_path / "replica", COMPACT, StoreOptions(map_bytes=1 << 28))
    yield store
    store.close()
    assert check_store(store.directory).problems == ()


@pytest.mark.parametrize("size", [1, 2, 3, 9])
@pytest.mark.parametrize("groups", STORIES.values(), ids=STORIES)
def test_however_batches_are_grouped_the_state_is_the_head_s(replica: Store, groups: Groups, size: int) -> None:
    head, batches = batches_of(groups)
    replica.adopt_takeover(head.state.takeover, 1)
    for at in range(0, len(batches), size):
        replica.apply(batches[at : at + size], commit_point=batches[at].previous_seq)
    assert list(replica.dump()) == list(head.dump())
    assert retained_of(replica) == retained_of(head)
    last_group = batches[(len(batches) - 1) // size * size]
    assert replica.state.commit_point == last_group.previous_seq


def test_commit_and_apply_save_the_commit_point_and_it_never_falls(replica: Store) -> None:
    replica.take_over(TakeoverRow(HISTORY, 0, 1))
    seen = []
    for commit_point in (1, 5, 3):
        replica.commit([put(("a", "1"))], now_ms=1, commit_point=commit_point)
        seen.append(replica.state.commit_point)
    replica.commit([put()], now_ms=1, commit_point=9)  # refused: nothing is written
    replica.apply([], commit_point=9)
    assert [*seen, replica.state.commit_point] == [1, 5, 5, 5]


def spoiled(batches: Sequence[Batch]) -> dict[str, tuple[list[Batch], type[KayosError]]]:
    first, second, third = batches
    unknown = encode_record(2, 7, 0, b"a", b"v")
    return {
        "a hole": ([first, third], Gap),
        "out of order": ([second, first, third], Gap),
        "an old head's behind a new one's": ([replace(first, epoch=5), second], StaleEpoch),
        "damage in the last": ([first, second, replace(third, records=(third.records[0][:-1],))], DamagedRecord),
        "a record of the batch before": ([first, replace(second, records=first.records)], DamagedRecord),
        "another kind": ([first, replace(second, records=(unknown,))], DamagedRecord),
    }


@pytest.mark.parametrize("case", spoiled(batches_of([[put(("a", "1"))]] * 3)[1]))
def test_one_bad_batch_spoils_the_call(replica: Store, case: str) -> None:
    _, batches = batches_of([[put(("a", "1"))]] * 3)
    bad, error = spoiled(batches)[case]
    before, state = list(replica.dump()), replica.state
    with pytest.raises(error):
        replica.apply(bad, commit_point=1)
    assert (list(replica.dump()), replica.state) == (before, state)
    replica.apply(batches)
    replica.apply([*batches, *batches])


def test_a_table_is_adopted_only_where_it_fits(replica: Store) -> None:
    row = TakeoverRow(HISTORY, 0, 1)
    for table in (
        TakeoverTable((TakeoverRow(HISTORY, 1, 1),)),
        TakeoverTable((row, row)),
        TakeoverTable((TakeoverRow(b"short", 0, 1),)),
    ):
        with pytest.raises(FailedPrecondition):
            replica.adopt_takeover(table, 9)
    assert replica.state.epoch == 0
    replica.adopt_takeover(TakeoverTable((row,)), 4)
    replica.adopt_takeover(TakeoverTable((TakeoverRow(NEXT_HISTORY, 0, 2),)), 2)
    assert (replica.state.takeover.current_history_id, replica.state.epoch) == (NEXT_HISTORY, 4)
