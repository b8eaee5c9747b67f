"""A disk that loses power: replays the shim's journal and builds what may be left at any moment.

The model is as harsh as POSIX allows. Of a file, what a finished sync covers is there; each other 4 KiB page holds
any version that it had since (in torn images each 512-byte sector does), and the size may lag behind or run ahead,
with zeros. Of a directory, the entries are those at its last fsync plus some prefix of the changes since: a file
that was synced is still lost when its directory was not.
"""

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

PAGE = 4096
SECTOR = 512
HEAD = struct.Struct("=ciqQ")
CREATE, TRUNCATE = 0o100, 0o1000

WAYS = ("nothing", "everything", "prefix", "versions", "newest", "torn")


class Entry(NamedTuple):
    op: str
    fd: int
    number: int
    payload: bytes


def read_journal(path: Path) -> list[Entry]:
    journal, at, entries = path.read_bytes(), 0, []
    while at < len(journal):
        op, fd, number, length = HEAD.unpack_from(journal, at)
        at += HEAD.size
        entries.append(Entry(op.decode(), fd, number, journal[at : at + length]))
        at += length
    return entries


class Write(NamedTuple):
    """One write to one page, or (page -1) a truncation to `offset`."""

    order: int
    page: int
    offset: int
    data: bytes


@dataclass
class File:
    """`safe` is what a finished sync covers; `waiting` are the writes since, in order."""

    safe: bytearray = field(default_factory=bytearray)
    waiting: list[Write] = field(default_factory=list)

    def write(self, order: int, offset: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            page = (offset + at) // PAGE
            end = min(len(data), (page + 1) * PAGE - offset)
            self.waiting.append(Write(order, page, offset + at, data[at:end]))
            at = end

    def sync(self, is_covered: Callable[[Write], bool]) -> None:
        for write in self.waiting:
            if is_covered(write):
                apply_write(self.safe, write)
        self.waiting = [write for write in self.waiting if not is_covered(write)]

    def left(self, rng: random.Random, way: str) -> bytes:
        """What may be found after power came back."""
        if way == "prefix":
            chosen = self.waiting[: rng.randint(0, len(self.waiting))]
        elif way == "torn":
            sectors = [piece for write in self.waiting for piece in cut_sectors(write)]
            chosen = choose_versions(rng, sectors, lambda write: write.offset // SECTOR, newest_only=False)
        elif way in ("versions", "newest"):
            chosen = choose_versions(rng, self.waiting, lambda write: write.page, newest_only=way == "newest")
        else:
            chosen = self.waiting if way == "everything" else []
        content = bytearray(self.safe)
        for write in chosen:
            apply_write(content, write)
        if way not in ("nothing", "everything"):
            self._change_size(rng, content)
        return bytes(content)

    def _change_size(self, rng: random.Random, content: bytearray) -> None:
        """The inode may be older or newer than the pages."""
        whole = bytearray(self.safe)
        for write in self.waiting:
            apply_write(whole, write)
        size = rng.choice([len(content), len(content), min(len(content), len(self.safe)), len(whole)])
        if size > len(content):
            content.extend(bytes(size - len(content)))
        elif size >= len(self.safe):
            del content[size:]


def apply_write(content: bytearray, write: Write) -> None:
    if write.page < 0:
        del content[write.offset :]
        content.extend(bytes(write.offset - len(content)))
        return
    if len(content) < write.offset:
        content.extend(bytes(write.offset - len(content)))
    content[write.offset : write.offset + len(write.data)] = write.data


def cut_sectors(write: Write) -> Iterator[Write]:
    at = 0
    while at < len(write.data) or at == 0:
        end = SECTOR - (write.offset + at) % SECTOR + at
        yield Write(write.order, write.page, write.offset + at, write.data[at:end])
        at = end


def choose_versions(
    rng: random.Random, writes: list[Write], place_of: Callable[[Write], int], *, newest_only: bool
) -> list[Write]:
    """For each place (page, sector) its writes up to some version; with `newest_only`, all of them or none."""
    counts: dict[int, int] = {}
    for write in writes:
        counts[place_of(write)] = counts.get(place_of(write), 0) + 1
    kept = {place: rng.choice([0, count]) if newest_only else rng.randint(0, count) for place, count in counts.items()}
    chosen, seen = [], dict.fromkeys(counts, 0)
    for write in writes:
        place = place_of(write)
        seen[place] += 1
        if seen[place] <= kept[place]:
            chosen.append(write)
    return chosen


@dataclass
class Directory:
    """`waiting` are changes of entries that no fsync of the directory covers: name → node, or None when it went."""

    entries: dict[str, "File | Directory"] = field(default_factory=dict)
    safe: dict[str, "File | Directory"] = field(default_factory=dict)
    waiting: list[dict[str, "File | Directory | None"]] = field(default_factory=list)

    def change(self, changes: dict[str, "File | Directory | None"]) -> None:
        self.waiting.append(changes)
        apply_changes(self.entries, changes)

    def sync(self) -> None:
        self.safe, self.waiting = dict(self.entries), []

    def left(self, rng: random.Random, way: str) -> dict[str, "File | Directory"]:
        names = dict(self.safe)
        count = {"nothing": 0, "everything": len(self.waiting)}.get(way, rng.randint(0, len(self.waiting)))
        for changes in self.waiting[:count]:
            apply_changes(names, changes)
        return names


def apply_changes(entries: dict[str, "File | Directory"], changes: dict[str, "File | Directory | None"]) -> None:
    for name, node in changes.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class Disk:
    """The files under `root` as the journal unrolls. `told` is what the process acknowledged so far."""

    def __init__(self, root: Path) -> None:
        self.root = PurePosixPath(root)
        self.tree = Directory()
        self.open: dict[int, File | Directory | None] = {}
        self.syncing: dict[int, int] = {}
        self.last_write: dict[int, int] = {}
        self.order = 0
        self.told = b""

    def perform(self, entry: Entry) -> None:
        self.order += 1
        match entry.op:
            case "O":
                self._open(entry)
            case "C":
                self.open.pop(entry.fd, None)
            case "W":
                self._write(entry)
            case "D":
                self._sync_range(entry.fd)
            case "S":
                self.syncing[entry.number] = self.order
            case "F":
                self._sync(entry.fd, self.syncing.pop(entry.number))
            case "T":
                self._file(entry.fd).waiting.append(Write(self.order, -1, entry.number, b""))
            case "R":
                self._rename(*entry.payload.split(b"\0"))
            case "M":
                parent, name = self._find_parent(entry.payload)
                parent.change({name: Directory()})
            case "U" | "X":
                parent, name = self._find_parent(entry.payload)
                parent.change({name: None})

    def _open(self, entry: Entry) -> None:
        path = entry.payload.decode()
        if path.endswith(".told"):
            self.open[entry.fd] = None
            return
        if PurePosixPath(path) == self.root:
            self.open[entry.fd] = self.tree
            return
        parent, name = self._find_parent(entry.payload)
        if name not in parent.entries:
            assert entry.number & CREATE, path
            parent.change({name: File()})
        node = parent.entries[name]
        self.open[entry.fd] = node
        if entry.number & TRUNCATE and isinstance(node, File):
            node.waiting.append(Write(self.order, -1, 0, b""))

    def _write(self, entry: Entry) -> None:
        if self.open[entry.fd] is None:
            self.told += entry.payload
            return
        self.last_write[entry.fd] = self.order
        self._file(entry.fd).write(self.order, entry.number, entry.payload)

    def _file(self, fd: int) -> File:
        node = self.open[fd]
        assert isinstance(node, File)
        return node

    def _sync_range(self, fd: int) -> None:
        order = self.last_write[fd]
        self._file(fd).sync(lambda write: write.order == order)

    def _sync(self, fd: int, begun: int) -> None:
        node = self.open[fd]
        if isinstance(node, Directory):
            node.sync()
        elif node is not None:
            node.sync(lambda write: write.order < begun)

    def _rename(self, old: bytes, new: bytes) -> None:
        old_parent, old_name = self._find_parent(old)
        new_parent, new_name = self._find_parent(new)
        node = old_parent.entries[old_name]
        assert old_parent is new_parent, "a rename between directories is not modelled"
        new_parent.change({old_name: None, new_name: node})

    def _find_parent(self, path: bytes) -> tuple[Directory, str]:
        parts = PurePosixPath(path.decode()).relative_to(self.root).parts
        node = self.tree
        for part in parts[:-1]:
            inner = node.entries[part]
            assert isinstance(inner, Directory)
            node = inner
        return node, parts[-1]

    def build_image(self, target: Path, rng: random.Random, way: str) -> None:
        """Write what is left of the tree into an empty directory; the lock file is none of the data."""
        self._build(self.tree, target, rng, way)

    def _build(self, directory: Directory, target: Path, rng: random.Random, way: str) -> None:
        for name, node in directory.left(rng, way).items():
            if isinstance(node, Directory):
                (target / name).mkdir(mode=0o700)
                self._build(node, target / name, rng, way)
            elif name != "lock.mdb":
                (target / name).write_bytes(node.left(rng, way))
                (target / name).chmod(0o600)
