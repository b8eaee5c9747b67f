"""The house rules that a machine can check: directions of import, one door per driver, sizes, bounds, names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "kayos"
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if "wire/v1" not in path.as_posix())
FILE_LINES_MAX = 420
FUNCTION_LINES_MAX = 60

FOUNDATION = {"errors", "files", "limits", "model", "stream"}
# Which packages a package may import; its own is understood.
MAY_IMPORT = {
    "errors": set(),
    "limits": set(),
    "files": set(),
    "model": {"errors", "limits"},
    "stream": {"errors", "limits", "model"},
    "replica": FOUNDATION,
    "storage": FOUNDATION,
    "cluster": FOUNDATION,
    "wire": FOUNDATION,
    "server": {"storage", "cluster", "replica", "wire", *FOUNDATION},
    "client": {"wire", *FOUNDATION},
    "aio": {"client", *FOUNDATION},
    "spark": {"client", "wire", *FOUNDATION},
    "cli": {"server", "storage", "cluster", "client", "wire", "aio", *FOUNDATION},
}
# Each driver behind one door. LMDB has a second one: the checker reads the file without opening it. The
# benchmarks measure bare LMDB, gRPC included, as the ceiling that Kayos is compared with.
DOORS = {
    "lmdb": {"kayos/storage/environment.py", "kayos/storage/check.py", "kayos/cli/bench/ceiling.py"},
    "kazoo": {"kayos/cluster/zookeeper.py"},
    "uvloop": {"kayos/server/loop.py"},
    "pyspark": {"kayos/spark"},
}


def room_of(path: Path) -> str:
    """The package, or top-level module, that a file belongs to; empty for kayos/__init__.py."""
    first = path.relative_to(PACKAGE).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module == "kayos")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_point_in_one_direction(path: Path) -> None:
    room = room_of(path)
    if not room:
        return
    assert room in MAY_IMPORT, f"{room} is new: say in MAY_IMPORT what it may import"
    for name in imports_of(path):
        parts = name.split(".")
        if (
            parts[0] == "kayos"
            and len(parts) > 1
            and (PACKAGE / parts[1]).with_suffix(".py").exists() | (PACKAGE / parts[1]).is_dir()
        ):
            assert parts[1] in {room, *MAY_IMPORT[room]}, f"{room} must not import {name}"


@pytest.mark.parametrize("driver", DOORS)
def test_each_driver_has_one_door(driver: str) -> None:
    users = {
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if any(name.split(".")[0] == driver for name in imports_of(path))
    }
    strangers = {user for user in users if not any(user.startswith(door) for door in DOORS[driver])}
    assert not strangers, f"{driver} is imported outside its door"


def test_files_and_functions_stay_small() -> None:
    large = []
    for path in SOURCES:
        text = path.read_text()
        if text.count("\n") > FILE_LINES_MAX:
            large.append(f"{path.relative_to(ROOT)} has {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    large.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {lines} lines")
    assert not large


def test_every_module_says_what_it_is() -> None:
    silent = [str(path.relative_to(ROOT)) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert not silent


def test_nothing_is_left_to_do_in_comments() -> None:
    pattern = re.compile(r"\b(TODO|FIXME|XXX)\b|NotImplementedError|pytest\.mark\.(skip|xfail)\b")
    files = [*SOURCES, *(ROOT / "tests").rglob("*.py")]
    left = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert not left


def test_every_limit_is_used() -> None:
    names = re.findall(r"^([A-Z][A-Z0-9_]+) = ", (PACKAGE / "limits.py").read_text(), re.MULTILINE)
    users = "\n".join(path.read_text() for path in SOURCES)
    unused = [name for name in names if len(re.findall(rf"\b{name}\b", users)) < 2]
    assert not unused
