"""Section "Storage Engine". The paper names Couchstore and ForestDB; Kayos stands on LMDB, which has the properties
that the paper asks for. `kill -9` and power loss in the middle of commits are tested in tests/storage.
"""

import threading

import pytest

from kayos.model.control import CreatePin, EndPin
from kayos.model.write import Batch
from kayos.storage.compaction import Compaction
from kayos.storage.lmdb_store import LmdbStore
from tests.storage.helpers import log_of, pin_rows, put, write


def test_what_is_batched_is_made_durable_by_one_commit(disk: LmdbStore) -> None:
    """The claim "Fast Durability": a hundred requests with all their rows are one transaction, one fsync."""
    before = disk.env.last_transaction
    write(disk, *(put((f"k{number}", "v")) for number in range(100)))
    assert disk.env.last_transaction == before + 1


def test_nothing_is_visible_until_it_is_safely_committed(disk: LmdbStore) -> None:
    """The claim "ACID": before the fsync, when the batch is forwarded already, readers see the old state."""
    write(disk, put(("a", "1")))
    seen: list[list[str]] = []
    disk.commit([put(("a", "2"), ("b", "2"))], now_ms=2000, forward=lambda batch: seen.append(log_of(disk)))
    assert seen == [["1 a=1"]]
    assert log_of(disk) == ["2 a=2", "3 b=2"]


def test_a_commit_that_fails_half_way_leaves_no_trace(disk: LmdbStore) -> None:
    """A crash during a commit attempt: what was not committed is as if it had never been."""
    write(disk, put(("a", "1")))
    before = list(disk.dump())

    class PowerCutError(Exception):
        pass

    def cut(batch: Batch) -> None:
        raise PowerCutError

    with pytest.raises(PowerCutError):
        disk.commit([put(("a", "2"), ("b", "2"))], now_ms=2000, forward=cut)
    assert list(disk.dump()) == before
    disk.reopen()
    assert list(disk.dump()) == before


def test_commits_are_ordered_singly_and_in_bulk(disk: LmdbStore) -> None:
    """The claim "ACID": strict order for single and bulk commits alike."""
    results = [*write(disk, put(("a", "1"))), *write(disk, put(("b", "1"), ("c", "1")), put(("d", "1")))]
    assert [(result.first_seq, result.last_seq) for result in results] == [(1, 1), (2, 3), (4, 4)]
    assert [row.split()[0] for row in log_of(disk)] == ["1", "2", "3", "4"]


def test_any_number_of_snapshots_of_different_versions_beside_updates(disk: LmdbStore) -> None:
    """The claim "MVCC snapshotting": twenty versions are read in threads while the writer goes on."""
    for number in range(20):
        write(disk, put(("a", f"v{number}")))
        write(disk, CreatePin(f"p{number}", 60_000))
    wrong: list[tuple[int, list[str]]] = []

    def read(number: int) -> None:
        for _ in range(20):
            rows = pin_rows(disk, f"p{number}")
            if [row.split()[1] for row in rows] != [f"a=v{number}"]:
                wrong.append((number, rows))

    readers = [threading.Thread(target=read, args=(number,)) for number in range(20)]
    for reader in readers:
        reader.start()
    for number in range(50):
        write(disk, put(("a", f"later-{number}")))
    for reader in readers:
        reader.join(30)
    assert wrong == []


def test_an_open_snapshot_costs_only_what_was_replaced(disk: LmdbStore) -> None:
    """Snapshots are cheap: a pin of a thousand keys keeps the one row that was replaced since."""
    write(disk, put(*((f"k{number}", "v" * 100) for number in range(1_000))))
    write(disk, CreatePin("p", 60_000))
    assert disk.usage().retained == 0
    for number in range(10):
        write(disk, put(("k7", f"{number}")))
    assert disk.usage().retained == 1


def test_a_file_of_overwrites_does_not_grow_for_ever(disk: LmdbStore) -> None:
    """Here LMDB differs from a file that only grows at its tail: pages of old versions are used again, so a store that
    is overwritten all the time needs no compaction to stay small."""

    def overwrite(times: int) -> int:
        for number in range(times):
            write(disk, put(*((f"k{key}", f"{number}" * 20) for key in range(50))))
        return disk.usage().file_bytes

    first = overwrite(30)
    assert overwrite(150) <= first + 64 * 4096


def test_compaction_does_not_pause_writes_and_gives_space_back(disk: LmdbStore) -> None:
    """The claim "Pauseless compaction": copy live data into a new file while writes go on, catch up, swap."""
    write(disk, put(*((f"k{number}", "v" * 1_000) for number in range(2_000))))
    write(disk, CreatePin("p", 60_000), EndPin("p", "released"))
    write(disk, put(*((f"k{number}", "") for number in range(2_000))))
    compaction = Compaction(disk)
    copying = threading.Thread(target=compaction.prepare)
    copying.start()
    written = 0
    while copying.is_alive() or not written:
        write(disk, put((f"during-{written % 10}", str(written))))
        written += 1
    copying.join()
    write(disk, put(("after", "1")))
    before = list(disk.dump())
    compaction.swap()
    assert list(disk.dump()) == before
    assert compaction.bytes_after < compaction.bytes_before / 2
    write(disk, put(("k0", "goes on")))
