"""The node's data directory: private, locked by one process, and marked with the node's id and format.

DIR/lock · DIR/node.json · DIR/topics.json, and what `shard_directories` keeps there.
"""

import fcntl
import os
import secrets
from pathlib import Path

import msgspec

from kayos.errors import DamagedStore, FailedPrecondition, InvalidArgument
from kayos.files import fsync_path, replace_file

FORMAT = 1
NODE_FILE = "node.json"
LOCK_FILE = "lock"


class NodeFile(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    node_id: str


class DataDirectory:
    """Open: the lock is held. The lock is the kernel's, so it goes with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        make_private(path)
        self._lock = open_lock(path / LOCK_FILE)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise FailedPrecondition(
                f"another node runs on {path}: stop it first, or give another data directory"
            ) from None
        self.node_id = find_or_create_node_id(path / NODE_FILE)

    def close(self) -> None:
        os.close(self._lock)


def make_private(path: Path) -> None:
    """Create the directory with mode 0700, durably, or tighten the one that is there."""
    try:
        is_new = not path.exists()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_new:
            fsync_path(path.parent)
        if path.stat().st_mode & 0o077:
            path.chmod(0o700)
    except FileExistsError:
        raise InvalidArgument(f"{path} is not a directory: give one for the data") from None
    except OSError as error:
        raise InvalidArgument(f"the data directory {path} cannot be used: {error.strerror}") from error


def open_lock(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be opened ({error.strerror}): give another data directory") from error


def find_or_create_node_id(path: Path) -> str:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=NodeFile)
    except FileNotFoundError:
        created = NodeFile(FORMAT, secrets.token_hex(8))
        replace_file(path, msgspec.json.encode(created))
        return created.node_id
    except msgspec.MsgspecError as error:
        raise DamagedStore(f"{path} is damaged: restore it from a backup") from error
    if found.format != FORMAT:
        raise DamagedStore(f"{path} has format {found.format}: this version of Kayos reads {FORMAT}")
    return found.node_id
