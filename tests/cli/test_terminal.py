"""At a terminal: tables, questions and progress; piped: none of them."""

from pathlib import Path

from tests.cli.command import Kayos


def test_a_terminal_gets_tables_and_is_asked(kayos: Kayos, topic: str) -> None:
    listed = kayos.on_terminal("topic", "list")
    assert listed.code == 0 and b"NAME" in listed.out and topic.encode() in listed.out and b"{" not in listed.out
    written = kayos.on_terminal("produce", topic, "-k", "a", "-v", "1")
    assert b"copies" in written.out and b"{" not in written.out
    # A stream stays lines of JSON, also here; -o table is for the eye.
    assert b'"key": "a"' in kayos.on_terminal("consume", topic, "-e").out
    assert b"SHARD" in kayos.on_terminal("consume", topic, "-e", "-o", "table").out

    no = kayos.on_terminal("topic", "delete", topic, answer="n\n")
    assert no.code == 1 and b"Delete topic" in no.out and b"nothing was changed" in no.out
    interrupted = kayos.on_terminal("topic", "delete", topic, answer="\x03")
    assert interrupted.code == 130
    assert kayos("topic", "describe", topic).code == 0
    assert kayos.on_terminal("mark", "reset", topic, "c", "--to", "0", answer="y\n").code == 0
    assert kayos.on_terminal("topic", "delete", topic, answer="y\n").code == 0
    assert kayos("topic", "describe", topic).code == 3


def test_text_from_messages_cannot_steer_the_terminal(kayos: Kayos, topic: str) -> None:
    kayos.ok("produce", topic, "-k", "\x1b[2J", "-v", "\x1b]0;owned\x07\x9b1m\n[bold]x")
    for arguments in (("get", topic, "\x1b[2J"), ("consume", topic, "-e"), ("consume", topic, "-e", "-o", "table")):
        shown = kayos.on_terminal(*arguments)
        assert shown.code == 0 and b"owned" in shown.out and b"[bold]x" in shown.out, shown
        assert b"\x1b]0;" not in shown.out and b"\x1b[2J" not in shown.out and "\x9b".encode() not in shown.out


def test_long_work_shows_progress_on_a_terminal_and_only_there(kayos: Kayos, topic: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"".join(b"key-%d:value\n" % number for number in range(20_000)))
    piped = kayos("produce", topic, "-K", ":", stdin=lines.read_bytes())
    assert (piped.code, piped.err) == (0, "")
    with (tmp_path / "out").open("wb") as out:
        watched = kayos.on_terminal("consume", topic, "-e", stdout=out)
    assert watched.code == 0 and f"consuming {topic}".encode() in watched.out
    assert (tmp_path / "out").read_bytes().count(b"\n") == 20_000
    assert kayos("consume", topic, "-e").err == ""
