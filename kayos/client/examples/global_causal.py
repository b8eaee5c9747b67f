"""Global causal consistency: a bank in SQLite whose books balance at every moment.

    python -m kayos.client.examples.global_causal [--servers HOST:PORT,…] [--topic bank] [--writes 500]

The producer moves amounts between accounts, each transfer one transaction with durability "all". The consumer applies
whole snapshots, each in one transaction of its database. A snapshot holds only the newest revision of an account, so
most transfers are never seen one by one; yet at each boundary the database equals the log at that sequence, and so
the sum of all balances never changes. Exits with 0 only if that held at every boundary and the last transfer came.
"""

import random
import secrets
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import kayos
from kayos.client.examples.command import find_or_create_topic, parse

ACCOUNTS = [b"account-%02d" % number for number in range(10)]
OPENING_BALANCE = 1_000
TOTAL = OPENING_BALANCE * len(ACCOUNTS)
# A transaction lives in one shard. Routed alike, all accounts are in the same one.
ROUTE = b"bank"
END = b"end-of-run"


def transfer(client: kayos.Client, topic: str, writes: int, run: bytes) -> None:
    """The producer: opens the accounts, makes `writes` transfers, and says that it is done."""
    balances = dict.fromkeys(ACCOUNTS, OPENING_BALANCE)
    with client.transaction(topic, route=ROUTE) as transaction:
        for account, amount in balances.items():
            transaction.put(account, b"%d" % amount)
    for _ in range(writes):
        giver, taker = random.sample(ACCOUNTS, 2)
        amount = random.randint(0, balances[giver])
        balances[giver] -= amount
        balances[taker] += amount
        with client.transaction(topic, route=ROUTE, durability="all") as transaction:
            transaction.put(giver, b"%d" % balances[giver])
            transaction.put(taker, b"%d" % balances[taker])
    client.produce(topic, run, key=END, route=ROUTE)


def apply(database: sqlite3.Connection, snapshot: kayos.Snapshot, run: bytes) -> bool:
    """One snapshot, one transaction; whether the run ended in it."""
    is_over = False
    with database:
        for message in snapshot:
            if message.key in ACCOUNTS and message.value is not None:
                database.execute("INSERT OR REPLACE INTO balances VALUES (?, ?)", (message.key, int(message.value)))
            elif message.key == END:
                is_over = message.value == run
    return is_over


def main() -> int:
    options = parse(__doc__, topic="bank", writes=500)
    run = secrets.token_hex(8).encode()
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE balances (account BLOB PRIMARY KEY, amount INTEGER NOT NULL)")
    boundaries = wrong = 0
    is_over = False
    with kayos.connect(options.servers) as client, ThreadPoolExecutor(1) as pool:
        find_or_create_topic(client, options.topic)
        with client.consume(options.topic, start=kayos.Start.beginning()) as consumer:
            producing = pool.submit(transfer, client, options.topic, options.writes, run)
            # A producer that fails ends the loop below, which would wait for the rest otherwise.
            producing.add_done_callback(lambda done: consumer.close() if done.exception() else None)
            for snapshot in consumer:
                is_over = apply(database, snapshot, run)
                (total,) = database.execute("SELECT sum(amount) FROM balances").fetchone()
                boundaries += 1
                wrong += total not in (None, TOTAL)
                if is_over:
                    break
        producing.result()
    print(f"{options.writes} transfers, seen in {boundaries} snapshots: the sum was {TOTAL} at all but {wrong} of them")
    return 0 if is_over and not wrong else 1


if __name__ == "__main__":
    raise SystemExit(main())
