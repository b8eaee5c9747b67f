"""Marks, pins, the state of the cluster and compaction, as an operator meets them."""

from tests.cli.command import Kayos


def test_marks_are_listed_set_and_reset(kayos: Kayos) -> None:
    kayos.ok("topic", "create", "marked", "--shards", "2")
    kayos.ok("produce", "marked", "-K", ":", stdin=b"".join(b"%d:x\n" % number for number in range(40)))
    assert kayos.ok("mark", "list", "marked").json == []
    assert kayos("mark", "get", "marked", "c").code == 3
    kayos.ok("consume", "marked", "--consumer", "c", "-e")
    marks = kayos.ok("mark", "get", "marked", "c").json
    assert [row["shard"] for row in marks] == [0, 1] and all(row["lag"] <= 1 for row in marks)
    assert len(marks[0]["history_id"]) == 32
    listed = kayos.ok("mark", "list", "marked", "-o", "table").out.decode().splitlines()
    assert listed[0].split() == ["CONSUMER", "SHARD", "SEQ", "HIGH_SEQ", "LAG", "HISTORY_ID"] and len(listed) == 3

    # Set moves forward only, and finds the history by itself.
    assert kayos.ok("mark", "set", "marked", "d", "3", "--shard", "1").json[0]["seq"] == 3
    again = kayos.ok("mark", "set", "marked", "d", "4", "--shard", "1", "--history", marks[1]["history_id"]).json
    assert again[0]["seq"] == 4
    back = kayos("mark", "set", "marked", "d", "2", "--shard", "1")
    assert back.code == 6
    assert kayos("mark", "set", "marked", "d", "999999").code == 6
    assert kayos("mark", "set", "marked", "d", "5", "--shard", "9").code == 2
    assert kayos("mark", "set", "marked", "d", "5", "--history", "xyz").code == 2
    assert kayos("mark", "set", "marked", "d", "5", "--history", "ab" * 16).code == 6

    # Reset asks, or needs --yes; a dry run says what would be and changes nothing.
    assert kayos("mark", "reset", "marked", "c", "--to", "0").code == 2
    dry = kayos.ok("mark", "reset", "marked", "c", "--to", "0", "--dry-run")
    assert [(row["before"], row["after"]) for row in dry.json] == [(row["seq"], 0) for row in marks]
    assert "nothing was changed" in dry.err
    assert [row["seq"] for row in kayos.ok("mark", "get", "marked", "c").json] == [row["seq"] for row in marks]
    kayos.ok("mark", "reset", "marked", "c", "--to", "seq:2", "--shard", "0", "--yes")
    assert [row["seq"] for row in kayos.ok("mark", "get", "marked", "c").json] == [2, marks[1]["seq"]]
    kayos.ok("mark", "reset", "marked", "c", "--to", "time:2020-01-01T00:00:00Z", "-y")
    assert len(kayos.ok("consume", "marked", "--consumer", "c", "-e").rows) == 40
    kayos.ok("mark", "reset", "marked", "c", "--to", "0", "-y")
    assert len(kayos.ok("consume", "marked", "--consumer", "c", "-e", "--no-commit").rows) == 40
    kayos.ok("mark", "reset", "marked", "c", "--to", "latest", "-y")
    assert kayos.ok("consume", "marked", "--consumer", "c", "-e").rows == []
    assert kayos("mark", "reset", "marked", "c", "--to", f"seq:{2**62}", "-y").code == 2
    for wrong in ("mark", "7", "never"):
        assert kayos("mark", "reset", "marked", "c", "--to", wrong, "-y").code == 2
    dropped = kayos.ok("mark", "reset", "marked", "c", "--to", "drop", "-y").json
    assert [row["after"] for row in dropped] == [None, None]
    assert kayos("mark", "get", "marked", "c").code == 3


def test_pins_are_created_listed_renewed_and_released(kayos: Kayos, topic: str) -> None:
    kayos.ok("produce", topic, "-k", "a", "-v", "1")
    made = kayos.ok("pin", "create", topic, "--id", "night", "--lease-ms", "60000").json
    assert [(row["pin_id"], row["shard"], row["ended"]) for row in made] == [("night", 0, None)]
    assert made[0]["lease_until_ms"] - made[0]["created_ms"] == 60_000
    assert kayos.ok("pin", "list", topic).json == made
    assert kayos.ok("pin", "list", topic, "-o", "table").out.split()[:2] == [b"PIN_ID", b"SHARD"]
    renewed = kayos.ok("pin", "renew", topic, "night", "--lease-ms", "600000").json
    assert renewed[0]["lease_until_ms"] > made[0]["lease_until_ms"]
    random_name = kayos.ok("pin", "create", topic, "--shard", "0").json[0]["pin_id"]
    assert random_name != "night"
    assert kayos.ok("pin", "release", topic, "night").json == {"topic": topic, "pin_id": "night", "released": True}
    living = [row["pin_id"] for row in kayos.ok("pin", "list", topic).json if row["ended"] is None]
    assert living == [random_name]
    assert kayos("pin", "renew", topic, "night").code == 3
    assert kayos("pin", "release", topic, "never-was").code == 3
    assert kayos("pin", "create", topic, "--id", "Bad Name").code == 2
    assert kayos("pin", "create", topic, "--shard", "5").code == 2


def test_the_cluster_tells_its_state_and_compacts(kayos: Kayos, topic: str) -> None:
    kayos.ok("produce", topic, "-k", "a", "-v", "1")
    status = kayos.ok("cluster", "status").json
    assert status["address"] == kayos.servers and status["version"] and status["resident_bytes"] > 0
    assert [row["high_seq"] for row in status["shards"] if row["topic"] == topic] == [1]
    table = kayos.ok("cluster", "status", "-o", "table").out.decode()
    assert kayos.servers in table and topic in table

    compacted = kayos.ok("compact", topic).json
    assert [(row["topic"], row["shard"]) for row in compacted] == [(topic, 0)]
    assert compacted[0]["bytes_after"] > 0
    assert len(kayos.ok("compact", topic, "--shard", "0", "-o", "jsonl").rows) == 1
    assert kayos("compact", topic, "--shard", "3").code == 2
    assert kayos("compact", "no-such-topic").code == 3
    assert kayos.ok("get", topic, "a", "--raw").out == b"1"
