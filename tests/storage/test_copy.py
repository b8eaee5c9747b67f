"""A full copy beside the store: the old one stays until the new one is whole, whatever happens in between."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kayos.errors import DamagedStore, FailedPrecondition, KayosError, ResetRequired, Unavailable, WriteUnknown
from kayos.model.control import Purge
from kayos.model.takeover import TakeoverRow
from kayos.storage import generation
from kayos.storage.check import check_store
from kayos.storage.compaction import Compaction
from kayos.storage.interface import Store
from kayos.storage.lmdb_store import LmdbStore, StoreOptions
from kayos.storage.memory import MemoryStore

from .helpers import (
    COMPACT,
    EVERYTHING,
    NEXT_HISTORY,
    catch_up,
    decoded,
    delete,
    find_rollback,
    log_of,
    new_memory,
    put,
    wrap,
    write,
)

OPTIONS = StoreOptions(map_bytes=1 << 28)


def upstream_of_another_history() -> MemoryStore:
    upstream = MemoryStore(COMPACT)
    upstream.take_over(TakeoverRow(NEXT_HISTORY, 0, 5))
    write(upstream, put(("a", "9"), ("b", "9"), ("c", "9")))
    return upstream


def open_old(directory: Path) -> LmdbStore:
    store = LmdbStore.open(directory, COMPACT, OPTIONS)
    store.take_over(TakeoverRow(b"history-old-0000", 0, 1))
    write(store, put(("a", "old"), ("x", "old")))
    return store


class Kept:
    """A store of either kind, and what a crash makes of it."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def crash(self) -> Store:
        if isinstance(self.store, MemoryStore):
            self.store = self.store.copy()
        else:
            self.store.close()
            assert check_store(self.store.directory).problems == ()
            self.store = LmdbStore.open(self.store.directory, COMPACT, OPTIONS)
        return self.store


@pytest.fixture(params=["lmdb", "memory"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    if request.param == "memory":
        memory = MemoryStore(COMPACT)
        memory.take_over(TakeoverRow(b"history-old-0000", 0, 1))
        write(memory, put(("a", "old"), ("x", "old")))
        yield Kept(memory)
        return
    kept = Kept(open_old(tmp_path / "store"))
    yield kept
    kept.crash().close()


@pytest.mark.parametrize("is_clone", [False, True], ids=["empty", "clone"])
def test_a_crash_before_the_end_leaves_the_old_store(kept: Kept, is_clone: bool) -> None:
    before, incarnation = list(kept.store.dump()), kept.store.state.incarnation
    kept.store.begin_copy(is_clone=is_clone)
    state = kept.store.state
    assert (state.is_copying, state.incarnation, state.epoch) == (True, incarnation, 1)
    assert (state.high_seq, state.sync.is_ready) == ((2, True) if is_clone else (0, False))
    for write_call in (
        lambda: kept.store.commit([put(("a", "1"))], now_ms=1),
        lambda: kept.store.apply([]),
        lambda: kept.store.take_over(TakeoverRow(NEXT_HISTORY, state.high_seq, 9)),
    ):
        with pytest.raises(FailedPrecondition):
            write_call()
    if not is_clone:
        upstream = upstream_of_another_history()
        kept.store.apply_catch_up(upstream.read_catch_up(0, start_seq=0, bytes_max=1))
        with pytest.raises(Unavailable):
            kept.store.read_log(0, bytes_max=1)
    crashed = kept.crash()
    assert list(crashed.dump()) == before
    assert crashed.state.sync.is_ready and not crashed.state.is_copying
    write(crashed, put(("a", "1")))


def test_the_whole_copy_replaces_the_store(kept: Kept) -> None:
    upstream, incarnation = upstream_of_another_history(), kept.store.state.incarnation
    kept.store.save_commit_point(2)
    kept.store.begin_copy()
    catch_up(kept.store, upstream, bytes_max=1)
    state = kept.store.state
    assert (state.incarnation, state.commit_point, state.is_copying, state.sync.is_ready) == (
        incarnation,
        2,
        False,
        True,
    )
    assert list(kept.store.dump()) == list(upstream.dump())
    assert list(kept.crash().dump()) == list(upstream.dump())
    assert kept.store.state.commit_point == 2
    kept.store.apply([upstream.commit([put(("a", "10"))], now_ms=9).batch])
    assert log_of(kept.store) == ["2 b=9", "3 c=9", "4 a=10"]


def test_what_is_saved_during_a_copy_survives_a_crash(kept: Kept) -> None:
    kept.store.begin_copy()
    kept.store.save_epoch(7)
    kept.store.save_commit_point(1)
    assert (kept.store.state.epoch, kept.store.state.commit_point) == (7, 1)
    crashed = kept.crash()
    assert (crashed.state.epoch, crashed.state.commit_point) == (7, 1)


def test_a_copy_is_cancelled_or_begun_anew(kept: Kept) -> None:
    before = list(kept.store.dump())
    kept.store.cancel_copy()
    kept.store.begin_copy()
    kept.store.save_epoch(3)
    upstream = upstream_of_another_history()
    kept.store.apply_catch_up(upstream.read_catch_up(0, start_seq=0, bytes_max=1))
    # A purge that the first piece did not know of: rows cannot tell, so it is begun anew.
    write(upstream, delete("a"), Purge(4))
    with pytest.raises(ResetRequired):
        catch_up(kept.store, upstream, bytes_max=EVERYTHING)
    assert kept.store.state.sync.through_seq == 1
    kept.store.begin_copy()
    assert (kept.store.state.sync.through_seq, kept.store.state.epoch) == (0, 3)
    kept.store.cancel_copy()
    assert (kept.store.state.epoch, kept.store.state.is_copying, kept.store.state.high_seq) == (3, False, 2)
    assert list(kept.store.dump())[1:] == before[1:]
    kept.store.begin_copy()
    catch_up(kept.store, upstream)
    assert list(kept.store.dump()) == list(upstream.dump())


# What the LMDB store has beside its twin


def test_old_files_go_when_the_copy_is_whole(tmp_path: Path) -> None:
    store, upstream = open_old(tmp_path), upstream_of_another_history()
    store.begin_copy()
    assert len(list(tmp_path.glob("env.*"))) == 2
    catch_up(store, upstream)
    assert list(tmp_path.glob("env.*")) == [generation.environment_path(tmp_path, store.generation)]
    store.begin_copy()
    store.cancel_copy()
    assert len(list(tmp_path.glob("env.*"))) == 1
    store.close()


def test_an_error_of_the_switch_leaves_one_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, upstream = open_old(tmp_path), upstream_of_another_history()
    before = list(store.dump())
    store.begin_copy()

    def fail(directory: Path, number: int) -> None:
        raise OSError(5, "the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(generation, "write_current", fail)
        with pytest.raises(WriteUnknown):
            catch_up(store, upstream)
    with pytest.raises(Unavailable):
        store.save_epoch(9)
    store.reopen()
    assert list(store.dump()) == before
    store.begin_copy()
    catch_up(store, upstream)
    assert list(store.dump()) == list(upstream.dump())
    store.close()


def test_readers_see_the_old_or_the_new_and_never_half(tmp_path: Path) -> None:
    store, stopping = open_old(tmp_path), threading.Event()
    keys = [f"k{number}" for number in range(40)]
    write(store, *(delete(key) for key in ("a", "x")), put(*((key, "0") for key in keys)))
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not stopping.is_set():
                try:
                    records = decoded(store.read_log(0, bytes_max=EVERYTHING, tombstones=False).records)
                except Unavailable:
                    continue
                assert len(records) == len(keys)
                assert len({record.value for record in records}) == 1
        except BaseException as failure:
            failures.append(failure)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for turn in range(1, 15):
        upstream = MemoryStore(COMPACT)
        upstream.take_over(TakeoverRow(b"history %08d" % turn, 0, turn + 1))
        write(upstream, put(*((key, str(turn)) for key in keys)))
        store.begin_copy()
        catch_up(store, upstream, bytes_max=1000)
    stopping.set()
    for reader in readers:
        reader.join(timeout=30)
    store.close()
    assert not failures


def compaction_then(store: LmdbStore, happens: Callable[[], object]) -> KayosError | None:
    compaction = Compaction(store)
    compaction.prepare()
    happens()
    try:
        compaction.swap()
    except KayosError as error:
        compaction.abandon()
        return error
    return None


def test_a_compaction_keeps_what_was_saved_meanwhile(tmp_path: Path) -> None:
    store = open_old(tmp_path)

    def save() -> None:
        store.save_commit_point(2)
        store.save_epoch(8)
        store.commit([put(("a", "1"))], now_ms=1, commit_point=1)

    assert compaction_then(store, save) is None
    assert (store.state.commit_point, store.state.epoch, store.state.high_seq) == (2, 8, 3)
    store.reopen()
    assert (store.state.commit_point, store.state.epoch, store.state.high_seq) == (2, 8, 3)
    store.close()


def test_a_compaction_is_void_when_the_log_was_rolled_back(tmp_path: Path) -> None:
    """The copy holds what was undone: following by rows, it would never learn."""
    upstream = new_memory()
    store = LmdbStore.open(tmp_path, COMPACT, OPTIONS)
    store.adopt_takeover(upstream.state.takeover, 1)
    store.apply([upstream.commit([wrap(put(("a", "1"), ("b", "1")))], now_ms=1).batch])
    store.take_over(TakeoverRow(b"history-rival-03", 2, 2))
    write(store, put(("a", "x"), ("n", "x")))
    upstream.take_over(TakeoverRow(NEXT_HISTORY, 2, 3))
    write(upstream, put(("c", "1"), ("d", "1"), ("e", "1")))

    def roll_back() -> None:
        store.roll_back(find_rollback(store, upstream, 2))
        catch_up(store, upstream, all_retained=True)

    assert isinstance(compaction_then(store, roll_back), FailedPrecondition)
    assert list(store.dump()) == list(upstream.dump())
    # Nor does it go on while a copy is filled, or the store is not whole.
    assert isinstance(compaction_then(store, store.begin_copy), FailedPrecondition)
    with pytest.raises(Unavailable):
        Compaction(store).prepare()
    store.cancel_copy()
    assert compaction_then(store, lambda: None) is None
    store.close()
    assert check_store(tmp_path).problems == ()


def test_a_store_that_is_not_whole_is_reopened_as_it_was(tmp_path: Path) -> None:
    store, upstream = LmdbStore.open(tmp_path, COMPACT, OPTIONS), upstream_of_another_history()
    store.apply_catch_up(upstream.read_catch_up(0, start_seq=0, bytes_max=1))
    state, known = store.state, store.place.known_transaction
    # As after a commit whose fsync failed and that shows all the same: it is copied to be sure.
    store.place.known_transaction = known - 1
    store.reopen()
    assert (store.state.sync, store.state.high_seq, store.generation) == (state.sync, 0, 2)
    catch_up(store, upstream)
    assert list(store.dump()) == list(upstream.dump())
    store.close()
    (generation.environment_path(tmp_path, 2) / "data.mdb").unlink()
    with pytest.raises(DamagedStore):
        LmdbStore.open(tmp_path, COMPACT, OPTIONS)
