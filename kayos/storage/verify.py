"""What a store must pass before it is used: no damaged byte is served, and none kills the process.

LMDB trusts its file: a damaged page can end the process that reads it. A small file is first walked as plain
bytes, which proves the structure, then read here. A large one would take too long to walk (some 40 MB a
second), so its content is read in a process of its own: if that one dies, the store is damaged and the node
lives. `kayos check` does both, whatever the size.
"""

import subprocess
import sys
from pathlib import Path

from kayos.errors import DamagedStore
from kayos.limits import MIB
from kayos.storage.check import find_content_problems, find_structural_problems
from kayos.storage.environment import DATA_FILE, check_file

WALKED_BYTES_MAX = 32 * MIB


def verify_before_use(path: Path, map_bytes: int) -> None:
    data = path / DATA_FILE
    if not data.exists():
        raise DamagedStore(f"{data} is missing: restore it from another copy")
    check_file(data, map_bytes)
    if data.stat().st_size <= WALKED_BYTES_MAX:
        problems = find_structural_problems(path, map_bytes) or find_content_problems(path, map_bytes)
    else:
        problems = _check_in_another_process(path, map_bytes)
    if problems:
        raise DamagedStore(
            f"{path} is damaged ({problems[0]}): run 'kayos check' for the whole list, restore it from another copy"
        )


def _check_in_another_process(path: Path, map_bytes: int) -> tuple[str, ...]:
    command = [sys.executable, "-m", "kayos.storage.check", str(path), str(map_bytes)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode == 0:
        return ()
    if finished.returncode == 1 and finished.stdout:
        return tuple(finished.stdout.splitlines())
    return (f"reading it ended the checking process with status {finished.returncode}",)
