"""README.md says what is true: its console lines run, its Python runs, its figures name commands that exist."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nodes import NodeProcess

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SCRIPTS = Path(sys.executable).parent
TIMEOUT_S = 60


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess.start(tmp_path / "data", map_bytes=1 << 30) as started:
        yield started
        assert started.stop() == 0


def test_console_lines_run_in_order(node: NodeProcess, tmp_path: Path) -> None:
    environment = {**os.environ, "KAYOS_SERVERS": node.address, "PATH": f"{SCRIPTS}:{os.environ['PATH']}"}
    lines = [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]
    commands = [line for line in lines if not line.startswith("source ")]
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


def test_python_runs(node: NodeProcess, tmp_path: Path) -> None:
    for number, block in enumerate(blocks("python")):
        script = tmp_path / f"block{number}.py"
        script.write_text(block.replace("127.0.0.1:7400", node.address))
        done = subprocess.run(
            [sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr


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
