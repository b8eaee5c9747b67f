"""Which environment of a store's directory is the current one.

    DIR/CURRENT      "3\n": the generation in use
    DIR/env.3/       its LMDB environment
    DIR/witness      how far it had come

A compaction or a full copy prepares the next generation beside the current one and switches by replacing
CURRENT, which is atomic; what a crash leaves behind is removed at the next open.
"""

import shutil
from pathlib import Path

from kayos.errors import DamagedStore
from kayos.files import fsync_path, replace_file

CURRENT = "CURRENT"
_PREFIX = "env."


def environment_path(directory: Path, generation: int) -> Path:
    return directory / f"{_PREFIX}{generation}"


def read_current(directory: Path) -> int:
    """The generation in use; 0 when the store was never created."""
    path = directory / CURRENT
    if not path.exists():
        return 0
    text = path.read_text(errors="replace").strip()
    if not text.isdecimal() or not 0 < len(text) < 20:
        raise DamagedStore(f"{path} holds {text[:40]!r} instead of a number: restore it from another copy")
    generation = int(text)
    if not environment_path(directory, generation).is_dir():
        raise DamagedStore(f"{path} names generation {generation}, which is missing: restore it from another copy")
    return generation


def write_current(directory: Path, generation: int) -> None:
    """Switch, durably and at once."""
    fsync_path(directory)
    replace_file(directory / CURRENT, f"{generation}\n".encode())


def remove_others(directory: Path, generation: int) -> None:
    """Drop environments that are not in use: left by a crash, or replaced."""
    for path in directory.glob(f"{_PREFIX}*"):
        if path != environment_path(directory, generation):
            shutil.rmtree(path)
