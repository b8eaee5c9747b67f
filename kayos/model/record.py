"""One message as it stands in the log, and its stored form.

The stored form is what LMDB keeps, what replicas exchange and what the checksum covers, byte for byte:

    seq u64 | kind u8 | flags u8 | key length u16 | timestamp u64      big-endian, 20 bytes
    [expires u64]              when flags has EXPIRES
    [headers length u32, headers]  when flags has HEADERS
    key | value | CRC32C of all before it, little-endian

The sequence comes first, so that the first eight bytes are the key in the log. The checksum comes last
and little-endian, so that the CRC32C over a whole sound record is one constant: verifying a record is one
call without a slice. Headers are packed as (name length u16, name, value length u32, value) in order.
"""

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import google_crc32c

from kayos.errors import DamagedRecord, InvalidArgument

HEAD = struct.Struct(">QBBHQ")
SEQ = struct.Struct(">Q")
CHECKSUM = struct.Struct("<I")
HEADER_NAME = struct.Struct(">H")
HEADER_VALUE = struct.Struct(">I")

EXPIRES = 1
HEADERS = 2

# CRC32C over any bytes followed by their own CRC32C, little-endian.
CHECKSUM_RESIDUE = 0x48674BC7

Headers = tuple[tuple[str, bytes], ...]
checksum_of = google_crc32c.value


class Kind(IntEnum):
    PUT = 1
    DELETE = 2
    CONTROL = 3


class Record(NamedTuple):
    """A decoded record. An unkeyed message has the empty key; `expires_at_ms` 0 means never."""

    seq: int
    kind: int
    timestamp_ms: int
    key: bytes
    value: bytes
    headers: Headers = ()
    expires_at_ms: int = 0


def encode_record(
    seq: int,
    kind: int,
    timestamp_ms: int,
    key: bytes,
    value: bytes,
    packed_headers: bytes = b"",
    expires_at_ms: int = 0,
) -> bytes:
    flags = 0
    extra = b""
    if expires_at_ms:
        flags |= EXPIRES
        extra = SEQ.pack(expires_at_ms)
    if packed_headers:
        flags |= HEADERS
        extra += HEADER_VALUE.pack(len(packed_headers)) + packed_headers
    body = HEAD.pack(seq, kind, flags, len(key), timestamp_ms) + extra + key + value
    return body + CHECKSUM.pack(checksum_of(body))


def seal(table_key: bytes, payload: bytes) -> bytes:
    """A row of another table with its checksum, which covers the row's key too."""
    return payload + CHECKSUM.pack(checksum_of(table_key + payload))


def unseal(table_key: bytes, stored: bytes) -> bytes:
    if checksum_of(table_key + stored) != CHECKSUM_RESIDUE:
        raise DamagedRecord("a stored row fails its checksum: run 'kayos check' on the data directory")
    return stored[:-4]


def is_sound(stored: bytes) -> bool:
    return bool(checksum_of(stored) == CHECKSUM_RESIDUE)


def decode_record(stored: bytes) -> Record:
    """The record behind stored bytes whose checksum was verified."""
    seq, kind, flags, key_length, timestamp_ms = HEAD.unpack_from(stored)
    at = HEAD.size
    expires_at_ms = 0
    headers: Headers = ()
    if flags:
        if flags & EXPIRES:
            (expires_at_ms,) = SEQ.unpack_from(stored, at)
            at += SEQ.size
        if flags & HEADERS:
            (length,) = HEADER_VALUE.unpack_from(stored, at)
            at += HEADER_VALUE.size
            headers = unpack_headers(stored[at : at + length])
            at += length
    end = at + key_length
    return Record(seq, kind, timestamp_ms, stored[at:end], stored[end:-4], headers, expires_at_ms)


def verify_and_decode(stored: bytes) -> Record:
    if len(stored) < HEAD.size + CHECKSUM.size or not is_sound(stored):
        raise DamagedRecord("a record fails its checksum: run 'kayos check' on the data directory")
    return decode_record(stored)


def record_seq(stored: bytes) -> int:
    seq: int = SEQ.unpack_from(stored)[0]
    return seq


def pack_headers(headers: Iterable[tuple[str, bytes]]) -> bytes:
    parts: list[bytes] = []
    for name, value in headers:
        encoded = name.encode()
        parts += (HEADER_NAME.pack(len(encoded)), encoded, HEADER_VALUE.pack(len(value)), value)
    return b"".join(parts)


def unpack_headers(packed: bytes) -> Headers:
    headers = []
    at = 0
    try:
        while at < len(packed):
            (name_length,) = HEADER_NAME.unpack_from(packed, at)
            at += HEADER_NAME.size
            name = packed[at : at + name_length].decode()
            at += name_length
            (value_length,) = HEADER_VALUE.unpack_from(packed, at)
            at += HEADER_VALUE.size
            if at + value_length > len(packed):
                raise InvalidArgument("packed headers end inside a value")
            headers.append((name, packed[at : at + value_length]))
            at += value_length
    except (struct.error, UnicodeDecodeError) as error:
        raise InvalidArgument("packed headers are malformed") from error
    return tuple(headers)
