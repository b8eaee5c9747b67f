"""Full disk and full map: writes get a retryable error, reads go on, nothing acknowledged is lost, and writes
resume when space returns.

Each disk scenario runs in a child with a mount namespace of its own, in which a small tmpfs is the disk; a ballast
file on it takes space and gives it back.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kayos.errors import StoreFull, WriteUnknown
from kayos.model.control import Purge, Trim
from kayos.model.record import Kind
from kayos.model.takeover import TakeoverRow
from kayos.model.write import ControlRequest, WriteRequest, WriteResult
from kayos.storage.check import check_store
from kayos.storage.interface import Identity, Store
from kayos.storage.lmdb_store import LmdbStore, StoreOptions

from .fork_server import child_environment
from .helpers import COMPACT, EVERYTHING, HISTORY, LOG, decoded

MIB = 1 << 20
DISK_BYTES = 48 * MIB
VALUE = b"v" * 2000


def open_store(directory: Path, identity: Identity, options: StoreOptions) -> LmdbStore:
    store = LmdbStore.open(directory, identity, options)
    if not store.state.takeover.rows:
        store.take_over(TakeoverRow(HISTORY, 0, 1))
    return store


def put_keys(numbers: range) -> WriteRequest:
    return WriteRequest([b"key-%d" % number for number in numbers], [VALUE] * len(numbers))


def delete_keys(numbers: range) -> WriteRequest:
    kinds = bytes([Kind.DELETE]) * len(numbers)
    return WriteRequest([b"key-%d" % number for number in numbers], [b""] * len(numbers), kinds)


def try_commit(store: Store, request: WriteRequest) -> WriteResult | Exception:
    """The answer, or the error: the store may refuse one request, or fail the whole group."""
    try:
        (answer,) = store.commit([request], now_ms=1).answers
    except (StoreFull, WriteUnknown) as error:
        return error
    return answer


def fill(store: Store, *, batch: int = 20) -> tuple[int, Exception]:
    """Write new keys until refused: (how many were acknowledged, the refusal)."""
    stored = 0
    while True:
        answer = try_commit(store, put_keys(range(stored, stored + batch)))
        if not isinstance(answer, WriteResult):
            return stored, answer
        stored += batch
        assert stored < 1_000_000, "it never gets full"


def check_all_there(store: Store, numbers: range) -> None:
    rows = decoded(store.read_log(0, bytes_max=EVERYTHING).records)
    live = {record.key for record in rows if record.kind == Kind.PUT}
    assert live == {b"key-%d" % number for number in numbers}
    assert all(record.value == VALUE for record in rows if record.kind == Kind.PUT)


# The map


def test_full_map_in_mode_compact(tmp_path: Path) -> None:
    options = StoreOptions(map_bytes=8 * MIB)
    store = open_store(tmp_path, COMPACT, options)

    # When the map is as full as writes may make it, they are refused with an error that may be retried
    stored, refusal = fill(store)
    assert isinstance(refusal, StoreFull)
    assert refusal.retryable
    assert store.usage().file_bytes <= options.map_bytes

    # Then reads go on, and deletes are taken
    check_all_there(store, range(stored))
    half = stored // 2
    for at in range(0, half, 10):
        assert isinstance(try_commit(store, delete_keys(range(at, min(at + 10, half)))), WriteResult)
    check_all_there(store, range(half, stored))

    # And with the space that they gave back, writes resume
    store.commit([ControlRequest(Purge(store.state.high_seq))], now_ms=1)
    assert isinstance(try_commit(store, put_keys(range(half))), WriteResult)
    check_all_there(store, range(stored))
    store.close()
    assert check_store(tmp_path).problems == ()


def test_full_map_in_mode_log(tmp_path: Path) -> None:
    store = open_store(tmp_path, LOG, StoreOptions(map_bytes=8 * MIB))
    stored, refusal = fill(store)
    assert isinstance(refusal, StoreFull)
    check_all_there(store, range(stored))
    (answer,) = store.commit([ControlRequest(Trim(store.state.high_seq // 2))], now_ms=1).answers
    assert isinstance(answer, WriteResult)
    assert isinstance(try_commit(store, put_keys(range(20))), WriteResult)
    store.close()
    assert check_store(tmp_path).problems == ()


def test_a_full_map_still_takes_over(tmp_path: Path) -> None:
    store = open_store(tmp_path, COMPACT, StoreOptions(map_bytes=8 * MIB))
    fill(store)
    store.take_over(TakeoverRow(b"another-history!", store.state.high_seq, 2))
    store.save_commit_point(store.state.high_seq)
    store.close()


# The disk


@pytest.mark.parametrize("scenario", ["reserve", "no_reserve"])
def test_full_disk(scenario: str, tmp_path: Path) -> None:
    namespace = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    mount = f"mount -t tmpfs -o size={DISK_BYTES},mode=0700 kayos-test {tmp_path}"
    if shutil.which("unshare") is None or subprocess.run([*namespace, "sh", "-c", mount], check=False).returncode:
        pytest.skip("a mount namespace with a small tmpfs is not permitted here")
    command = f"{mount} && exec {sys.executable} -m storage.test_full {scenario} {tmp_path}"
    subprocess.run([*namespace, "sh", "-c", command], env=child_environment(), check=True, timeout=100)


def run_reserve(disk: Path) -> None:
    """The store stops before the disk is full, so that what frees space still fits."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(DISK_BYTES // 2))
    store = open_store(disk / "store", COMPACT, StoreOptions())
    stored, refusal = fill(store)
    assert isinstance(refusal, StoreFull), refusal
    assert refusal.retryable
    assert free_bytes(disk) > 0
    check_all_there(store, range(stored))
    assert isinstance(try_commit(store, delete_keys(range(10))), WriteResult)
    check_all_there(store, range(10, stored))
    ballast.unlink()
    assert isinstance(try_commit(store, put_keys(range(10))), WriteResult)
    check_all_there(store, range(stored))
    store.close()
    assert check_store(disk / "store").problems == ()


def run_no_reserve(disk: Path) -> None:
    """Something else fills the disk under the store: its commit fails, or not, and it stays sound."""
    options = StoreOptions(disk_reserve_bytes_max=0)
    store = open_store(disk / "store", COMPACT, options)
    for at in range(0, 100, 10):
        assert isinstance(try_commit(store, put_keys(range(at, at + 10))), WriteResult)
    ballast = disk / "ballast"
    fill_disk(ballast)
    stored, refusal = 100, None
    while refusal is None:
        answer = try_commit(store, put_keys(range(stored, stored + 50)))
        if isinstance(answer, WriteResult):
            stored += 50
            fill_disk(ballast)
        else:
            refusal = answer
    assert isinstance(refusal, StoreFull | WriteUnknown), refusal
    assert refusal.retryable

    # Reads go on, in the same process and after a restart on the full disk.
    check_all_there(store, range(stored))
    store.close()
    assert check_store(disk / "store").problems == ()
    store = open_store(disk / "store", COMPACT, options)
    check_all_there(store, range(stored))

    # Again refused, space comes back, and without a restart writes resume.
    refusal = try_commit(store, put_keys(range(stored, stored + 50)))
    assert not isinstance(refusal, WriteResult)
    check_all_there(store, range(stored))
    ballast.unlink()
    if isinstance(refusal, WriteUnknown):
        store.reopen()
    answer = try_commit(store, put_keys(range(stored, stored + 50)))
    assert isinstance(answer, WriteResult), answer
    check_all_there(store, range(stored + 50))
    store.close()
    assert check_store(disk / "store").problems == ()


def fill_disk(ballast: Path) -> None:
    """Take every byte that is left."""
    with ballast.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(64 * 1024))
        except OSError:
            return


def free_bytes(disk: Path) -> int:
    status = os.statvfs(disk)
    return status.f_bavail * status.f_frsize


if __name__ == "__main__":
    {"reserve": run_reserve, "no_reserve": run_no_reserve}[sys.argv[1]](Path(sys.argv[2]))
