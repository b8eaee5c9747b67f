"""A million overwrites on a real node: a pin shows what it pinned, and nobody else makes the file grow."""

import threading
from pathlib import Path

import kayos
from kayos import Start
from tests.nodes import NodeProcess

KEYS = [b"key-%05d" % number for number in range(10_000)]
ROUNDS = 100
MIB = 1 << 20


def overwrite(client: kayos.Client, *, rounds: int) -> None:
    """Every key, `rounds` times; all of it acknowledged when this returns."""
    for number in range(rounds):
        client.send_many("t", KEYS, [b"%0100d" % number] * len(KEYS))
    assert client.flush() == 0


def read_pinned(client: kayos.Client, pin: kayos.ShardPin) -> list[kayos.Message]:
    return [message for batch in client.pins.batches(pin) for message in batch]


def file_bytes(client: kayos.Client) -> int:
    (shard,) = client.topics.describe("t").shards
    return shard.file_bytes


def test_a_pin_outlives_a_million_overwrites_and_a_restart(tmp_path: Path) -> None:
    with NodeProcess.start(tmp_path / "data") as node, kayos.connect(node.address) as client:
        client.topics.create("t")
        client.send_many("t", KEYS, [b"pinned"] * len(KEYS))
        client.flush()
        (pin,) = client.pins.create("t", pin_id="p", lease_ms=600_000)
        before = read_pinned(client, pin)
        assert [message.value for message in before] == [b"pinned"] * len(KEYS)
        # During: a writer goes on while the pin is read again and again
        writer = threading.Thread(target=overwrite, args=(client,), kwargs={"rounds": ROUNDS})
        writer.start()
        reads = 0
        while writer.is_alive() or not reads:
            assert read_pinned(client, pin) == before
            reads += 1
        writer.join()
        # After
        assert read_pinned(client, pin) == before
        assert client.get("t", KEYS[0]).value == b"%0100d" % (ROUNDS - 1)
        assert node.stop() == 0
    # And after a restart of the node
    with NodeProcess.start(tmp_path / "data") as node, kayos.connect(node.address) as client:
        assert read_pinned(client, pin) == before
        client.pins.release("t", "p")
        assert node.stop() == 0


def test_a_consumer_asleep_in_its_snapshot_keeps_the_file_bounded(tmp_path: Path) -> None:
    # Given a consumer that took a part of a snapshot of 1.4 MB and sleeps on it
    settings = {"snapshot_copy_bytes_max": 256 * 1024, "pin_retained_bytes_max": 8 * MIB}
    with NodeProcess.start(tmp_path / "data", **settings) as node, kayos.connect(node.address) as client:
        client.topics.create("t")
        overwrite(client, rounds=2)
        with client.consume("t", start=Start.beginning()) as consumer:
            snapshot = next(consumer)
            batches = snapshot.batches()
            taken = next(batches)
            # When its keys are overwritten a million times
            overwrite(client, rounds=10)
            memory = node.resident_bytes()
            overwrite(client, rounds=ROUNDS - 10)
            # Then the file holds little more than the 1.4 MB of live messages, twice, and the pages of some commits;
            # a read transaction held open would have made it 2.5 GB
            assert file_bytes(client) <= 64 * MIB
            assert node.resident_bytes() <= memory + 64 * MIB
            # And the consumer gets the rest of the snapshot that it had begun
            taken += [message for batch in batches for message in batch]
            assert [message.key for message in taken] == KEYS
            assert {message.value for message in taken} == {b"%0100d" % 1}
        assert node.stop() == 0
