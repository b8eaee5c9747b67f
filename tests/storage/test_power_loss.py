"""Power cut at any moment: every image opens clean, holds what was acknowledged, and transactions are whole.

A writer runs under a shim that journals its writes, syncs and acknowledgements; `power_loss` replays the journal
to random moments and loses what was not synced in several ways.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from kayos.storage.check import check_store
from kayos.storage.lmdb_store import LmdbStore
from tests.seeds import choose_seed

from .fork_server import ForkServer, child_environment
from .helpers import COMPACT
from .power_loss import WAYS, Disk, read_journal
from .replica_story import ReplicaStory, check_replica
from .story import OPTIONS, Point, Writer, check_story, read_points, send_again

SHIM = Path(__file__).with_name("power_loss_shim.c")
SEEDS = 4
REPLICA_SEEDS = 3
GROUPS = 30
TURNS = 20
IMAGES = 100


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("the shim needs a C compiler, and there is none called cc")
    built = tmp_path_factory.mktemp("shim") / "shim.so"
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o", str(built), str(SHIM)]
    subprocess.run(command, check=True)
    return built


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """Images are many and live for a moment: in memory where there is some."""
    shared = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="kayos-power-", dir=shared if shared.is_dir() else None))
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("turn", range(SEEDS))
def test_power_loss(turn: int, shim: Path, memory_path: Path) -> None:
    cut_power("open_image", shim, memory_path, choose_seed() + turn)


@pytest.mark.parametrize("turn", range(REPLICA_SEEDS))
def test_power_loss_of_a_replica(turn: int, shim: Path, memory_path: Path) -> None:
    """Between batches, in a rollback, a catch-up, a full copy or the switch to it."""
    cut_power("open_replica_image", shim, memory_path, choose_seed() + turn, "replica")


def cut_power(opener: str, shim: Path, memory_path: Path, seed: int, *options: str) -> None:
    rng = random.Random(seed)
    root = memory_path / "root"
    root.mkdir(mode=0o700)
    journal = memory_path / "journal"
    run_writer(shim, root, journal, seed, *options)
    entries = read_journal(journal)
    check_nothing_slipped_by(root, journal, memory_path / "whole")
    moments = sorted(rng.randrange(len(entries) + 1) for _ in range(IMAGES))
    disk, performed = Disk(root), 0
    with ForkServer(f"storage.test_power_loss:{opener}") as server:
        for number, moment in enumerate(moments):
            while performed < moment:
                disk.perform(entries[performed])
                performed += 1
            way = rng.choice(WAYS)
            image = memory_path / f"image-{number}"
            image.mkdir(mode=0o700)
            disk.build_image(image, rng, way)
            (image / "told").write_bytes(disk.told)
            _, exit_code = server.run(image=str(image))
            assert exit_code == 0, f"moment {moment} of {len(entries)}, {way}, seed {seed}: see stderr"
            shutil.rmtree(image)


@pytest.mark.parametrize("sync", [True, False], ids=["synced", "not synced"])
def test_the_shim_bites(sync: bool, shim: Path, memory_path: Path) -> None:
    """Bare LMDB holds what it acknowledged; with `sync=False`, as is known of it, it does not."""
    rng = random.Random(1)
    root, journal = memory_path / "root", memory_path / "journal"
    root.mkdir()
    run_writer(shim, root, journal, 1, "bare", str(int(sync)))
    entries = read_journal(journal)
    disk, bad = Disk(root), 0
    with ForkServer("storage.test_power_loss:open_bare_image") as server:
        for number, entry in enumerate(entries):
            disk.perform(entry)
            if number % (len(entries) // 40) == 0:
                image = memory_path / f"image-{number}"
                image.mkdir()
                disk.build_image(image, rng, rng.choice(WAYS))
                _, exit_code = server.run(image=str(image), told=disk.told.decode())
                bad += exit_code != 0
    assert bad == 0 if sync else bad > 0


def run_writer(shim: Path, root: Path, journal: Path, seed: int, *options: str) -> None:
    environment = {
        **child_environment(),
        "LD_PRELOAD": str(shim),
        "KAYOS_POWER_ROOT": str(root),
        "KAYOS_POWER_JOURNAL": str(journal),
    }
    command = [sys.executable, "-m", "storage.test_power_loss", str(root), str(seed), *options]
    subprocess.run(command, env=environment, check=True, timeout=60)


def check_nothing_slipped_by(root: Path, journal: Path, whole: Path) -> None:
    """The journal, replayed to its end without loss, gives the very files that the writer left."""
    disk = Disk(root)
    for entry in read_journal(journal):
        disk.perform(entry)
    whole.mkdir()
    disk.build_image(whole, random.Random(0), "everything")
    assert content_of(whole) == content_of(root)
    assert disk.told.count(b"acknowledged") >= GROUPS


def content_of(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "lock.mdb")
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def open_image(job: dict[str, str], tell: Callable[[str], None]) -> None:
    """In a child of its own: a signal would be a failure, too."""
    directory = Path(job["image"]) / "store"
    acknowledged, intended = read_points((directory.parent / "told").read_text().splitlines(), Point())
    if acknowledged.number:
        assert check_store(directory).problems == ()
    store = LmdbStore.open(directory, COMPACT, OPTIONS)
    check_story(store, acknowledged, intended)
    send_again(store, acknowledged)
    store.close()
    assert check_store(directory).problems == ()


def open_replica_image(job: dict[str, str], tell: Callable[[str], None]) -> None:
    directory = Path(job["image"]) / "store"
    told = (directory.parent / "told").read_text().splitlines()
    if any(line.startswith("acknowledged") for line in told):
        assert check_store(directory).problems == ()
    check_replica(directory, told)
    assert check_store(directory).problems == ()


def open_bare_image(job: dict[str, str], tell: Callable[[str], None]) -> None:
    data = Path(job["image"]) / "data.mdb"
    numbers = [int(line) for line in job["told"].splitlines()]
    if not numbers:
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with lmdb.open(str(data.parent)) as env, env.begin() as txn:
        assert int(txn.get(b"last", b"0")) >= numbers[-1]
        assert all(txn.get(b"%d" % number) for number in numbers)


def write_story(root: str, seed: int, tell: Callable[[str], None]) -> None:
    Writer(Path(root) / "store", seed, tell).write(GROUPS)


def follow_story(root: str, seed: int, tell: Callable[[str], None]) -> None:
    ReplicaStory(Path(root) / "store", seed, tell).tell_on(TURNS)


def write_bare(root: str, sync: str, tell: Callable[[str], None]) -> None:
    with lmdb.open(root, sync=bool(int(sync))) as env:
        descriptor = os.open(root, os.O_RDONLY)
        os.fsync(descriptor)
        for number in range(40):
            with env.begin(write=True) as txn:
                txn.put(b"%d" % number, os.urandom(500))
                txn.put(b"last", b"%d" % number)
            tell(f"{number}\n")


def main(root: str, seed: str, *options: str) -> None:
    told = os.open(f"{root}.told", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(line: str) -> None:
        os.write(told, line.encode())

    if options == ("replica",):
        follow_story(root, int(seed), tell)
    elif options:
        write_bare(root, options[1], tell)
    else:
        write_story(root, int(seed), tell)


if __name__ == "__main__":
    main(*sys.argv[1:])
