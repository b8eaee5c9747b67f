"""The stored form of a record: whatever goes in comes out, and any changed bit is noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kayos.errors import DamagedRecord, InvalidArgument, KayosError
from kayos.model.record import (
    Kind,
    Record,
    encode_record,
    is_sound,
    pack_headers,
    record_seq,
    seal,
    unpack_headers,
    unseal,
    verify_and_decode,
)

u64 = st.integers(0, 2**64 - 1)
headers = st.lists(st.tuples(st.text(max_size=20), st.binary(max_size=50)), max_size=4).map(tuple)
records = st.builds(
    Record,
    seq=u64,
    kind=st.sampled_from([int(kind) for kind in Kind]),
    timestamp_ms=u64,
    key=st.binary(max_size=300),
    value=st.binary(max_size=300),
    headers=headers,
    expires_at_ms=u64,
)


def encode(record: Record) -> bytes:
    return encode_record(
        record.seq,
        record.kind,
        record.timestamp_ms,
        record.key,
        record.value,
        pack_headers(record.headers),
        record.expires_at_ms,
    )


@given(records)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    stored = encode(record)
    assert is_sound(stored)
    assert record_seq(stored) == record.seq
    assert verify_and_decode(stored) == record


@given(records, st.data())
def test_a_flipped_bit_is_noticed(record: Record, data: st.DataObject) -> None:
    stored = bytearray(encode(record))
    at = data.draw(st.integers(0, 8 * len(stored) - 1))
    stored[at // 8] ^= 1 << at % 8
    with pytest.raises(DamagedRecord):
        verify_and_decode(bytes(stored))


@given(st.binary(max_size=100))
def test_foreign_bytes_are_refused(foreign: bytes) -> None:
    with pytest.raises(DamagedRecord):
        verify_and_decode(foreign)


@given(st.binary(max_size=100))
def test_packed_headers_never_crash(packed: bytes) -> None:
    try:
        unpack_headers(packed)
    except KayosError as error:
        assert isinstance(error, InvalidArgument)


@given(st.binary(max_size=20), st.binary(max_size=50), st.binary(max_size=20))
def test_a_sealed_row_belongs_to_its_key(key: bytes, payload: bytes, other: bytes) -> None:
    sealed = seal(key, payload)
    assert unseal(key, sealed) == payload
    if other != key:
        with pytest.raises(DamagedRecord):
            unseal(other, sealed)
