"""A million overwrites: a pinned snapshot never changes, and the file stays bounded, pinned or not."""

import random
from pathlib import Path

from kayos.model.control import CreatePin, EndPin
from kayos.model.takeover import TakeoverRow
from kayos.model.write import ControlRequest, WriteRequest, WriteResult
from kayos.storage.check import check_store
from kayos.storage.interface import Store
from kayos.storage.lmdb_store import LmdbStore, StoreOptions

from .helpers import COMPACT, EVERYTHING, HISTORY, decoded

OPTIONS = StoreOptions(map_bytes=1 << 30)
KEYS = [b"key-%012d" % number for number in range(10_000)]
ROUNDS = 100  # of 10,000 overwrites each
CHUNK_BYTES = 64 * 1024


def open_filled(directory: Path) -> LmdbStore:
    store = LmdbStore.open(directory, COMPACT, OPTIONS)
    store.take_over(TakeoverRow(HISTORY, 0, 1))
    overwrite(store, 0)
    return store


def overwrite(store: Store, turn: int) -> None:
    """Every key once, in an order of this turn."""
    keys = random.Random(turn).sample(KEYS, len(KEYS))
    (answer,) = store.commit([WriteRequest(keys, [b"%0100d" % turn] * len(keys))], now_ms=turn).answers
    assert isinstance(answer, WriteResult)


def pin(store: Store, pin_id: str) -> None:
    (answer,) = store.commit([ControlRequest(CreatePin(pin_id, 60_000))], now_ms=0).answers
    assert isinstance(answer, WriteResult)


def read_pinned(store: Store, pin_id: str, after_seq: int = 0) -> list[bytes]:
    """The snapshot in chunks, as a reader gets it."""
    records: list[bytes] = []
    while True:
        piece = store.read_pin(pin_id, after_seq, bytes_max=CHUNK_BYTES)
        records += piece.records
        if piece.complete:
            return records
        after_seq = piece.through_seq


def test_a_pinned_snapshot_outlives_a_million_overwrites(tmp_path: Path) -> None:
    # Given a pinned snapshot, of which one reader has read the first chunk
    store = open_filled(tmp_path)
    pin(store, "p")
    before = read_pinned(store, "p")
    assert {record.key for record in decoded(before)} == set(KEYS)
    begun = store.read_pin("p", 0, bytes_max=CHUNK_BYTES)

    # When its keys are overwritten a million times, it reads the same under way
    sizes = []
    for turn in range(1, ROUNDS + 1):
        overwrite(store, turn)
        sizes.append(store.usage().file_bytes)
        if turn % 20 == 0:
            assert read_pinned(store, "p") == before

    # Then the reader that slept goes on as if nothing had happened, also after a restart
    assert [*begun.records, *read_pinned(store, "p", begun.through_seq)] == before
    store.close()
    assert check_store(tmp_path).problems == ()
    store = LmdbStore.open(tmp_path, COMPACT, OPTIONS)
    assert read_pinned(store, "p") == before
    assert store.usage().retained == len(KEYS)
    assert max(sizes) <= 1.5 * max(sizes[:10])

    # And when the pin ends, what it retained is given back
    store.commit([ControlRequest(EndPin("p", "released"))], now_ms=0)
    while not store.sweep_retained(1000):
        pass
    assert store.usage().retained == 0
    store.close()


def test_without_a_pin_the_file_stays_bounded(tmp_path: Path) -> None:
    # Given a consumer that sleeps in the middle of its snapshot
    store = open_filled(tmp_path)
    begun = store.read_log(0, bytes_max=CHUNK_BYTES)
    assert not begun.complete

    # When its keys are overwritten a million times
    sizes = []
    for turn in range(1, ROUNDS + 1):
        overwrite(store, turn)
        sizes.append(store.usage().file_bytes)

    # Then it costs nothing, and it goes on with the newest revisions
    usage = store.usage()
    assert usage.messages == len(KEYS)
    assert max(sizes) <= 1.5 * max(sizes[:10])
    assert usage.file_bytes <= 8 * usage.message_bytes
    rest = decoded(store.read_log(begun.through_seq, bytes_max=EVERYTHING).records)
    assert {record.key for record in rest} == set(KEYS)
    assert {record.value for record in rest} == {b"%0100d" % ROUNDS}
    store.close()
