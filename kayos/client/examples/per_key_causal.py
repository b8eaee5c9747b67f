"""Per-key causal consistency: sensors whose readings never go back in time.

    python -m kayos.client.examples.per_key_causal [--servers HOST:PORT,…] [--topic sensors] [--writes 1000]

The producer writes ever newer revisions of a few keys with durability "all". The consumer takes message by message and
looks at no boundary. Some revisions it never sees, because newer ones had replaced them; but those it sees of one key
ascend, and the newest of every key arrives. Between keys nothing is promised: for that, see global_causal. Exits with 0
only if no key went back and every newest revision came.
"""

import secrets
from concurrent.futures import ThreadPoolExecutor

import kayos
from kayos.client.examples.command import find_or_create_topic, parse

SENSORS = [b"sensor-%d" % number for number in range(5)]


def measure(client: kayos.Client, topic: str, writes: int, run: bytes) -> None:
    """The producer: round after round, each sensor once. What waits in the background goes out together."""
    for number in range(writes):
        client.send(topic, b"%s %d" % (run, number), key=SENSORS[number % len(SENSORS)], durability="all")
    if client.flush():
        raise SystemExit("some readings could not be delivered")


def main() -> int:
    options = parse(__doc__, topic="sensors", writes=1_000)
    # Readings of an earlier run in the same topic are passed over.
    run = secrets.token_hex(8).encode()
    newest = {SENSORS[number % len(SENSORS)]: number for number in range(options.writes)}
    seen: dict[bytes, int] = {}
    messages = fallen = 0
    with kayos.connect(options.servers) as client, ThreadPoolExecutor(1) as pool:
        find_or_create_topic(client, options.topic)
        with client.messages(options.topic, start=kayos.Start.beginning()) as consumer:
            producing = pool.submit(measure, client, options.topic, options.writes, run)
            producing.add_done_callback(lambda done: consumer.close() if done.exception() else None)
            for message in consumer:
                if message.key is None or not (message.value or b"").startswith(run + b" "):
                    continue
                revision = int((message.value or b"").split()[1])
                messages += 1
                fallen += revision <= seen.get(message.key, -1)
                seen[message.key] = revision
                if seen == newest:
                    break
        producing.result()
    print(f"{options.writes} readings of {len(newest)} sensors, {messages} seen, {fallen} out of order")
    print("the newest of every sensor arrived" if seen == newest else f"of {newest} only {seen} arrived")
    return 0 if seen == newest and not fallen else 1


if __name__ == "__main__":
    raise SystemExit(main())
