"""The one door to LMDB: opening, the tables, transactions, and what its errors mean.

LMDB's defaults for `sync`, `metasync` and `writemap` are kept, since every other setting lost or corrupted
data when power was cut. The map is large and sparse and never resized. Before LMDB maps the file, its
meta pages and size are read as plain bytes: touching a page beyond the end of a truncated file would kill the
process with SIGBUS.
"""

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import lmdb

from kayos.errors import DamagedStore, KayosError, StoreFull, Unavailable, WriteUnknown
from kayos.files import fsync_path
from kayos.limits import MAX_READERS
from kayos.storage.layout import TABLES
from kayos.storage.transaction import Database, Transaction

DATA_FILE = "data.mdb"
_META = struct.Struct("<IIQQ48s48sQQ")
_META_OFFSET = 16
_MAGIC = 0xBEEFC0DE
_PAGE_SIZE_OFFSET_MAX = 65_536


@dataclass(frozen=True, slots=True)
class MetaPage:
    page_size: int
    last_page: int
    transaction: int


@dataclass(slots=True)
class Tables:
    """Handles of the named tables; they are made in one transaction, so all are there or none."""

    log: Database
    keys: Database
    tombstones: Database
    expiry: Database
    retained: Database
    replaced: Database
    marks: Database
    producers: Database
    pins: Database
    meta: Database


class EnvironmentClosedError(Exception):
    """The environment is closing: another one is current, or none."""


class Environment:
    """One LMDB environment in one directory, with a count of its running readers."""

    def __init__(self, directory: Path, map_bytes: int) -> None:
        self.directory = directory
        self.map_bytes = map_bytes
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = directory / DATA_FILE
        self.is_new = not data.exists()
        if not self.is_new:
            check_file(data, map_bytes)
        try:
            self._env = lmdb.open(
                str(directory), map_size=map_bytes, max_dbs=len(TABLES), max_readers=MAX_READERS, mode=0o600
            )
            with self._env.begin(write=True) as txn:
                self.tables = Tables(*(self._env.open_db(name.encode(), txn=txn) for name in TABLES))
        except lmdb.Error as error:
            raise error_at_open(directory, error) from error
        self._readers = 0
        self._is_closing = False
        self._readers_changed = threading.Condition()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A short read transaction; the environment stays open until the last one ended."""
        self.enter_reader()
        with self.reading_inside() as txn:
            yield txn

    def enter_reader(self) -> None:
        """Keep the environment open; `reading_inside` must follow and lets go of it again."""
        with self._readers_changed:
            if self._is_closing:
                raise EnvironmentClosedError(self.directory)
            self._readers += 1

    @contextmanager
    def reading_inside(self) -> Iterator[Transaction]:
        try:
            with self._env.begin() as txn:
                yield cast(Transaction, txn)
        except lmdb.PanicError as error:
            raise Unavailable(
                "the store must be reopened after a disk error, which it is soon: try again", retry_delay_ms=200
            ) from error
        except lmdb.Error as error:
            raise DamagedStore("LMDB cannot read the store: run 'kayos check' on the data directory") from error
        finally:
            with self._readers_changed:
                self._readers -= 1
                self._readers_changed.notify_all()

    def _begin_write(self) -> Transaction:
        try:
            return cast(Transaction, self._env.begin(write=True))
        except lmdb.Error as error:
            raise error_at_write(error) from error

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A write transaction: fsynced when the block ends, gone when it raises.

        An error of the commit itself means "unknown" (WriteUnknown): the caller must not go on with this
        environment before it was reopened.
        """
        txn = self._begin_write()
        try:
            yield txn
        except BaseException as error:
            abort(txn)
            if isinstance(error, lmdb.Error):
                raise error_at_write(error) from error
            raise
        try:
            txn.commit()
        except lmdb.Error as error:
            raise WriteUnknown(
                "the commit failed on the disk: send again with the same producer number",
                retry_delay_ms=200,
            ) from error

    def used_pages(self, txn: Transaction) -> int:
        """Pages of all tables; the rest of the file is free for reuse."""
        handles = [getattr(self.tables, name) for name in TABLES]
        stats = [txn.stat(handle) for handle in handles]
        return 2 + sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)

    @property
    def page_size(self) -> int:
        return int(self._env.stat()["psize"])

    @property
    def last_page(self) -> int:
        return int(self._env.info()["last_pgno"])

    @property
    def last_transaction(self) -> int:
        return int(self._env.info()["last_txnid"])

    def copy_into(self, directory: Path, txn: Transaction) -> None:
        """A compact copy of exactly what `txn` sees, durable when this returns."""
        directory.mkdir(mode=0o700)
        try:
            self._env.copy(str(directory), compact=True, txn=cast(Any, txn))
        except lmdb.Error as error:
            raise StoreFull("the copy for compaction failed: make room on the disk", retry_delay_ms=60_000) from error
        (directory / DATA_FILE).chmod(0o600)
        fsync_path(directory / DATA_FILE)
        fsync_path(directory)

    def check_readers(self) -> int:
        """Free the slots of readers that died; how many."""
        return int(self._env.reader_check())

    def close(self, timeout_s: float = 10.0) -> None:
        """Close after the last reader ended; readers are short, so the wait is."""
        with self._readers_changed:
            self._is_closing = True
            self._readers_changed.wait_for(lambda: self._readers == 0, timeout_s)
        self._env.close()


def abort(txn: Transaction) -> None:
    try:
        txn.abort()
    except lmdb.Error:
        # The transaction died with the error that is being raised; that one tells more.
        return


def error_at_write(error: lmdb.Error) -> KayosError:
    """Before the commit nothing is written: a full map can be told for certain, all else is damage."""
    if isinstance(error, lmdb.MapFullError):
        return StoreFull(
            "the store's map is full: delete or trim messages, or restart the node with a larger map_bytes",
            retry_delay_ms=1_000,
        )
    if isinstance(error, lmdb.PanicError):
        return WriteUnknown(
            "the store must be reopened after a disk error: send again with the same producer number",
            retry_delay_ms=200,
        )
    return DamagedStore("LMDB cannot write the store: run 'kayos check' on the data directory")


def error_at_open(directory: Path, error: lmdb.Error) -> KayosError:
    return DamagedStore(f"{directory} cannot be opened by LMDB: run 'kayos check', or restore it from another copy")


def check_file(data: Path, map_bytes: int) -> MetaPage:
    """Refuse a data file that LMDB must not touch: foreign, torn or shorter than its newest state."""
    if data.is_symlink() or not data.is_file():
        raise DamagedStore(f"{data} is not a plain file: Kayos opens only its own; restore it from another copy")
    size = data.stat().st_size
    metas = read_meta_pages(data)
    if len(metas) < 2:
        raise DamagedStore(
            f"{data} ({size} bytes) has no two valid LMDB meta pages: it is damaged or not a Kayos store; "
            "restore it from another copy"
        )
    first, second = metas
    if first.page_size != second.page_size or abs(first.transaction - second.transaction) > 1:
        raise DamagedStore(f"{data}: the two meta pages do not follow each other; restore it from another copy")
    newest = max(metas, key=lambda meta: meta.transaction)
    needed = (newest.last_page + 1) * newest.page_size
    if needed > size:
        raise DamagedStore(f"{data} was cut: it has {size} of {needed} bytes; restore it from another copy")
    if needed > map_bytes:
        raise DamagedStore(f"{data} needs {needed} bytes but map_bytes is {map_bytes}: start with a larger map_bytes")
    return newest


def read_meta_pages(data: Path) -> list[MetaPage]:
    """The meta pages as plain bytes; fewer than two when one is not valid."""
    with data.open("rb") as file:
        head = file.read(_META_OFFSET + _META.size)
        first = _parse_meta(head)
        if first is None:
            return []
        file.seek(first.page_size)
        second = _parse_meta(file.read(_META_OFFSET + _META.size))
    metas = [meta for meta in (first, second) if meta is not None]
    parity_holds = all(meta.transaction < 2 or meta.transaction % 2 == index for index, meta in enumerate(metas))
    return metas if parity_holds else []


def _parse_meta(page: bytes) -> MetaPage | None:
    if len(page) < _META_OFFSET + _META.size:
        return None
    magic, version, _, _, free_table, _, last_page, transaction = _META.unpack_from(page, _META_OFFSET)
    (page_size,) = struct.unpack_from("<I", free_table)
    is_power_of_two = page_size >= 512 and page_size & (page_size - 1) == 0
    if magic != _MAGIC or version != 1 or not is_power_of_two or page_size > _PAGE_SIZE_OFFSET_MAX:
        return None
    return MetaPage(page_size, last_page, transaction)
