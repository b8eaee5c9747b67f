"""Damaged files: a flipped bit is noticed before it is served, a cut or foreign file is refused, nothing crashes.

Each probe opens one damaged copy in a child process of its own and reads all there is to read; for every question
it tells a digest of the answer, or that it was refused with DataLoss. A signal, or any other error, fails the test.
"""

import hashlib
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kayos.errors import DamagedStore, DataLoss, KayosError
from kayos.storage.check import check_store
from kayos.storage.compaction import Compaction
from kayos.storage.interface import Store
from kayos.storage.lmdb_store import LmdbStore
from tests.seeds import choose_seed

from .fork_server import ForkServer
from .helpers import COMPACT
from .story import OPTIONS, PRODUCER, Writer, transaction

FLIPS = 300
CUTS = 60
REFUSED = "refused"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every kind of row, half of it compacted and half of it written since."""
    directory = tmp_path_factory.mktemp("sound") / "store"
    Writer(directory, 7, lambda line: None).write(25)
    store = LmdbStore.open(directory, COMPACT, OPTIONS)
    compaction = Compaction(store)
    compaction.prepare()
    compaction.swap()
    store.close()
    Writer(directory, 8, lambda line: None).write(4)
    return directory


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer("storage.test_damage:probe") as running:
        yield running


def data_file(directory: Path) -> Path:
    """The one data file of a store at rest."""
    (data,) = directory.rglob("data.mdb")
    return data


def probe(job: dict[str, str], tell: Callable[[str], None]) -> None:
    """Open a copy and tell, question by question, what it serves."""
    try:
        store = LmdbStore.open(Path(job["directory"]), COMPACT, OPTIONS)
    except DataLoss:
        tell("opening refused\n")
        return
    for name, question in questions(store):
        tell(f"{name} {digest_of(question)}\n")
    write_more(store)
    try:
        store.close()
    except DataLoss:
        tell("closing refused\n")


def questions(store: Store) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "state", lambda: next(iter(store.dump()))
    yield "dump", lambda: list(store.dump())
    yield "log", lambda: read_all(store.read_log)
    yield "marks", store.list_marks
    yield "pins", store.list_pins
    yield "producer", lambda: store.find_producer(PRODUCER)
    yield "catch-up", lambda: store.read_catch_up(0, start_seq=0, bytes_max=1 << 40)
    yield "time", lambda: [store.find_seq_before_time(ms) for ms in range(0, 60, 7)]
    yield "purgeable", lambda: store.find_purgeable(1 << 60, 1000)
    for key in {key for number in range(1, 40) for key in transaction(number).keys if key} | {b"absent"}:
        yield f"get-{key.decode()}", lambda key=key: store.get(key)
    for pin_id in [pin.pin_id for pin in store.list_pins() if pin.is_alive]:
        yield f"pin-{pin_id}", lambda pin_id=pin_id: read_all(partial(store.read_pin, pin_id))


def read_all(read: Callable[..., object]) -> list[bytes]:
    records, after_seq = [], 0
    while True:
        piece = read(after_seq, bytes_max=20_000)
        records += piece.records
        if piece.complete:
            return records
        after_seq = piece.through_seq


def digest_of(question: Callable[[], object]) -> str:
    try:
        return hashlib.sha256(repr(question()).encode()).hexdigest()
    except DataLoss:
        return REFUSED


def write_more(store: Store) -> None:
    """Writing over damage may be refused; it may not end the process."""
    try:
        row = store.find_producer(PRODUCER)
        number = row.last.number if row else 0
        for each in range(1, 4):
            store.commit([transaction(number + each)], now_ms=0)
    except KayosError as error:
        assert isinstance(error, DataLoss), error


def test_flipped_bits(sound: Path, server: ForkServer, tmp_path: Path) -> None:
    seed = choose_seed()
    rng = random.Random(seed)
    original, exit_code = server.run(directory=str(copy_of(sound, tmp_path / "original")))
    assert exit_code == 0
    assert not any(REFUSED in line for line in original)
    assert any(line.startswith("pin-") for line in original)
    noticed = 0
    for number in range(FLIPS):
        directory = copy_of(sound, tmp_path / str(number))
        position, bit = flip(data_file(directory), rng)
        lines, exit_code = server.run(directory=str(directory))
        where = f"bit {bit} of byte {position} (page {position // 4096}), seed {seed}"
        assert exit_code == 0, f"{where}: the probe ended with {exit_code}"
        wrong = [line for line in lines if REFUSED not in line and line not in original]
        assert not wrong, f"{where}: served {wrong}"
        noticed += any(REFUSED in line for line in lines)
        shutil.rmtree(directory)
    print(f"{noticed} of {FLIPS} flips were noticed, the others lay in unused bytes")
    assert noticed > FLIPS // 10


def copy_of(sound: Path, target: Path) -> Path:
    return Path(shutil.copytree(sound, target))


def flip(data: Path, rng: random.Random) -> tuple[int, int]:
    position, bit = rng.randrange(data.stat().st_size), rng.randrange(8)
    with data.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))
    return position, bit


def test_cut_files_are_refused(sound: Path, server: ForkServer, tmp_path: Path) -> None:
    seed = choose_seed()
    rng = random.Random(seed)
    size = data_file(sound).stat().st_size
    lengths = [1, 16, 135, 4095, 4096, 8191, 8192, size - 4096, size - 1]
    lengths += [rng.randrange(1, size) for _ in range(CUTS)]
    for length in lengths:
        directory = copy_of(sound, tmp_path / "cut")
        with data_file(directory).open("r+b") as file:
            file.truncate(length)
        lines, exit_code = server.run(directory=str(directory))
        assert (lines, exit_code) == (["opening refused\n"], 0), f"cut to {length} of {size} bytes, seed {seed}"
        assert check_store(directory).problems, f"cut to {length}"
        shutil.rmtree(directory)


def spoil_with(content: bytes) -> Callable[[Path], object]:
    return lambda data: data.write_bytes(content)


def replace_by_directory(data: Path) -> None:
    data.unlink()
    data.mkdir()


def replace_by_link(data: Path) -> None:
    data.rename(data.with_name("elsewhere"))
    data.symlink_to("elsewhere")


SPOILED = {
    "empty": spoil_with(b""),
    "missing": Path.unlink,
    "garbage": spoil_with(random.Random(3).randbytes(100_000)),
    "zeros": spoil_with(bytes(100_000)),
    "text": spoil_with(b"not a store\n" * 1000),
    "a directory": replace_by_directory,
    "a symbolic link": replace_by_link,
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_foreign_files_are_refused(spoil: Callable[[Path], object], sound: Path, tmp_path: Path) -> None:
    directory = copy_of(sound, tmp_path / "spoiled")
    spoil(data_file(directory))
    with pytest.raises(DamagedStore):
        LmdbStore.open(directory, COMPACT, OPTIONS)
    assert check_store(directory).problems


def test_a_store_of_another_shard_is_refused(sound: Path, tmp_path: Path) -> None:
    directory = copy_of(sound, tmp_path / "other")
    for identity in (replace(COMPACT, shard=1), replace(COMPACT, topic_id="other")):
        with pytest.raises(KayosError):
            LmdbStore.open(directory, identity, OPTIONS)
