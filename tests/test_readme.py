"""README.md says what is true: its console lines run, its Python runs, its figures name commands that exist."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.nodes import NodeProcess
from tests.ports import lasting_addresses

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SCRIPTS = Path(sys.executable).parent
TIMEOUT_S = 60


CHAIN_SECTION = README[README.index("## A chain of three") : README.index("## Install")]


def blocks(language: str, text: str = README.replace(CHAIN_SECTION, "")) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands_of(found: list[str]) -> list[str]:
    return [line[2:] for block in found for line in block.splitlines() if line.startswith("$ ")]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess.start(tmp_path / "data", map_bytes=1 << 30) as started:
        yield started
        assert started.stop() == 0


def test_console_lines_run_in_order(node: NodeProcess, tmp_path: Path) -> None:
    environment = {**os.environ, "KAYOS_SERVERS": node.address, "PATH": f"{SCRIPTS}:{os.environ['PATH']}"}
    commands = [line for line in commands_of(blocks("console")) if not line.startswith("source ")]
    assert len(commands) > 10
    for command in commands:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"


def test_shown_output_is_what_comes_out(node: NodeProcess, tmp_path: Path) -> None:
    """The messages of the first story, but for their time."""
    shown = [line for block in blocks("console") for line in block.splitlines() if line.startswith("{")]
    environment = {**os.environ, "KAYOS_SERVERS": node.address}
    run = [str(SCRIPTS / "kayos")]
    for arguments in (
        ["topic", "create", "orders"],
        ["produce", "orders", "-k", "1001", "-v", '{"total": 9}'],
        ["produce", "orders", "-k", "1002", "-v", '{"total": 5}'],
        ["produce", "orders", "-k", "1001", "-v", '{"total": 12}'],
    ):
        subprocess.run([*run, *arguments], env=environment, check=True, capture_output=True, timeout=TIMEOUT_S)
    done = subprocess.run(
        [*run, "consume", "orders", "-e"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    without_time = re.compile(r'"timestamp": \d+')
    assert [without_time.sub("", line) for line in done.stdout.splitlines()] == [
        without_time.sub("", line) for line in shown
    ]


def test_the_chain_section_runs_as_one_session(tmp_path: Path) -> None:
    """Three nodes start, the head is killed, it joins again, the stores are equal: as pasted into a terminal."""
    ports = {f"127.0.0.1:740{number}": address for number, address in enumerate(lasting_addresses(3), 1)}

    def on_free_ports(text: str) -> str:
        for shown, free in ports.items():
            text = text.replace(shown, free)
        return text

    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "cluster.toml").write_text(on_free_ports((ROOT / "deploy" / "cluster.toml").read_text()))
    commands = [on_free_ports(line) for line in commands_of(blocks("console", CHAIN_SECTION))]
    session = subprocess.Popen(
        ["bash", "-e", "-c", "\n".join(commands)],
        cwd=tmp_path,
        env={**os.environ, "KAYOS_MAP_BYTES": str(1 << 30), "PATH": f"{SCRIPTS}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = session.communicate(timeout=TIMEOUT_S)
    finally:
        # Its own group: whatever happened, no node outlives the test.
        with suppress(ProcessLookupError):
            os.killpg(session.pid, signal.SIGKILL)
        session.wait()
    assert session.returncode == 0, output
    copies = re.findall(r'"copies": (\d)', output)
    assert copies == ["3", "2", "3"]
    assert '"equal": true' in output


def test_python_runs(node: NodeProcess, tmp_path: Path) -> None:
    for number, block in enumerate(blocks("python")):
        script = tmp_path / f"block{number}.py"
        script.write_text(block.replace("127.0.0.1:7400", node.address))
        done = subprocess.run(
            [sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr


def test_named_modules_exist() -> None:
    for module in re.findall(r"`python -m (kayos[\w.]+)`", README):
        assert find_spec(module) is not None, module


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md"])
def test_links_and_named_files_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    links = re.findall(r"\]\(([^)#]+)\)", text)
    named = re.findall(r"`((?:kayos|tests|proto|deploy)/[\w./]+)`", text)
    missing = [name for name in [*links, *named] if not (ROOT / name).exists()]
    assert not missing
