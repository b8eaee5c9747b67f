"""The proof that a store is sound: `kayos check DIR`, and what runs before a store is used.

Structure first, by reading the file as plain bytes (LMDB never touches a damaged page), then content: every
record against its checksum, the log against the key index both ways, the small indexes, the sums that notice
rows gone without trace, the takeover table, marks and pins.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from lmdb.verify import VerifyError, verify

from kayos.errors import DataLoss, KayosError
from kayos.limits import MAP_BYTES_DEFAULT
from kayos.model.record import Kind, is_sound
from kayos.model.topic import Mode
from kayos.storage import generation
from kayos.storage.environment import DATA_FILE, Environment, check_file
from kayos.storage.layout import (
    HAS_EXPIRY,
    KEY_ROW,
    StateRow,
    Sums,
    checksum_in,
    pack_seq,
    slot_of,
    unpack_mark,
    unpack_pin,
    unpack_producer,
    unpack_retained,
)
from kayos.storage.meta import read_meta
from kayos.storage.reader import decode_verified
from kayos.storage.transaction import Transaction
from kayos.storage.witness import Witness

PROBLEMS_MAX = 100


@dataclass(frozen=True, slots=True)
class CheckReport:
    directory: Path
    problems: tuple[str, ...]
    messages: int = 0
    high_seq: int = 0

    @property
    def is_sound(self) -> bool:
        return not self.problems


def check_store(directory: Path) -> CheckReport:
    """Check one store's directory; damage is reported, never raised."""
    try:
        number = generation.read_current(directory)
        if not number:
            return CheckReport(directory, (f"{directory} holds no store: there is no CURRENT file",))
        path = generation.environment_path(directory, number)
        map_bytes = map_bytes_for(path)
        problems = find_structural_problems(path, map_bytes)
        if problems:
            return CheckReport(directory, problems)
        env = Environment(path, map_bytes)
    except (KayosError, OSError) as error:
        return CheckReport(directory, (str(error),))
    try:
        with env.reading() as txn:
            checker = ContentCheck(env, txn)
            problems = tuple(islice(checker.find_problems(), PROBLEMS_MAX))
            problems += tuple(_witness_problems(directory, number, env.last_transaction))
            return CheckReport(directory, problems, checker.log.count, checker.state.high_seq)
    finally:
        env.close()


def map_bytes_for(path: Path) -> int:
    """A map that holds the file, however large its node had chosen it."""
    data = path / DATA_FILE
    return max(MAP_BYTES_DEFAULT, 2 * data.stat().st_size) if data.exists() else MAP_BYTES_DEFAULT


def find_structural_problems(path: Path, map_bytes: int) -> tuple[str, ...]:
    """Walk every page of the file as plain bytes: pages, order, counts and the free list."""
    try:
        check_file(path / DATA_FILE, map_bytes)
        found: Iterator[str] = verify(str(path))  # type: ignore[no-untyped-call]
        return tuple(islice(found, PROBLEMS_MAX))
    except (DataLoss, VerifyError, OSError) as error:
        return (str(error),)


def find_content_problems(path: Path, map_bytes: int) -> tuple[str, ...]:
    env = Environment(path, map_bytes)
    try:
        with env.reading() as txn:
            return tuple(islice(ContentCheck(env, txn).find_problems(), PROBLEMS_MAX))
    finally:
        env.close()


def _witness_problems(directory: Path, number: int, transaction: int) -> Iterator[str]:
    if (directory / "witness").exists():
        witness = Witness(directory / "witness")
        noted = witness.read()
        witness.close()
        if noted is not None and noted[0] == number and noted[1] > transaction:
            yield f"the newest commits are missing: transaction {transaction}, but {noted[1]} had been reached"


class ContentCheck:
    """One pass over all tables of one committed state."""

    def __init__(self, env: Environment, txn: Transaction) -> None:
        self._txn = txn
        self._env = env
        self._tables = env.tables
        self._log_end = 0
        self.state = StateRow()
        self.log = Sums()
        self._keyed = 0
        self._tombstones = 0
        self._expiring = 0
        self._is_compact = True

    def find_problems(self) -> Iterator[str]:
        try:
            yield from self._check_meta()
            yield from self._check_log()
            yield from self._check_counts()
            yield from self._check_retained()
            yield from self._check_small_tables()
        except (KayosError, UnicodeDecodeError, ValueError) as error:
            yield str(error)

    def _check_meta(self) -> Iterator[str]:
        meta = read_meta(self._txn, self._env)
        self._is_compact = meta.identity.mode is Mode.COMPACT
        self.state = meta.state
        self._log_end = max(meta.state.high_seq, meta.sync.through_seq)
        rows = meta.takeover.rows
        if not meta.takeover.is_sound() or (rows and rows[-1].start_seq > self.state.high_seq):
            yield "the takeover table is not sorted and unique, or runs ahead of the log"

    def _check_log(self) -> Iterator[str]:
        last_timestamp_ms = 0
        last_seq = 0
        for seq_key, stored in self._txn.cursor(self._tables.log):
            record = decode_verified(seq_key, stored)
            self.log.add(checksum=checksum_in(stored), size=len(stored))
            if record.timestamp_ms < last_timestamp_ms:
                yield f"sequence {record.seq} is older than the one before it"
            last_timestamp_ms, last_seq = record.timestamp_ms, record.seq
            if self._is_compact and record.key:
                self._keyed += 1
                flags = record.kind | (HAS_EXPIRY if record.expires_at_ms else 0)
                row = KEY_ROW.pack(record.seq, flags, checksum_in(stored), len(stored))
                if self._txn.get(slot_of(record.key), db=self._tables.keys) != row:
                    yield f"the key index does not name sequence {record.seq} for its key"
            if self._is_compact and record.kind == Kind.DELETE:
                self._tombstones += 1
                if self._txn.get(seq_key, db=self._tables.tombstones) is None:
                    yield f"tombstone {record.seq} is missing in its index"
            if record.expires_at_ms:
                self._expiring += 1
                if self._txn.get(pack_seq(record.expires_at_ms) + seq_key, db=self._tables.expiry) is None:
                    yield f"sequence {record.seq} is missing in the expiry index"
        if last_seq > self._log_end:
            yield f"sequence {last_seq} stands above the log's end, {self._log_end}"

    def _check_counts(self) -> Iterator[str]:
        tables = self._tables
        found = (self.log.count, self.log.size, self.log.total)
        if found != self.state.log:
            yield f"the log holds (rows, bytes, sum) {found}, its state row says {self.state.log}: rows were lost"
        for name, expected in (("keys", self._keyed), ("tombstones", self._tombstones), ("expiry", self._expiring)):
            entries = self._txn.stat(getattr(tables, name))["entries"]
            counted = sum(1 for _ in self._txn.cursor(getattr(tables, name)).iternext(values=False))
            if not entries == counted == expected:
                yield f"the table {name} has {counted} rows ({entries} by its count), the log asks for {expected}"

    def _check_retained(self) -> Iterator[str]:
        sums = Sums()
        for seq_key, row in self._txn.cursor(self._tables.retained):
            replaced_by, record = unpack_retained(seq_key, row)
            sums.add(checksum=checksum_in(row), size=len(row))
            if not is_sound(record) or record[:8] != seq_key or pack_seq(replaced_by) <= seq_key:
                yield f"the retained row {int.from_bytes(seq_key, 'big')} is damaged"
            if self._txn.get(pack_seq(replaced_by) + seq_key, db=self._tables.replaced) is None:
                yield f"the retained row {int.from_bytes(seq_key, 'big')} is missing in its index"
        found = (sums.count, sums.size, sums.total)
        if found != self.state.retained:
            yield f"retained holds (rows, bytes, sum) {found}, its state row says {self.state.retained}"
        indexed = sum(1 for _ in self._txn.cursor(self._tables.replaced).iternext(values=False))
        if indexed != sums.count:
            yield f"the index of retained rows has {indexed} rows, not {sums.count}"

    def _check_small_tables(self) -> Iterator[str]:
        high_seq = self.state.high_seq
        for key, row in self._txn.cursor(self._tables.marks):
            if unpack_mark(key, row).seq > high_seq:
                yield f"the mark of {key.decode()!r} lies above the log's end"
        for key, row in self._txn.cursor(self._tables.producers):
            if unpack_producer(key, row).last.last_seq > high_seq:
                yield f"producer {key.hex()} has a result above the log's end"
        for key, row in self._txn.cursor(self._tables.pins):
            if unpack_pin(key, row).seq > high_seq:
                yield f"pin {key.decode()!r} lies above the log's end"


def main(arguments: list[str]) -> int:
    """`python -m kayos.storage.check ENVIRONMENT MAP_BYTES`: the content check in a process of its own."""
    problems = find_content_problems(Path(arguments[0]), int(arguments[1]))
    sys.stdout.write("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
