"""`kayos check`: clean data is proven clean, damage is found and told, a running node is left alone."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Kayos
from tests.nodes import NodeProcess


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a node that held two topics and ended cleanly."""
    data = tmp_path_factory.mktemp("checked") / "data"
    with NodeProcess.start(data) as node:
        kayos = Kayos(node.address)
        for name, shards in (("one", "1"), ("two", "2")):
            kayos.ok("topic", "create", name, "--shards", shards)
            lines = b"".join(b"key-%d:%s\n" % (number, b"v" * 500) for number in range(500))
            kayos.ok("produce", name, "-K", ":", stdin=lines)
        running = kayos("check", str(data))
        assert running.code == 6 and "stop it first" in running.err and running.out == b""
        store = next((data / "shards").iterdir())
        assert kayos("check", str(store)).code == 6
        assert node.stop() == 0
    yield data


@pytest.fixture
def data(clean: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(clean, tmp_path / "data"))


def data_file(store: Path) -> Path:
    return next(store.glob("env.*/data.mdb"))


def stores(data: Path) -> list[Path]:
    return sorted((data / "shards").iterdir())


def test_clean_data_is_sound_in_every_form(data: Path) -> None:
    kayos = Kayos("127.0.0.1:1")  # no server is needed
    rows = kayos.ok("check", str(data)).json
    assert sorted(row["store"] for row in rows) == ["one/0", "two/0", "two/1"]
    assert all(row["sound"] and row["problems"] == [] for row in rows)
    assert sum(row["messages"] for row in rows) == 1_000
    table = kayos.ok("check", str(data), "-o", "table").out.decode().splitlines()
    assert table[0].split() == ["STORE", "DIRECTORY", "MESSAGES", "HIGH_SEQ", "SOUND"] and len(table) == 4
    assert len(kayos.ok("check", str(data), "-o", "jsonl").rows) == 3
    alone = kayos.ok("check", str(stores(data)[0])).json
    assert len(alone) == 1 and alone[0]["sound"]


def test_damage_is_found_and_named(data: Path) -> None:
    kayos = Kayos("127.0.0.1:1")
    flipped, truncated, missing = stores(data)
    # In every copy of the values: some pages of the file are old ones that nobody reads any more.
    content = data_file(flipped).read_bytes()
    data_file(flipped).write_bytes(content.replace(b"v" * 400, b"v" * 399 + b"f"))
    with data_file(truncated).open("r+b") as file:
        file.truncate(data_file(truncated).stat().st_size // 2 + 100)
    shutil.rmtree(missing)
    result = kayos("check", str(data))
    assert result.code == 1 and result.err.startswith("kayos: 3 of 3 are damaged") and result.err.count("\n") == 1
    problems = {Path(row["directory"]).name: row["problems"] for row in result.json}
    assert all(problems.values()) and "missing" in problems[missing.name][0]
    table = kayos("check", str(data), "-o", "table")
    assert table.code == 1 and problems[truncated.name][0] in table.out.decode()
    assert kayos("check", str(flipped)).code == 1

    # A damaged list of topics is told, and the stores are still checked.
    (data / "topics.json").write_bytes(b"{}")
    (data / "node.json").write_bytes(b"nonsense")
    rows = kayos("check", str(data)).json
    assert {Path(row["directory"]).name for row in rows if not row["sound"]} >= {"topics.json", "node.json"}
    assert {row["store"] for row in rows} == {None}


def test_what_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    kayos = Kayos("127.0.0.1:1")
    empty = kayos("check", str(tmp_path))
    assert empty.code == 2 and "holds no data" in empty.err
    assert list(tmp_path.iterdir()) == []
    assert kayos("check", str(tmp_path / "nowhere")).code == 2
    (tmp_path / "file").write_text("")
    assert kayos("check", str(tmp_path / "file")).code == 2


def test_equal_data_is_proven_equal(data: Path, clean: Path) -> None:
    kayos = Kayos("127.0.0.1:1")
    rows = kayos.ok("check", "--compare", str(clean), str(data)).json
    assert sorted(row["store"] for row in rows) == ["one/0", "two/0", "two/1"]
    assert all(row["equal"] and row["differences"] == [] for row in rows)
    table = kayos.ok("check", "--compare", str(clean), str(data), "-o", "table").out.decode().splitlines()
    assert table[0].split() == ["STORE", "DIRECTORY", "OTHER", "HIGH_SEQ", "OTHER_HIGH_SEQ", "EQUAL"]
    one, other = stores(clean)[0], stores(data)[0]
    assert kayos.ok("check", "--compare", str(one), str(other)).json[0]["equal"]


def test_replicas_that_differ_are_told_apart(data: Path, clean: Path) -> None:
    kayos = Kayos("127.0.0.1:1")
    with NodeProcess.start(data) as node:
        Kayos(node.address).ok("produce", "one", "-K", ":", stdin=b"key-1:changed\n")
        running = kayos("check", "--compare", str(clean), str(data))
        assert running.code == 6 and "stop it first" in running.err
        assert node.stop() == 0
    result = kayos("check", "--compare", str(clean), str(data))
    # The node took over every shard when it started, so each of them differs by that.
    assert result.code == 1 and "not proven equal" in result.err and result.err.count("\n") == 1
    (row,) = [row for row in result.json if row["store"] == "one/0"]
    assert not row["equal"] and row["prefix"]
    assert row["high_seq"] < row["other_high_seq"]
    assert "equality can only be proven at one boundary" in row["differences"][0]


def test_what_cannot_be_compared_is_refused(data: Path, clean: Path, tmp_path: Path) -> None:
    kayos = Kayos("127.0.0.1:1")
    one, two = stores(data)[:2]
    for arguments in (
        ["--compare", str(data)],
        ["--compare", str(data), str(data)],
        ["--compare", str(data), str(stores(clean)[0])],
        [str(data), str(clean)],
        [],
    ):
        assert kayos("check", *arguments).code == 2, arguments
    different = kayos("check", "--compare", str(one), str(two))
    assert different.code == 1 and "different shards" in different.err
    strange = tmp_path / "strange"
    shutil.copytree(one, strange / "shards" / "unknown-0")
    nothing = kayos("check", "--compare", str(data), str(strange))
    assert nothing.code == 1 and "no shard in common" in nothing.err
