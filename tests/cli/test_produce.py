"""`kayos produce` and `kayos get`: one message, streams of stdin, binary data, and what is told of a wrong line."""

import base64
import json
import random
import subprocess
from pathlib import Path

from tests.cli.command import Kayos, Running, wait_until
from tests.nodes import NodeProcess


def consumed(kayos: Kayos, topic: str, *more: str) -> list[dict[str, object]]:
    return kayos.ok("consume", topic, "-e", *more).rows


def test_one_message_is_written_read_and_deleted(kayos: Kayos, topic: str) -> None:
    written = kayos.ok("produce", topic, "-k", "a", "-v", "1", "--header", "by=me", "--header", "by=you").json
    assert (written["topic"], written["shard"], written["seq"], written["copies"]) == (topic, 0, 1, 1)
    assert len(written["history_id"]) == 32
    found = kayos.ok("get", topic, "a", "--min-seq", "1").json
    assert list(found)[:6] == ["topic", "shard", "seq", "key", "value", "timestamp"]
    assert (found["key"], found["value"], found["headers"]) == ("a", "1", [["by", "me"], ["by", "you"]])

    # A condition holds or is a conflict, and the conflict changes nothing.
    second = kayos.ok("produce", topic, "-k", "a", "-v", "2", "--expected-seq", "1").json
    conflict = kayos("produce", topic, "-k", "a", "-v", "3", "--expected-seq", "1")
    assert conflict.code == 6 and conflict.out == b"" and str(second["seq"]) in conflict.err
    assert kayos("produce", topic, "-k", "a", "-v", "3", "--expected-seq", "0").code == 6
    assert kayos.ok("get", topic, "a", "--raw").out == b"2"

    # Deleted, it is not found; a consumer that knew it is told so.
    kayos.ok("consume", topic, "--consumer", "c", "-e")
    kayos.ok("produce", topic, "-k", "a", "--delete", "--durability", "1")
    gone = kayos("get", topic, "a")
    assert (gone.code, gone.out) == (3, b"") and "'a'" in gone.err
    tombstones = consumed(kayos, topic, "--consumer", "c")
    assert [(row["key"], row["value"]) for row in tombstones] == [("a", None)]

    # A table for the eye; the time to live ends the message.
    assert b"copies" in kayos.ok("produce", topic, "-k", "t", "-v", "x", "--ttl-ms", "60000", "-o", "table").out


def test_lines_of_json_in_every_form(kayos: Kayos, topic: str) -> None:
    lines = [
        {"key": "k1", "value": "plain ü \u2028 \u009b \x1b"},
        {"key": "k2", "value": "old"},
        {"key": "k2", "value": None},
        {"value": "unkeyed"},
        {"key": "aGk=", "key_encoding": "base64", "value": "00ff", "value_encoding": "hex"},
        {"key": "h", "value": "", "headers": {"a": "1"}, "ttl_ms": 600000, "expected_seq": 0, "route": "r"},
        {"key": "p", "value": "v", "headers": [["a", "/w=="], ["a", "AA=="]], "headers_encoding": "base64"},
    ]
    text = b"\n".join(json.dumps(line).encode() for line in lines) + b"\n\n"
    summary = kayos.ok("produce", topic, stdin=text).json
    assert summary == {"topic": topic, "delivered": 7, "failed": 0}
    rows = {row["key"]: row for row in consumed(kayos, topic)}
    assert rows["k1"]["value"] == lines[0]["value"]
    assert rows[None]["value"] == "unkeyed"
    assert (rows["hi"]["value"], rows["hi"]["value_encoding"]) == ("AP8=", "base64")
    assert (rows["h"]["value"], rows["h"]["headers"]) == ("", {"a": "1"})
    assert rows["p"]["headers"] == [["a", "/w=="], ["a", "AA=="]] and rows["p"]["headers_encoding"] == "base64"
    assert "k2" not in rows or rows["k2"]["value"] is None

    # One line a message, if asked; nothing in them steers a terminal or breaks a line.
    told = kayos.ok("produce", topic, "-o", "jsonl", stdin=text.splitlines()[0] + b"\n" + text.splitlines()[3]).rows
    assert [row["line"] for row in told] == [1, 2] and told[1]["seq"] == told[0]["seq"] + 1
    raw = kayos.ok("consume", topic, "-e").out.decode()
    assert not any(forbidden in raw for forbidden in "\x1b\x9b\u2028")
    assert len(raw.splitlines()) == raw.count("\n")


def test_plain_lines_with_and_without_keys_hold_any_bytes(kayos: Kayos, topic: str) -> None:
    kayos.ok("produce", topic, "-K", ":", stdin=b"a:1:2\n\xff\xfe:\x00\xfd\nlast:no newline")
    rows = {row["key"]: row for row in consumed(kayos, topic)}
    assert rows["a"]["value"] == "1:2" and rows["last"]["value"] == "no newline"
    assert base64.b64decode(str(rows["//4="]["value"])) == b"\x00\xfd" and rows["//4="]["key_encoding"] == "base64"
    kayos.ok("produce", topic, "-K", r"\t", "--value-encoding", "base64", stdin=b"b\tAAE=\n")
    assert kayos.ok("get", topic, "b", "--raw").out == b"\x00\x01"
    kayos.ok("produce", topic, "--lines", "--header", "from=log", stdin=b"one\n\ntwo\n")
    unkeyed = [row for row in consumed(kayos, topic) if row["key"] is None]
    assert [row["value"] for row in unkeyed] == ["one", "", "two"]
    assert all(row["headers"] == {"from": "log"} for row in unkeyed)
    bad = kayos("produce", topic, "-K", ":", stdin=b"c:1\nno delimiter\n")
    assert bad.code == 2 and "line 2" in bad.err and bad.json["delivered"] == 1


def test_any_bytes_travel_from_topic_to_topic(kayos: Kayos, topic: str) -> None:
    """What consume writes, produce reads back: keys, values and headers come out as they went in."""
    source = random.Random(7)
    written = {source.randbytes(source.randint(1, 40)): source.randbytes(source.randint(0, 200)) for _ in range(200)}
    lines = [
        {"key": key.hex(), "value": value.hex(), "headers": {"h": base64.b64encode(value[:9]).decode()}}
        | {"headers_encoding": "base64"}
        for key, value in written.items()
    ]
    text = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    kayos.ok("produce", topic, "--key-encoding", "hex", "--value-encoding", "hex", stdin=text)
    kayos.ok("topic", "create", f"{topic}-copy", "--shards", "3")
    kayos.ok("produce", f"{topic}-copy", stdin=kayos.ok("consume", topic, "-e").out)
    copied = consumed(kayos, f"{topic}-copy", "--key-encoding", "base64", "--value-encoding", "hex")
    assert {base64.b64decode(str(row["key"])): bytes.fromhex(str(row["value"])) for row in copied} == written
    for row in copied:
        header = row["headers"]["h"]  # type: ignore[index]
        raw = base64.b64decode(header) if row.get("headers_encoding") == "base64" else header.encode()
        assert raw == bytes.fromhex(str(row["value"]))[:9]

    # The same by arguments: a process may be given bytes that are no text.
    kayos.ok("produce", topic, b"-k", b"\xff\x01", b"-v", b"\xfe", b"--header", b"n=\xfd")
    assert kayos.ok("get", topic, b"\xff\x01", "--raw").out == b"\xfe"
    assert kayos.ok("get", topic, "ff01", "--key-encoding", "hex").json["headers"] == {"n": "/Q=="}


def test_the_end_of_reading_says_what_was_delivered(kayos: Kayos, topic: str) -> None:
    good = b'{"key": "a", "value": "1"}\n'
    bad = kayos("produce", topic, stdin=good + b"\n" + b'{"key": "b"}\n' + good)
    assert bad.code == 2 and bad.json == {"topic": topic, "delivered": 1, "failed": 0}
    assert bad.err.startswith("kayos: line 3: ") and bad.err.count("\n") == 1
    assert "1 were delivered" in bad.err
    # A message that the client refuses is a bad line too.
    refused = kayos("produce", topic, stdin=good + b'{"key": "", "value": "1"}\n')
    assert refused.code == 2 and "line 2" in refused.err and refused.json["delivered"] == 1
    # A condition that is not met is that message's own failure: the others go on, and the exit code tells.
    mixed = kayos("produce", topic, stdin=good + b'{"key": "a", "value": "2", "expected_seq": 0}\n' + good)
    assert mixed.code == 1 and mixed.json == {"topic": topic, "delivered": 2, "failed": 1}
    assert "line 2" in mixed.err
    alone = kayos("produce", topic, "--expected-seq", "0", stdin=good)
    assert alone.code == 6 and alone.json["failed"] == 1
    # An empty stdin is nothing to do; an unknown topic is found out at the first line.
    assert kayos.ok("produce", topic).json == {"topic": topic, "delivered": 0, "failed": 0}
    assert kayos("produce", "no-such-topic", stdin=good).code == 3


def test_a_node_that_dies_under_a_stream_and_ctrl_c(tmp_path: Path) -> None:
    with NodeProcess.start(tmp_path / "data") as node:
        kayos = Kayos(node.address)
        kayos.ok("topic", "create", "t")
        # Ctrl-C says how far it came.
        with kayos.start("produce", "t", stdin=subprocess.PIPE) as running:
            type_line(running, b'{"key": "a", "value": "1"}\n')
            wait_until(lambda: kayos("get", "t", "a").code == 0, "the first message")
            running.interrupt()
            assert running.wait() == 130
            assert "interrupted: 1 messages were delivered, 0 have no answer yet" in running.errors()
        # Any message that was not delivered makes the exit code 1.
        with kayos.start("produce", "t", "-o", "jsonl", "--timeout", "2", stdin=subprocess.PIPE) as running:
            type_line(running, b'{"key": "b", "value": "1"}\n')
            type_line(running, b'{"key": "c", "value": "1"}\n')
            wait_until(lambda: kayos("get", "t", "c").code == 0, "the second message")
            node.kill()
            type_line(running, b'{"key": "d", "value": "1"}\n')
            assert running.process.stdin is not None
            running.process.stdin.close()
            assert running.wait() == 1
            assert [json.loads(running.read_line())["line"] for _ in range(2)] == [1, 2]
            last_line = running.errors().splitlines()[-1]
            assert last_line.startswith("kayos: of the messages 1 were not delivered and 2 were"), last_line


def type_line(running: Running, line: bytes) -> None:
    assert running.process.stdin is not None
    running.process.stdin.write(line)
    running.process.stdin.flush()


def test_options_that_do_not_fit_together(kayos: Kayos, topic: str) -> None:
    for arguments in (
        ("-k", "a"),
        ("--delete",),
        ("-k", "a", "-v", "1", "--delete"),
        ("-v", "1", "-K", ":"),
        ("-K", ""),
        ("-K", ":", "--lines"),
        ("-v", "1", "--header", "nothing"),
        ("-v", "1", "--header", "=x"),
        ("-v", "1", "--durability", "0"),
        ("-v", "1", "--durability", "two"),
        ("-v", "1", "--durability", "9"),
        ("-v", "1", "--ttl-ms", "0"),
        ("-v", "1", "--expected-seq", "-1"),
        ("-v", "1", "--expected-seq", "1"),
        ("-v", "zz", "--value-encoding", "hex"),
        ("-k", "", "-v", "1"),
        ("-v", "1", "--value-encoding", "rot13"),
    ):
        refused = kayos("produce", topic, *arguments)
        assert refused.code == 2, (arguments, refused)
        assert refused.err.startswith("kayos: ") and refused.err.count("\n") == 1 and refused.out == b""
    assert consumed(kayos, topic) == []
