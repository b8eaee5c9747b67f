"""Exactly once into SQLite: each snapshot and its mark in one database transaction.

    python -m kayos.client.examples.sqlite_exactly_once TOPIC DB_FILE [--servers HOST:PORT] [--stop-at-end]

The mark lives in the same database as the data, so both move together or not at all. However often this program is
killed, after every commit the table `messages` equals the topic at the sequence that the table `marks` names:
nothing is missing, nothing was applied twice, and no transaction of a producer is there by half.

Three errors are part of normal life, and the loop in `follow` shows what each asks for:

- SnapshotExpired: the connection broke inside a large snapshot. The open transaction is rolled back; the next
  snapshot begins at the same mark.
- RollbackRequired: the server lost a part of the log that was applied here. The earlier revisions of those keys are
  gone from this table, so the shard is emptied and read again from 0.
- ResetRequired: the mark is older than deletes that the server has forgotten. The same answer.
"""

import argparse
import os
import sqlite3
from pathlib import Path

import kayos
from kayos.errors import ResetRequired, RollbackRequired, SnapshotExpired

SCHEMA = """
CREATE TABLE IF NOT EXISTS messages (
    topic TEXT NOT NULL,
    shard INTEGER NOT NULL,
    key BLOB,              -- NULL for an unkeyed message: every one is kept
    seq INTEGER NOT NULL,
    value BLOB NOT NULL,
    timestamp INTEGER NOT NULL,
    UNIQUE (topic, shard, key)
);
CREATE TABLE IF NOT EXISTS marks (
    topic TEXT NOT NULL,
    shard INTEGER NOT NULL,
    history_id BLOB NOT NULL,
    seq INTEGER NOT NULL,
    snapshot_start_seq INTEGER NOT NULL,
    snapshot_end_seq INTEGER NOT NULL,
    PRIMARY KEY (topic, shard)
);
"""
PUT = """
INSERT INTO messages (topic, shard, key, seq, value, timestamp) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (topic, shard, key) DO UPDATE SET seq = excluded.seq, value = excluded.value, timestamp = excluded.timestamp
"""
DELETE = "DELETE FROM messages WHERE topic = ? AND shard = ? AND key = ?"
MOVE_MARK = "INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?, ?, ?)"


def open_database(path: Path) -> sqlite3.Connection:
    """`with database:` is then one transaction: committed at its end, rolled back by an exception."""
    database = sqlite3.connect(path)
    database.executescript(SCHEMA)
    return database


def load_marks(database: sqlite3.Connection, topic: str) -> dict[int, kayos.Mark]:
    rows = database.execute(
        "SELECT shard, history_id, seq, snapshot_start_seq, snapshot_end_seq FROM marks WHERE topic = ?", (topic,)
    )
    return {shard: kayos.Mark(*mark) for shard, *mark in rows}


def apply(database: sqlite3.Connection, snapshot: kayos.Snapshot) -> int:
    """One snapshot in one transaction, its mark last; how many messages it had."""
    count = 0
    with database:
        for batch in snapshot.batches():
            count += len(batch)
            database.executemany(
                DELETE, ((message.topic, message.shard, message.key) for message in batch if message.value is None)
            )
            database.executemany(
                PUT,
                (
                    (message.topic, message.shard, message.key, message.seq, message.value, message.timestamp)
                    for message in batch
                    if message.value is not None
                ),
            )
        mark = snapshot.mark
        database.execute(
            MOVE_MARK,
            (
                snapshot.topic,
                snapshot.shard,
                mark.history_id,
                mark.seq,
                mark.snapshot_start_seq,
                mark.snapshot_end_seq,
            ),
        )
    return count


def forget(database: sqlite3.Connection, topic: str, shard: int) -> None:
    """Back to sequence 0 of a shard: no messages and no mark."""
    with database:
        database.execute("DELETE FROM messages WHERE topic = ? AND shard = ?", (topic, shard))
        database.execute("DELETE FROM marks WHERE topic = ? AND shard = ?", (topic, shard))


def follow(client: kayos.Client, database: sqlite3.Connection, topic: str, *, stop_at_end: bool) -> None:
    while True:
        start = kayos.Start.mark(load_marks(database, topic))
        try:
            with client.consume(topic, start=start, stop_at_end=stop_at_end) as consumer:
                for snapshot in consumer:
                    count = apply(database, snapshot)
                    print(f"{topic}/{snapshot.shard} at {snapshot.end_seq}: {count} messages", flush=True)
            return
        except SnapshotExpired as error:
            print(f"begin again at the mark: {error.message}", flush=True)
        except (RollbackRequired, ResetRequired) as error:
            print(f"begin again at 0: {error.message}", flush=True)
            forget(database, topic, error.number("shard"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Copy a topic into SQLite, exactly once.")
    parser.add_argument("topic")
    parser.add_argument("db_file", type=Path)
    parser.add_argument("--servers", default=os.environ.get("KAYOS_SERVERS", "127.0.0.1:7400"))
    parser.add_argument("--stop-at-end", action="store_true", help="end when there is nothing more to read")
    options = parser.parse_args()
    database = open_database(options.db_file)
    try:
        with kayos.connect(options.servers) as client:
            follow(client, database, options.topic, stop_at_end=options.stop_at_end)
    finally:
        database.close()


if __name__ == "__main__":
    main()
