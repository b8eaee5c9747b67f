"""The SQLite example keeps its promise: killed at random moments, its table equals the log at its mark, always."""

import random
import select
import sqlite3
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest

import kayos
from kayos.client.examples import sqlite_exactly_once
from tests.nodes import NodeProcess
from tests.ports import lasting_address
from tests.seeds import choose_seed

ROOT = Path(__file__).parents[2]
KILLS = 8
PAIRS = 20
TOTAL = 1_000

# By key: the value, or None when it was deleted.
State = dict[bytes, bytes | None]


class Writer:
    """Moves amounts between the two keys of a pair, or deletes both, and remembers what it did at which sequence."""

    def __init__(self, address: str, topic: str, seed: int) -> None:
        self._address = address
        self._topic = topic
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.written: list[tuple[int, int, State]] = []

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        with kayos.connect(self._address) as client:
            while not self._stop.is_set():
                pair = self._random.randrange(PAIRS)
                amount = self._random.randrange(TOTAL)
                state: State = {b"x%d" % pair: b"%d" % amount, b"y%d" % pair: b"%d" % (TOTAL - amount)}
                if self._random.random() < 0.2:
                    state = dict.fromkeys(state)
                with client.transaction(self._topic, route=b"%d" % pair) as transaction:
                    for key, value in state.items():
                        if value is None:
                            transaction.delete(key)
                        else:
                            transaction.put(key, value)
                last = transaction.deliveries[-1]
                self.written.append((last.shard, last.seq, state))

    def state_at(self, shard: int, seq: int) -> dict[bytes, bytes]:
        state: State = {}
        for where, written_seq, change in self.written:
            if where == shard and written_seq <= seq:
                state |= change
        return {key: value for key, value in state.items() if value is not None}


def start_example(node: NodeProcess, database: Path, *flags: str) -> subprocess.Popen[bytes]:
    module = "kayos.client.examples.sqlite_exactly_once"
    command = [sys.executable, "-m", module, "accounts", str(database), "--servers", node.address, *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)


def table_at_marks(path: Path) -> dict[int, tuple[int, dict[bytes, bytes]]]:
    """By shard: the mark's sequence and the rows, as one reader of the database sees them."""
    database = sqlite3.connect(path)
    try:
        database.execute("BEGIN")
        marks = sqlite_exactly_once.load_marks(database, "accounts")
        found: dict[int, tuple[int, dict[bytes, bytes]]] = {shard: (mark.seq, {}) for shard, mark in marks.items()}
        for shard, key, value in database.execute("SELECT shard, key, value FROM messages WHERE topic = 'accounts'"):
            found[shard][1][key] = value
        return found
    finally:
        database.close()


def test_killed_at_random_moments_it_is_always_exactly_at_a_boundary(tmp_path: Path) -> None:
    source = random.Random(choose_seed())
    database = tmp_path / "copy.db"
    seen: list[dict[int, tuple[int, dict[bytes, bytes]]]] = []
    with NodeProcess.start(tmp_path / "data") as node:
        with kayos.connect(node.address) as client:
            client.topics.create("accounts", shards=2)
        with Writer(node.address, "accounts", source.randrange(2**32)) as writer:
            for _ in range(KILLS):
                example = start_example(node, database)
                assert example.stdout is not None
                for _ in range(source.randint(1, 40)):
                    assert select.select([example.stdout], [], [], 30)[0]
                    assert example.stdout.readline()
                example.kill()
                example.wait(30)
                example.stdout.close()
                seen.append(table_at_marks(database))
        last = start_example(node, database, "--stop-at-end")
        _, _ = last.communicate(timeout=60)
        assert last.returncode == 0
        seen.append(table_at_marks(database))
        with kayos.connect(node.address) as client:
            log = {m.key: m.value for m in client.messages("accounts", stop_at_end=True) if m.value is not None}
    for moment in seen:
        for shard, (seq, rows) in moment.items():
            assert rows == writer.state_at(shard, seq), f"shard {shard} at {seq}"
    for earlier, later in pairwise(seen):
        assert all(later[shard][0] >= seq for shard, (seq, _) in earlier.items())
    final = {key: value for _, rows in seen[-1].values() for key, value in rows.items()}
    assert final == log
    assert seen[0][0][0] < seen[-1][0][0]


@pytest.fixture
def copied(node: NodeProcess, topic_name: str, tmp_path: Path) -> tuple[kayos.Client, sqlite3.Connection, str]:
    """A topic of two shards and its copy in a database."""
    client = kayos.connect(node.address)
    client.topics.create(topic_name, shards=2)
    client.send_many(topic_name, [b"%d" % n for n in range(100)], [b"v"] * 100).result(30)
    database = sqlite_exactly_once.open_database(tmp_path / "copy.db")
    sqlite_exactly_once.follow(client, database, topic_name, stop_at_end=True)
    return client, database, topic_name


def keys_in(database: sqlite3.Connection) -> set[bytes]:
    return {key for (key,) in database.execute("SELECT key FROM messages")}


def test_a_mark_of_another_history_empties_that_shard_and_reads_it_again(
    copied: tuple[kayos.Client, sqlite3.Connection, str], capsys: pytest.CaptureFixture[str]
) -> None:
    client, database, topic = copied
    with database:
        database.execute("UPDATE marks SET history_id = ? WHERE shard = 1", (bytes(16),))
        database.execute("INSERT INTO messages VALUES (?, 1, ?, 1, ?, 0)", (topic, b"of a lost history", b"v"))
    before = sqlite_exactly_once.load_marks(database, topic)
    capsys.readouterr()
    with client:
        sqlite_exactly_once.follow(client, database, topic, stop_at_end=True)
    printed = capsys.readouterr().out
    assert "begin again at 0" in printed
    assert f"{topic}/1 at" in printed and f"{topic}/0 at" not in printed
    assert keys_in(database) == {b"%d" % n for n in range(100)}
    after = sqlite_exactly_once.load_marks(database, topic)
    assert (after[0], after[1].history_id) == (before[0], after[1].history_id)
    assert after[1].history_id != bytes(16)


def test_a_node_that_dies_inside_a_large_snapshot_leaves_no_half_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unkeyed messages, so that a row that was applied twice would be there twice."""
    nodes = [NodeProcess.start(tmp_path / "data", listen=lasting_address())]
    database = sqlite_exactly_once.open_database(tmp_path / "copy.db")

    def restart_node(statement: str) -> None:
        if len(nodes) == 1 and "INSERT INTO messages" in statement:
            nodes[0].kill()
            nodes.append(NodeProcess.start(nodes[0].data, listen=nodes[0].address))

    database.set_trace_callback(restart_node)
    try:
        with kayos.connect(nodes[0].address) as client:
            client.topics.create("notes")
            client.send_many("notes", None, [b"%01000d" % number for number in range(30_000)]).result(60)
            sqlite_exactly_once.follow(client, database, "notes", stop_at_end=True)
    finally:
        for node in nodes:
            node.kill()
    assert len(nodes) == 2
    assert "begin again at the mark" in capsys.readouterr().out
    found = [int(value) for (value,) in database.execute("SELECT value FROM messages ORDER BY seq")]
    assert found == list(range(30_000))
    database.close()
