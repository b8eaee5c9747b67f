"""What the LMDB store has beside its twin: files, creation, reopening, readers across a swap, large files."""

import os
import re
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kayos.errors import DamagedRecord, DamagedStore, LimitReached, ResetRequired, Unavailable
from kayos.model.control import CreatePin, EndPin, Expire, Purge
from kayos.model.producer import ProducerStamp
from kayos.model.record import Kind
from kayos.model.takeover import TakeoverRow
from kayos.model.write import ControlRequest, WriteRequest, WriteResult
from kayos.storage import generation, lmdb_store, sequencer, verify
from kayos.storage.check import check_store
from kayos.storage.compaction import Compaction
from kayos.storage.lmdb_store import LmdbStore, StoreOptions

from .helpers import COMPACT, EVERYTHING, HISTORY, decoded

OPTIONS = StoreOptions(map_bytes=1 << 28)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    opened = LmdbStore.open(tmp_path / "store", COMPACT, OPTIONS)
    opened.take_over(TakeoverRow(HISTORY, 0, 1))
    yield opened
    opened.close()
    assert check_store(opened.directory).problems == ()


def put(store: LmdbStore, *keys: bytes, value: bytes = b"v") -> None:
    store.commit([WriteRequest(list(keys), [value] * len(keys))], now_ms=1)


def compact(store: LmdbStore) -> None:
    compaction = Compaction(store)
    compaction.prepare()
    compaction.swap()


def test_directories_and_files_are_private(store: LmdbStore) -> None:
    put(store, b"k")
    compact(store)
    for path in [store.directory, *store.directory.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), f"{path} has mode {mode:o}"


def test_a_crash_during_creation_leaves_a_directory_that_can_be_created_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(directory: Path, number: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lmdb_store.generation, "write_current", crash)
        with pytest.raises(KeyboardInterrupt):
            LmdbStore.open(tmp_path, COMPACT, OPTIONS)
    assert list(tmp_path.glob("env.*/data.mdb"))
    store = LmdbStore.open(tmp_path, COMPACT, OPTIONS)
    store.take_over(TakeoverRow(HISTORY, 0, 1))
    put(store, b"k")
    store.close()
    assert check_store(tmp_path).problems == ()


def test_a_store_that_lost_its_current_file_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    store = LmdbStore.open(tmp_path, COMPACT, OPTIONS)
    store.take_over(TakeoverRow(HISTORY, 0, 1))
    put(store, b"k")
    store.close()
    (tmp_path / generation.CURRENT).unlink()
    with pytest.raises(DamagedStore, match="CURRENT is missing"):
        LmdbStore.open(tmp_path, COMPACT, OPTIONS)
    assert list(tmp_path.glob("env.*/data.mdb")), "the data must be left for whoever restores it"


def test_an_older_copy_of_the_file_is_noticed(tmp_path: Path) -> None:
    store = LmdbStore.open(tmp_path, COMPACT, OPTIONS)
    store.take_over(TakeoverRow(HISTORY, 0, 1))
    data = store.env.directory / "data.mdb"
    older = data.read_bytes()
    for number in range(3):
        put(store, b"k%d" % number)
    store.close()
    data.write_bytes(older)
    with pytest.raises(DamagedStore, match="newest commits are missing"):
        LmdbStore.open(tmp_path, COMPACT, OPTIONS)
    assert check_store(tmp_path).problems


def test_long_keys_that_share_their_beginning_stay_apart(store: LmdbStore) -> None:
    keys = [b"k" * 510, b"k" * 511, b"k" * 512, b"k" * 4096, b"k" * 4095 + b"x"]
    for number, key in enumerate(keys):
        put(store, key, value=b"%d" % number)
    put(store, keys[3], value=b"again")
    found = {key: store.get(key) for key in keys}
    assert [record and record.value for record in found.values()] == [b"0", b"1", b"2", b"again", b"4"]
    assert store.get(b"k" * 4094) is None
    assert len(store.read_log(0, bytes_max=EVERYTHING).records) == len(keys)


def test_readers_go_on_while_the_environment_is_swapped(store: LmdbStore) -> None:
    """Any reader enters the environment that is current and sees a whole state, however often it changes."""
    keys = [b"k%d" % number for number in range(50)]
    put(store, *keys, value=b"0")
    stopping = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not stopping.is_set():
                records = decoded(store.read_log(0, bytes_max=EVERYTHING).records)
                assert {record.key for record in records} == set(keys)
                assert len({record.value for record in records}) == 1
                store.usage()
        except BaseException as failure:
            failures.append(failure)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(30):
        compact(store)
        put(store, *keys, value=b"%d" % number)
    stopping.set()
    for reader in readers:
        reader.join(timeout=30)
    assert not failures


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = LmdbStore.open(tmp_path, COMPACT, OPTIONS)
    store.close()
    with pytest.raises(Unavailable):
        store.read_log(0, bytes_max=1)


def test_a_pin_survives_reopening_and_compaction(store: LmdbStore) -> None:
    put(store, b"a", b"b", value=b"old")
    store.commit([ControlRequest(CreatePin("p", 60_000))], now_ms=1)
    pinned = store.read_pin("p", 0, bytes_max=EVERYTHING).records
    put(store, b"a", b"b", value=b"new")
    compact(store)
    store.reopen()
    assert store.read_pin("p", 0, bytes_max=EVERYTHING).records == pinned
    assert {record.value for record in decoded(pinned)} == {b"old"}


def test_a_large_file_is_verified_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "WALKED_BYTES_MAX", 0)
    store = LmdbStore.open(tmp_path, COMPACT, OPTIONS)
    store.take_over(TakeoverRow(HISTORY, 0, 1))
    marker = os.urandom(64)
    put(store, b"k", value=marker)
    path = store.env.directory / "data.mdb"
    store.close()
    LmdbStore.open(tmp_path, COMPACT, OPTIONS).close()
    content = bytearray(path.read_bytes())
    at = content.index(marker)
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedStore, match="damaged"):
        LmdbStore.open(tmp_path, COMPACT, OPTIONS)


def test_a_pin_that_ends_during_a_sweep_leaves_nothing_behind(store: LmdbStore) -> None:
    """The sweep is half through when the pin ends whose rows it has passed already."""
    keys = [b"k%02d" % number for number in range(20)]
    put(store, *keys, value=b"old")
    store.commit([ControlRequest(CreatePin("first", 60_000))], now_ms=1)
    put(store, *keys, value=b"middle")
    store.commit([ControlRequest(CreatePin("second", 60_000))], now_ms=1)
    put(store, *keys, value=b"new")
    assert store.usage().retained == 40
    store.commit([ControlRequest(CreatePin("third", 60_000)), ControlRequest(EndPin("third", "released"))], now_ms=1)
    assert not store.sweep_retained(25)
    store.commit([ControlRequest(EndPin("first", "released"))], now_ms=1)
    while not store.sweep_retained(7):
        pass
    assert store.usage().retained == 20
    store.commit([ControlRequest(EndPin("second", "released"))], now_ms=1)
    assert store.sweep_retained(1)
    assert store.usage().retained == 0


def test_a_delete_purged_during_a_catch_up_from_nothing_is_not_missed(tmp_path: Path) -> None:
    """The key was copied with the first slice, then deleted and its tombstone purged: no row tells of it."""
    source, copy = (LmdbStore.open(tmp_path / name, COMPACT, OPTIONS) for name in ("source", "copy"))
    source.take_over(TakeoverRow(HISTORY, 0, 1))
    put(source, b"goes", b"stays")
    copy.apply_catch_up(source.read_catch_up(0, start_seq=0, bytes_max=1))
    source.commit([WriteRequest([b"goes"], [b""], bytes([Kind.DELETE]))], now_ms=1)
    source.commit([ControlRequest(Purge(source.state.high_seq))], now_ms=1)
    before = copy.state
    with pytest.raises(ResetRequired):
        copy.apply_catch_up(source.read_catch_up(before.sync.through_seq, start_seq=0, bytes_max=EVERYTHING))
    assert copy.state == before
    source.close()
    copy.close()


def test_a_replica_applies_a_group_that_expired_its_own_message(tmp_path: Path) -> None:
    """One group writes a key and then ages it out: put, tombstone and control reach the replica in one batch."""
    head, replica = (LmdbStore.open(tmp_path / name, COMPACT, OPTIONS) for name in ("head", "replica"))
    for each in (head, replica):
        each.take_over(TakeoverRow(HISTORY, 0, 1))
    write = WriteRequest([b"a", b"b"], [b"1", b"2"])
    result = head.commit([write, ControlRequest(Expire(through_ms=0, through_expiry_seq=0, aged_seq=1))], now_ms=5)
    assert result.batch is not None
    replica.apply([result.batch])
    assert list(replica.dump()) == list(head.dump())
    for each in (head, replica):
        each.close()
        assert check_store(each.directory).problems == ()


def test_the_bound_on_producers_counts_each_once(store: LmdbStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequencer, "PRODUCERS_MAX", 2)

    def send(*stamps: tuple[bytes, int]) -> list[type]:
        requests = [WriteRequest([b"k"], [b"v"], producer=ProducerStamp(name, 0, number)) for name, number in stamps]
        return [type(answer) for answer in store.commit(requests, now_ms=1).answers]

    assert send((b"one", 1)) == [WriteResult]
    assert send((b"one", 2), (b"two", 1), (b"three", 1)) == [WriteResult, WriteResult, LimitReached]
    assert send((b"one", 3), (b"two", 2)) == [WriteResult, WriteResult]


def test_damage_that_comes_while_the_store_is_open_is_not_served(tmp_path: Path) -> None:
    """Verified at the opening, damaged since: every reader checks what it gives away."""
    store = LmdbStore.open(tmp_path, COMPACT, OPTIONS)
    store.take_over(TakeoverRow(HISTORY, 0, 1))
    marker = os.urandom(64)
    put(store, b"k", value=marker)
    store.commit([ControlRequest(CreatePin("p", 60_000))], now_ms=1)
    put(store, b"other")
    path = store.env.directory / "data.mdb"
    content = path.read_bytes()
    with path.open("r+b") as file:
        for found in re.finditer(re.escape(marker), content):
            file.seek(found.start())
            file.write(b"?")
    for read in (
        lambda: store.read_log(0, bytes_max=EVERYTHING),
        lambda: store.read_pin("p", 0, bytes_max=EVERYTHING),
        lambda: store.get(b"k"),
        lambda: list(store.dump()),
        lambda: store.find_seq_before_time(1),
    ):
        with pytest.raises(DamagedRecord):
            read()
    record = store.get(b"other")
    assert record is not None and record.value == b"v"
    store.close()


def test_a_cut_file_is_refused_also_without_verification(tmp_path: Path) -> None:
    """Its size is held against its newest state before a page is touched: else reading would end the process."""
    store = LmdbStore.open(tmp_path, COMPACT, OPTIONS)
    store.take_over(TakeoverRow(HISTORY, 0, 1))
    for number in range(50):
        put(store, b"k%d" % number, value=bytes(3000))
    path = store.env.directory / "data.mdb"
    store.close()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises(DamagedStore, match="was cut"):
        LmdbStore.open(tmp_path, COMPACT, replace(OPTIONS, verify=False))
