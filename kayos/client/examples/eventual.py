"""Eventual consistency: the fastest answer, and how to learn when it has become safe.

    python -m kayos.client.examples.eventual [--servers HOST:PORT,…] [--topic presence] [--writes 200]

The producer writes with durability=1: the answer comes when the head has fsynced, whatever the others hold. If the
head is lost before it replicated, the write is lost with it. Whoever wants to know asks later: `client.wait` names the
write by its history and its sequence, answers when every replica up to a tail holds it, and says so plainly when the
write is gone (another may stand at its sequence by then); it is then sent again. The consumer takes message by message
and sees the newest revision in the end. Exits with 0 only if it did.
"""

import secrets

import kayos
from kayos.client.examples.command import find_or_create_topic, parse
from kayos.errors import ResetRequired, RollbackRequired

KEY = b"alice"


def write_safely(client: kayos.Client, topic: str, value: bytes) -> None:
    """Fast first, then wait until it is on all replicas; sent again if it was lost on the way."""
    while True:
        delivery = client.produce(topic, value, key=KEY, durability=1)
        try:
            copies = client.wait(delivery, until="all")
        except (RollbackRequired, ResetRequired) as lost:
            print(f"sequence {delivery.seq} was lost with its head, sent again: {lost.message}")
            continue
        print(f"sequence {delivery.seq} was answered with {delivery.copies} copies, and has {copies} now: it is safe")
        return


def main() -> int:
    options = parse(__doc__, topic="presence", writes=200)
    run = secrets.token_hex(8).encode()
    with kayos.connect(options.servers) as client:
        find_or_create_topic(client, options.topic)
        for number in range(options.writes - 1):
            client.send(options.topic, b"%s %d" % (run, number), key=KEY, durability=1)
        newest = b"%s %d" % (run, options.writes - 1)
        write_safely(client, options.topic, newest)
        seen = [
            message.value
            for message in client.messages(options.topic, start=kayos.Start.beginning(), stop_at_end=True)
            if message.key == KEY
        ]
    print(f"{options.writes} writes, {len(seen)} read: the newest is {'' if newest in seen[-1:] else 'not '}there")
    return 0 if newest in seen[-1:] else 1


if __name__ == "__main__":
    raise SystemExit(main())
