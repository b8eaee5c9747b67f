"""`kayos consume`: where it begins and ends, when the mark moves, and how it takes leave."""

import json
import os
import time
from pathlib import Path

import pytest

from tests.cli.command import Kayos, wait_until


def fill(kayos: Kayos, topic: str, count: int, *, size: int = 1) -> None:
    lines = "".join(f'{{"key": "k{number}", "value": "{"v" * size}"}}\n' for number in range(count))
    kayos.ok("produce", topic, stdin=lines.encode())


def keys(kayos: Kayos, topic: str, *more: str) -> list[str]:
    return [row["key"] for row in kayos.ok("consume", topic, *more).rows]


def mark_seq(kayos: Kayos, topic: str, consumer: str) -> int | None:
    result = kayos("mark", "get", topic, consumer)
    return None if result.code == 3 else int(result.json[0]["seq"])


def test_a_consumer_goes_on_where_it_committed(kayos: Kayos, topic: str) -> None:
    fill(kayos, topic, 3)
    first = kayos.ok("consume", topic, "--consumer", "c", "-e").rows
    assert [(row["topic"], row["shard"], row["seq"], row["key"], row["value"]) for row in first] == [
        (topic, 0, number + 1, f"k{number}", "v") for number in range(3)
    ]
    assert all(list(row) == ["topic", "shard", "seq", "key", "value", "timestamp"] for row in first)
    assert abs(first[0]["timestamp"] - time.time() * 1000) < 60_000
    assert mark_seq(kayos, topic, "c") == 3
    assert keys(kayos, topic, "--consumer", "c", "-e") == []
    kayos.ok("produce", topic, "-k", "new", "-v", "1")
    kayos.ok("produce", topic, "-k", "k0", "--delete")
    # Without a commit the same comes twice; with one, not again. A deleted key comes as a tombstone.
    for _ in range(2):
        rows = kayos.ok("consume", topic, "--consumer", "c", "-e", "--no-commit").rows
        assert [(row["key"], row["value"]) for row in rows] == [("new", "1"), ("k0", None)]
    assert keys(kayos, topic, "--consumer", "c", "-e") == ["new", "k0"]
    assert keys(kayos, topic, "--consumer", "c", "-e") == []
    # Without a name: from the beginning, and no mark is left behind.
    assert set(keys(kayos, topic, "-e")) >= {"k1", "k2", "new"}
    assert {row["consumer"] for row in kayos.ok("mark", "list", topic).json} == {"c"}


def test_where_it_begins(kayos: Kayos, topic: str) -> None:
    fill(kayos, topic, 4)
    times = [row["timestamp"] for row in kayos.ok("consume", topic, "-e").rows]
    everything = ["k0", "k1", "k2", "k3"]
    assert keys(kayos, topic, "-e", "--from", "0") == everything
    assert keys(kayos, topic, "-e", "--from", "seq:3") == ["k2", "k3"]
    assert keys(kayos, topic, "-e", "--from", "seq:0") == everything
    assert keys(kayos, topic, "-e", "--from", "latest") == []
    assert keys(kayos, topic, "-e", "--from", f"time:{times[0]}") == everything
    assert keys(kayos, topic, "-e", "--from", f"time:{times[-1] + 1}") == []
    assert keys(kayos, topic, "-e", "--from", "time:2020-01-31T12:00:00Z") == everything
    assert keys(kayos, topic, "-e", "--from", "time:2120-01-31T12:00:00+02:00") == []
    assert keys(kayos, topic, "-e", "--from", "mark", "--consumer", "nobody", "--no-commit") == everything
    for wrong in ("5", "drop", "seq:", "seq:-1", "seq:x", "time:", "time:yesterday", f"seq:{2**64}", "time:1900-01-01"):
        refused = kayos("consume", topic, "-e", "--from", wrong)
        assert refused.code == 2 and refused.err.startswith("kayos: "), (wrong, refused)
    assert kayos("consume", topic, "-e", "--from", "mark").code == 2
    assert kayos("consume", topic, "-e", "--no-commit").code == 2
    assert kayos("consume", topic, "-e", "--consumer", "Not A Name").code == 2
    assert kayos("consume", topic, "-e", "--shard", "7").code == 2
    assert kayos("consume", topic, "-c", "0").code == 2
    assert kayos("consume", "no-such-topic", "-e").code == 3


def test_a_number_of_messages_at_a_time(kayos: Kayos, topic: str) -> None:
    fill(kayos, topic, 5)
    taken = [keys(kayos, topic, "--consumer", "c", "-c", "2") for _ in range(2)]
    assert taken == [["k0", "k1"], ["k2", "k3"]]
    assert keys(kayos, topic, "--consumer", "c", "-c", "2", "-e", "--no-commit") == ["k4"]
    assert keys(kayos, topic, "--consumer", "c", "-c", "2", "-e") == ["k4"]
    assert keys(kayos, topic, "--consumer", "c", "-e") == []


def test_shards_and_encodings_and_the_table(kayos: Kayos) -> None:
    kayos.ok("topic", "create", "wide", "--shards", "3")
    fill(kayos, "wide", 30)
    by_shard = {shard: set(keys(kayos, "wide", "-e", "--shard", str(shard))) for shard in range(3)}
    assert set().union(*by_shard.values()) == {f"k{number}" for number in range(30)}
    assert sum(map(len, by_shard.values())) == 30
    both = keys(kayos, "wide", "-e", "--shard", "0", "--shard", "2", "--consumer", "c")
    assert set(both) == by_shard[0] | by_shard[2]
    assert set(keys(kayos, "wide", "-e", "--consumer", "c")) == by_shard[1]
    row = kayos.ok("consume", "wide", "-c", "1", "--value-encoding", "hex", "--key-encoding", "base64").rows[0]
    assert (row["value"], row["value_encoding"], row["key_encoding"]) == ("76", "hex", "base64")
    with kayos.start("consume", "wide") as running:  # several shards are waited for on threads of their own
        assert len({running.read_line() for _ in range(30)}) == 30
        running.interrupt()
        assert running.wait() == 130
    table = kayos.ok("consume", "wide", "-e", "-o", "table").out.decode().splitlines()
    assert table[0].split() == ["SHARD", "SEQ", "TIME", "KEY", "VALUE"] and len(table) == 31


def test_it_waits_for_what_comes_and_ends_with_ctrl_c(kayos: Kayos, topic: str) -> None:
    kayos.ok("produce", topic, "-k", "a", "-v", "1")
    with kayos.start("consume", topic, "--consumer", "c") as running:
        assert json.loads(running.read_line())["key"] == "a"
        kayos.ok("produce", topic, "-k", "b", "-v", "2")
        assert json.loads(running.read_line())["key"] == "b"
        # The mark moves once the line is out, so it may be a moment behind it.
        wait_until(lambda: mark_seq(kayos, topic, "c") == lines_end(kayos, topic), "the commit of both")
        running.interrupt()
        assert running.wait() == 130
        assert running.errors().strip() == ""
    assert keys(kayos, topic, "--consumer", "c", "-e") == []


def lines_end(kayos: Kayos, topic: str) -> int:
    return int(kayos.ok("consume", topic, "-e").rows[-1]["seq"])


@pytest.mark.parametrize("arguments", [("-e",), ("-c", "100000")], ids=["by snapshot", "by message"])
def test_what_a_closed_pipe_did_not_take_is_not_committed(kayos: Kayos, topic: str, arguments: tuple[str, str]) -> None:
    fill(kayos, topic, 3_000, size=1_000)
    reading, writing = os.pipe()
    with kayos.start("consume", topic, "--consumer", "c", *arguments, stdout=writing) as running:
        os.close(writing)
        assert os.read(reading, 10_000)  # like head: some lines, then gone
        os.close(reading)
        assert running.wait() == 0
        assert running.errors() == ""
    seq = mark_seq(kayos, topic, "c")
    assert seq is None or seq < 3_000
    assert keys(kayos, topic, "--consumer", "c", "-e")[-1] == "k2999"


def test_a_reader_that_goes_away_while_there_is_nothing_to_write_ends_it(kayos: Kayos, topic: str) -> None:
    kayos.ok("produce", topic, "-k", "a", "-v", "1")
    with kayos.start("consume", topic, "--consumer", "c") as running:
        assert running.read_line()
        wait_until(lambda: mark_seq(kayos, topic, "c") == 1, "the commit")
        assert running.process.stdout is not None
        running.process.stdout.close()
        running.process.stdout = None
        assert running.wait() == 0
        assert running.errors() == ""


def test_ctrl_c_does_not_wait_for_a_reader_that_does_not_read(kayos: Kayos, topic: str) -> None:
    """The output is stuck in a full pipe: Ctrl-C ends at once all the same, and nothing was committed."""
    fill(kayos, topic, 2_000, size=1_000)
    with kayos.start("consume", topic, "--consumer", "c") as running:
        assert running.read_line()
        running.interrupt()
        assert running.wait() == 130
    assert mark_seq(kayos, topic, "c") is None


def test_output_that_cannot_be_written_is_a_failure_and_not_committed(kayos: Kayos, topic: str) -> None:
    fill(kayos, topic, 2)
    with (
        Path("/dev/full").open("wb") as full,
        kayos.start("consume", topic, "--consumer", "c", "-e", stdout=full) as running,
    ):
        assert running.wait() == 1
        errors = running.errors()
    assert "No space left" in errors and errors.count("\n") == 1
    assert mark_seq(kayos, topic, "c") is None
