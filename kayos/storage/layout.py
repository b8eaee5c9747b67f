"""How rows look inside the environment: table names, keys, packed values. Pure; no LMDB here.

    log       seq                    → stored record (its own checksum)
    keys      slot of the key        → seq, kind, checksum and size of its live record
    tombstones seq                   → empty; finds what to purge
    expiry    expires_at_ms, seq     → empty; finds what to expire
    retained  seq                    → replaced_by, stored record
    replaced  replaced_by, seq       → empty; finds what was replaced since
    marks, producers, pins           → packed rows
    meta      identity, state, takeover, sync

All numbers in keys are big-endian, so that LMDB's order is the numbers' order. Every value that carries
data is sealed with a checksum that covers its key too. The row `state` also carries the count, the bytes and
the sum of checksums of `log` and `retained`: a row that vanished without trace is noticed by `kayos check`.
"""

import hashlib
import struct
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from typing import NamedTuple, TypeVar

import msgspec

from kayos.errors import DamagedRecord
from kayos.limits import LMDB_KEY_BYTES_MAX
from kayos.model.floors import Floors
from kayos.model.mark import Mark
from kayos.model.pin import Pin
from kayos.model.producer import ProducerResult, ProducerRow
from kayos.model.record import SEQ, seal, unseal
from kayos.model.sync import READY, SyncState
from kayos.model.takeover import TakeoverRow, TakeoverTable
from kayos.storage.interface import Identity

FORMAT_VERSION = 1

Row = TypeVar("Row")

TABLES = (
    "log",
    "keys",
    "tombstones",
    "expiry",
    "retained",
    "replaced",
    "marks",
    "producers",
    "pins",
    "meta",
)

IDENTITY = b"identity"
STATE = b"state"
TAKEOVER = b"takeover"
SYNC = b"sync"

PAIR = struct.Struct(">QQ")
KEY_ROW = struct.Struct(">QBII")
# The same without the sequence, which is at hand packed already.
KEY_ROW_REST = struct.Struct(">BII")

# In the kind of a key's row: the live record stands in `expiry` too.
KIND_MASK = 0x0F
HAS_EXPIRY = 0x80

pack_seq = SEQ.pack
_LONG_KEY_PREFIX = LMDB_KEY_BYTES_MAX - 32
_SUM_MASK = 2**64 - 1


class KeyRow(NamedTuple):
    seq: int
    kind: int
    checksum: int
    size: int


def slot_of(key: bytes) -> bytes:
    """Where a key stands in `keys`. Longer keys than LMDB takes are a prefix and a digest of exactly
    LMDB's limit; shorter ones never have that length, so the two kinds cannot meet."""
    if len(key) < LMDB_KEY_BYTES_MAX:
        return key
    return key[:_LONG_KEY_PREFIX] + hashlib.blake2b(key, digest_size=32).digest()


@dataclass(slots=True)
class Sums:
    """Count, bytes and sum of checksums of the rows of one table; changed as rows come and go."""

    count: int = 0
    size: int = 0
    total: int = 0

    def add(self, *, checksum: int, size: int) -> None:
        self.add_all(1, size=size, checksums=checksum)

    def remove(self, *, checksum: int, size: int) -> None:
        self.remove_all(1, size=size, checksums=checksum)

    def add_all(self, count: int, *, size: int, checksums: int) -> None:
        self.count += count
        self.size += size
        self.total = (self.total + checksums) & _SUM_MASK

    def remove_all(self, count: int, *, size: int, checksums: int) -> None:
        self.count -= count
        self.size -= size
        self.total = (self.total - checksums) & _SUM_MASK


@dataclass(frozen=True, slots=True)
class StateRow:
    """What changes with every commit, as one packed row."""

    high_seq: int = 0
    message_seq: int = 0
    last_timestamp_ms: int = 0
    epoch: int = 0
    commit_point: int = 0
    floors: Floors = field(default_factory=Floors)
    log: tuple[int, int, int] = (0, 0, 0)
    retained: tuple[int, int, int] = (0, 0, 0)

    def pack(self) -> bytes:
        floor_numbers = [getattr(self.floors, name) for name in _FLOOR_NAMES]
        head = (self.high_seq, self.message_seq, self.last_timestamp_ms, self.epoch, self.commit_point)
        return seal(STATE, _STATE.pack(*head, *floor_numbers, *self.log, *self.retained))

    @staticmethod
    def unpack(stored: bytes) -> "StateRow":
        numbers = _STATE.unpack(unseal(STATE, stored))
        floors_end = 5 + len(_FLOOR_NAMES)
        high_seq, message_seq, last_timestamp_ms, epoch, commit_point = numbers[:5]
        return StateRow(
            high_seq,
            message_seq,
            last_timestamp_ms,
            epoch,
            commit_point,
            floors=Floors(*numbers[5:floors_end]),
            log=numbers[floors_end : floors_end + 3],
            retained=numbers[floors_end + 3 :],
        )


_FLOOR_NAMES = tuple(floor.name for floor in fields(Floors))
_STATE = struct.Struct(f">{5 + len(_FLOOR_NAMES) + 6}Q")


class _IdentityRow(msgspec.Struct, frozen=True):
    format_version: int
    identity: Identity


def pack_identity(identity: Identity) -> bytes:
    return seal(IDENTITY, msgspec.msgpack.encode(_IdentityRow(FORMAT_VERSION, identity)))


def unpack_identity(stored: bytes) -> tuple[int, Identity]:
    row = _decode(IDENTITY, stored, _IdentityRow)
    return row.format_version, row.identity


def pack_takeover(table: TakeoverTable) -> bytes:
    rows = [(row.history_id, row.start_seq, row.epoch) for row in table.rows]
    return seal(TAKEOVER, msgspec.msgpack.encode(rows))


def unpack_takeover(stored: bytes) -> TakeoverTable:
    rows = _decode(TAKEOVER, stored, list[tuple[bytes, int, int]])
    return TakeoverTable(tuple(TakeoverRow(*row) for row in rows))


class SyncRow(msgspec.Struct, frozen=True):
    """Why a copy is not whole. The row is there only while it is not, so that readers need but look for it."""

    sync: SyncState = READY
    lacks_retained: bool = False


def pack_sync(row: SyncRow) -> bytes:
    return seal(SYNC, msgspec.msgpack.encode(row))


def unpack_sync(stored: bytes) -> SyncRow:
    return _decode(SYNC, stored, SyncRow)


def pack_mark(consumer: str, mark: Mark) -> bytes:
    return seal(consumer.encode(), msgspec.msgpack.encode(mark))


def unpack_mark(table_key: bytes, stored: bytes) -> Mark:
    return _decode(table_key, stored, Mark)


def pack_pin(pin: Pin) -> bytes:
    return seal(pin.pin_id.encode(), msgspec.msgpack.encode(pin))


def unpack_pin(table_key: bytes, stored: bytes) -> Pin:
    return _decode(table_key, stored, Pin)


class _ProducerValue(msgspec.Struct, frozen=True, array_like=True):
    producer_epoch: int
    results: tuple[ProducerResult, ...]


def pack_producer(row: ProducerRow) -> bytes:
    value = _ProducerValue(row.producer_epoch, row.results)
    return seal(row.producer_id, msgspec.msgpack.encode(value))


def unpack_producer(producer_id: bytes, stored: bytes) -> ProducerRow:
    value = _decode(producer_id, stored, _ProducerValue)
    return ProducerRow(producer_id, value.producer_epoch, value.results)


def pack_retained(seq_key: bytes, replaced_by: int, record: bytes) -> bytes:
    return seal(seq_key, pack_seq(replaced_by) + record)


def unpack_retained(seq_key: bytes, stored: bytes) -> tuple[int, bytes]:
    """(`replaced_by`, stored record)."""
    payload = unseal(seq_key, stored)
    (replaced_by,) = SEQ.unpack_from(payload)
    return replaced_by, payload[SEQ.size :]


def checksum_in(stored: bytes) -> int:
    """The checksum that ends a stored record or a sealed row."""
    return int.from_bytes(stored[-4:], "little")


def checksums_in(stored_forms: Collection[bytes]) -> tuple[int, ...]:
    """The same of many, in one unpacking."""
    return struct.unpack(f"<{len(stored_forms)}I", b"".join([stored[-4:] for stored in stored_forms]))


def _decode(table_key: bytes, stored: bytes, row_type: type[Row]) -> Row:
    try:
        return msgspec.msgpack.decode(unseal(table_key, stored), type=row_type)
    except msgspec.MsgspecError as error:
        raise DamagedRecord(f"row {table_key!r} does not decode: run 'kayos check'") from error
