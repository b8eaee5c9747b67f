"""`kayos dev`, `kayos node run` and `kayos config`: from the start to the signal, and what a bad setting is told."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import Kayos, Running, wait_until


def start_dev(kayos: Kayos, temporary: Path, *more: str) -> tuple[Running, str]:
    running = kayos.start("dev", "--listen", "127.0.0.1:0", *more, env={"TMPDIR": str(temporary)})
    word, address = running.read_line().decode().split()[:2]
    assert word == "ready"
    return running, address


def test_dev_says_ready_runs_the_commands_it_shows_and_leaves_nothing(tmp_path: Path) -> None:
    kayos = Kayos("127.0.0.1:1")
    running, address = start_dev(kayos, tmp_path)
    with running:
        shown = [running.read_line().decode().split() for _ in range(3)]
        outputs = [kayos.ok(*words[1:]) for words in shown]
        assert [words[0] for words in shown] == ["kayos"] * 3
        assert [words[-1] for words in shown] == [address] * 3
        assert [(row["key"], row["value"]) for row in outputs[2].rows] == [("greeting", "hello")]
        assert len(list(tmp_path.iterdir())) == 1
        with kayos.start("consume", "demo", "--servers", address) as consumer:  # even with a consumer at work
            consumer.read_line()
            running.interrupt()
            assert running.wait() == 0
        assert running.errors() == ""
    assert list(tmp_path.iterdir()) == []
    assert kayos("topic", "list", "--servers", address, "--timeout", "0.3").code == 5
    with pytest.raises(ProcessLookupError):
        os.kill(running.process.pid, 0)


def test_dev_keeps_data_that_was_given_a_place(tmp_path: Path) -> None:
    kayos = Kayos("127.0.0.1:1")
    for number in range(2):
        running, address = start_dev(kayos, tmp_path, "--data", str(tmp_path / "kept"))
        with running:
            if number == 0:
                kayos.ok("topic", "create", "t", "--servers", address)
                kayos.ok("produce", "t", "-k", "a", "-v", "1", "--servers", address)
            assert kayos.ok("get", "t", "a", "--raw", "--servers", address).out == b"1"
            running.process.send_signal(signal.SIGTERM)
            assert running.wait() == 0
    assert kayos.ok("check", str(tmp_path / "kept")).json[0]["messages"] == 1


def test_a_taken_port_and_a_taken_directory_are_conflicts(tmp_path: Path) -> None:
    kayos = Kayos("127.0.0.1:1")
    running, address = start_dev(kayos, tmp_path, "--data", str(tmp_path / "kept"))
    with running:
        taken = kayos("dev", "--listen", address)
        assert taken.code == 6 and "taken" in taken.err and taken.err.splitlines()[-1].startswith("kayos: ")
        same = kayos("node", "run", "--standalone", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "kept"))
        assert same.code == 6 and "another node runs" in same.err
        running.interrupt()
        assert running.wait() == 0


def test_a_node_runs_drains_on_the_first_signal_and_ends_on_the_second(tmp_path: Path) -> None:
    kayos = Kayos("127.0.0.1:1")
    settings = tmp_path / "kayos.toml"
    settings.write_text('listen = "127.0.0.1:0"\nlog_level = "info"\nstandalone = true\n')
    arguments = ("node", "run", "--config", str(settings), "--data", str(tmp_path / "data"), "--no-reflection")
    with kayos.start(*arguments, "--set", "drain_grace_s=0.5") as running:
        ready = read_ready(running)
        assert Path(ready["data"]) == tmp_path / "data"
        kayos.ok("topic", "create", "t", "--servers", ready["address"])
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == 0
        assert "draining" in running.errors()

    # A call that never ends holds the drain up to its grace; the second signal does not wait for it.
    with kayos.start(*arguments, "--set", "drain_grace_s=600") as running:
        address = read_ready(running)["address"]
        with kayos.start("produce", "t", "--servers", address, stdin=subprocess.PIPE) as producer:
            assert producer.process.stdin is not None
            producer.process.stdin.write(b'{"key": "a", "value": "1"}\n')
            producer.process.stdin.flush()
            wait_until(lambda: kayos("get", "t", "a", "--servers", address).code == 0, "the first message")
            running.process.send_signal(signal.SIGSTOP)  # so that both signals are there before it can act
            running.interrupt()
            running.process.send_signal(signal.SIGTERM)
            running.process.send_signal(signal.SIGCONT)
            assert running.wait() in (128 + signal.SIGINT, 128 + signal.SIGTERM)


def read_ready(running: Running) -> dict[str, str]:
    """The node's own log line, on stderr."""
    assert running.process.stderr is not None
    while line := running.process.stderr.readline():
        entry: dict[str, str] = json.loads(line)
        if entry["event"] == "ready":
            return entry
    raise AssertionError("the node ended before it was ready")


def test_bad_settings_are_told_before_the_disk_is_touched(tmp_path: Path) -> None:
    kayos = Kayos("127.0.0.1:1")
    data = tmp_path / "data"
    bad = tmp_path / "bad.toml"
    bad.write_text("listne = 1\n")
    no_toml = tmp_path / "no.toml"
    no_toml.write_text("= = =")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    cluster = tmp_path / "cluster.toml"
    cluster.write_text('[nodes]\na = "127.0.0.1:7401"\n')
    alone = ("node", "run", "--standalone", "--data", str(data), "--listen", "127.0.0.1:0")
    for arguments, reason in (
        (("node", "run", "--data", str(data)), "--standalone"),
        ((*alone, "--config", str(tmp_path / "nowhere.toml")), "No such file"),
        ((*alone, "--config", str(tmp_path)), "Is a directory"),
        ((*alone, "--config", str(bad)), "listne"),
        ((*alone, "--config", str(no_toml)), "not TOML"),
        ((*alone, "--config", str(binary)), "not UTF-8"),
        ((*alone, "--set", "no_such=1"), "no_such"),
        ((*alone, "--set", "nothing"), "NAME=VALUE"),
        ((*alone, "--map-bytes", "many"), "map_bytes"),
        ((*alone, "--log-level", "loud"), "log_level"),
        (("node", "run", "--standalone", "--data", str(data), "--listen", "0.0.0.0:0"), "insecure_listen"),
        (("node", "run", "--standalone", "--data", str(data), "--listen", "nowhere"), "HOST:PORT"),
        ((*alone, "--cluster-file", str(cluster), "--name", "a"), "both given"),
        (("node", "run", "--data", str(data), "--cluster-file", str(cluster)), "name is not given"),
        (("node", "run", "--data", str(data), "--cluster-file", str(cluster), "--name", "z"), "which names a"),
        (("node", "run", "--data", str(data), "--cluster-file", str(bad), "--name", "a"), "nodes is missing"),
    ):
        refused = kayos(*arguments)
        assert refused.code == 2 and reason in refused.err and refused.err.count("\n") == 1, refused
        assert not data.exists()
    (tmp_path / "file").write_text("")
    assert kayos("node", "run", "--standalone", "--data", str(tmp_path / "file"), "--listen", "127.0.0.1:0").code == 2


def test_settings_are_checked_and_shown_with_their_origin(tmp_path: Path) -> None:
    kayos = Kayos("127.0.0.1:1")
    settings = tmp_path / "kayos.toml"
    settings.write_text('listen = "127.0.0.1:7500"\nlog_level = "debug"\n')
    assert kayos.ok("config", "check", str(settings)).json == {"file": str(settings), "accepted": True}
    shown = kayos("config", "show", "--config", str(settings), "--origin", env={"KAYOS_LOG_LEVEL": "error"})
    rows = {row["setting"]: (row["value"], row["origin"]) for row in shown.json}
    assert rows["listen"] == ("127.0.0.1:7500", str(settings))
    assert rows["log_level"] == ("error", "KAYOS_LOG_LEVEL")
    assert rows["reflection"] == (True, "default")
    assert b"ORIGIN" not in kayos.ok("config", "show", "-o", "table").out
    settings.write_text("listen = 7\n")
    assert kayos("config", "check", str(settings)).code == 2


def test_without_the_server_extra_it_says_what_to_install(tmp_path: Path) -> None:
    """A stand-in for the base install: the modules of the extra cannot be found."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nfor name in ('lmdb', 'uvloop', 'structlog', 'msgspec'):\n    sys.modules[name] = None\n"
    )
    kayos = Kayos("127.0.0.1:1")
    base_install = {"PYTHONPATH": str(tmp_path)}
    for arguments in (
        ("node", "run", "--standalone", "--data", str(tmp_path / "data")),
        ("dev",),
        ("check", str(tmp_path)),
        ("config", "show"),
    ):
        refused = kayos(*arguments, env=base_install)
        assert refused.code == 1 and "install kayos[server]" in refused.err and refused.err.count("\n") == 1, refused
    assert kayos("node", "run", "--help", env=base_install).code == 0
    assert not (tmp_path / "data").exists()
