"""The gateway: every field of a write is checked here, all of it before anything changes.

Behind it sizes, lengths, kinds and indexes are trusted. This is the hot path: the common request (keys and
values, nothing else) is checked by C loops over whole columns; only the sparse columns are walked.
Messages of errors name what is wrong with its number, never the bodies of messages.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from kayos.errors import InvalidArgument, WrongMode
from kayos.limits import (
    BATCH_BYTES_MAX,
    BATCH_COUNT_MAX,
    BATCH_HEADERS_MAX,
    HEADER_NAME_BYTES_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_COUNT_MAX,
    KEY_BYTES_MAX,
    NUMBER_MAX,
    PIN_LEASE_MS_DEFAULT,
    PIN_LEASE_MS_MAX,
    PIN_LEASE_MS_MIN,
    PRODUCER_ID_BYTES_MAX,
    READ_CHUNK_BYTES,
    READ_CHUNK_BYTES_MAX,
    TTL_MS_MAX,
    VALUE_BYTES_MAX,
)
from kayos.model.producer import ProducerStamp
from kayos.model.record import Kind, pack_headers
from kayos.model.topic import Mode, Topic
from kayos.model.write import WriteRequest
from kayos.wire.v1 import log_pb2

APPEND = 3
_KINDS = bytes((Kind.PUT, Kind.DELETE, APPEND))
# On the wire an appended message has a kind of its own; inside, it is a PUT without a key.
_TO_STORED = bytes.maketrans(bytes((APPEND,)), bytes((Kind.PUT,)))
MESSAGE_OVERHEAD_BYTES = 64


class Indexed(Protocol):
    index: int


E = TypeVar("E", bound=Indexed)


def write_from_wire(request: log_pb2.ProduceRequest, topic: Topic) -> tuple[WriteRequest, int]:
    """The write behind a request, and its size for the queue's account."""
    values: Sequence[bytes] = request.values[:]
    count = len(values)
    keys: Sequence[bytes] = request.keys[:]
    check_count(count, len(keys), len(request.kinds))
    check_durability(request.durability, topic)
    kinds = check_kinds(request, keys, values, topic) if request.kinds else check_plain_keys(keys)
    if not keys:
        keys = [b""] * count
    size = check_sizes(keys, values)
    check_headers_count(request)
    headers = {entry.index: packed_headers(entry) for entry in unique(request.headers, count, "headers")}
    size += sum(map(len, headers.values()))
    if size > BATCH_BYTES_MAX:
        raise InvalidArgument(f"the batch has {size} bytes: send at most {BATCH_BYTES_MAX}, split it")
    write = WriteRequest(
        keys=keys,
        values=values,
        kinds=kinds,
        headers=headers,
        ttl_ms=ttls_from_wire(request, kinds, count),
        expected=conditions_from_wire(request, keys, topic),
        producer=producer_from_wire(request.producer) if request.HasField("producer") else None,
    )
    return write, size + MESSAGE_OVERHEAD_BYTES * count


def check_count(values: int, keys: int, kinds: int) -> None:
    if not values:
        if keys or kinds:
            raise InvalidArgument(f"{keys} keys, {kinds} kinds and no values: give one value per message")
        raise InvalidArgument("the batch is empty: send at least one message")
    if values > BATCH_COUNT_MAX:
        raise InvalidArgument(f"the batch has {values} messages: send at most {BATCH_COUNT_MAX}, split it")
    if keys not in (0, values):
        raise InvalidArgument(f"{keys} keys for {values} values: give one key per message, or none at all")
    if kinds not in (0, values):
        raise InvalidArgument(f"{kinds} kinds for {values} values: give one kind per message, or none at all")


def check_durability(copies: int, topic: Topic) -> None:
    if copies > topic.replicas:
        raise InvalidArgument(
            f"durability is {copies}, topic {topic.name!r} has {topic.replicas} replicas: give 0 (all) to "
            f"{topic.replicas}"
        )


def check_plain_keys(keys: Sequence[bytes]) -> bytes:
    if b"" in keys:
        raise InvalidArgument(
            f"message {keys.index(b'')} has an empty key: give it one, or append it without a key (kind 3)"
        )
    return b""


def check_kinds(request: log_pb2.ProduceRequest, keys: Sequence[bytes], values: Sequence[bytes], topic: Topic) -> bytes:
    kinds = request.kinds
    strange = kinds.translate(None, delete=_KINDS)
    if strange:
        raise InvalidArgument(f"kind {strange[0]} is unknown: use 1 (put), 2 (delete) or 3 (append)")
    for index, (kind, value) in enumerate(zip(kinds, values, strict=True)):
        key = keys[index] if keys else b""
        if kind == APPEND and key:
            raise InvalidArgument(f"message {index} is an append and has a key: leave the key empty, or put it")
        if kind != APPEND and not key:
            raise InvalidArgument(f"message {index} has an empty key: a put or delete needs one")
        if kind == Kind.DELETE and value:
            raise InvalidArgument(f"message {index} is a delete and has a value: leave it empty")
    if Kind.DELETE in kinds and topic.mode is not Mode.COMPACT:
        raise WrongMode(f"topic {topic.name!r} is of mode 'log', which has no deletes: use a topic of mode 'compact'")
    stored = kinds.translate(_TO_STORED)
    return stored if Kind.DELETE in stored else b""


def check_sizes(keys: Sequence[bytes], values: Sequence[bytes]) -> int:
    """The bytes of both columns."""
    key_bytes = max(map(len, keys))
    if key_bytes > KEY_BYTES_MAX:
        raise InvalidArgument(f"a key has {key_bytes} bytes: use at most {KEY_BYTES_MAX}")
    value_bytes = max(map(len, values))
    if value_bytes > VALUE_BYTES_MAX:
        raise InvalidArgument(f"a value has {value_bytes} bytes: use at most {VALUE_BYTES_MAX}, store more elsewhere")
    return sum(map(len, keys)) + sum(map(len, values))


def unique(entries: Iterable[E], count: int, name: str) -> Iterable[E]:
    """The entries of a sparse column, each for another message of the batch."""
    seen: set[int] = set()
    for entry in entries:
        if entry.index >= count:
            raise InvalidArgument(f"{name} for message {entry.index}: the batch ends at {count - 1}")
        if entry.index in seen:
            raise InvalidArgument(f"{name} for message {entry.index} stand twice: give them once")
        seen.add(entry.index)
        yield entry


def check_headers_count(request: log_pb2.ProduceRequest) -> None:
    """Headers are walked one by one on the event loop, so all of a batch are bounded together."""
    count = sum(len(entry.headers) for entry in request.headers)
    if count > BATCH_HEADERS_MAX:
        raise InvalidArgument(f"the batch has {count} headers: send at most {BATCH_HEADERS_MAX}, split it")


def packed_headers(entry: "log_pb2.types__pb2.IndexedHeaders") -> bytes:  # type: ignore[name-defined]
    where = f"message {entry.index}"
    if len(entry.headers) > HEADERS_COUNT_MAX:
        raise InvalidArgument(f"{where} has {len(entry.headers)} headers: use at most {HEADERS_COUNT_MAX}")
    for header in entry.headers:
        if not header.name:
            raise InvalidArgument(f"{where} has a header without a name: give each one")
        name_bytes = len(header.name.encode())
        if name_bytes > HEADER_NAME_BYTES_MAX:
            raise InvalidArgument(
                f"{where} has a header name of {name_bytes} bytes: use at most {HEADER_NAME_BYTES_MAX}"
            )
    packed = pack_headers((header.name, header.value) for header in entry.headers)
    if len(packed) > HEADERS_BYTES_MAX:
        raise InvalidArgument(f"{where} has headers of {len(packed)} bytes: use at most {HEADERS_BYTES_MAX}")
    return packed


def ttls_from_wire(request: log_pb2.ProduceRequest, kinds: bytes, count: int) -> dict[int, int]:
    ttls = {}
    for entry in unique(request.ttls, count, "a TTL"):
        if not 1 <= entry.ttl_ms <= TTL_MS_MAX:
            raise InvalidArgument(f"message {entry.index} has a TTL of {entry.ttl_ms} ms: give 1 to {TTL_MS_MAX}")
        if kinds and kinds[entry.index] == Kind.DELETE:
            raise InvalidArgument(f"message {entry.index} is a delete and has a TTL: leave it out")
        ttls[entry.index] = entry.ttl_ms
    return ttls


def conditions_from_wire(request: log_pb2.ProduceRequest, keys: Sequence[bytes], topic: Topic) -> dict[int, int]:
    conditions = {}
    for entry in unique(request.conditions, len(keys), "a condition"):
        if topic.mode is not Mode.COMPACT:
            raise WrongMode(
                f"topic {topic.name!r} is of mode 'log', which has no conditions: use a topic of mode 'compact'"
            )
        if not keys[entry.index]:
            raise InvalidArgument(f"message {entry.index} has a condition and no key: conditions look at keys")
        check_number("expected_seq", entry.expected_seq)
        conditions[entry.index] = entry.expected_seq
    return conditions


def producer_from_wire(producer: log_pb2.Producer) -> ProducerStamp:
    id_bytes = len(producer.producer_id)
    if not 1 <= id_bytes <= PRODUCER_ID_BYTES_MAX:
        raise InvalidArgument(f"producer_id has {id_bytes} bytes: give 1 to {PRODUCER_ID_BYTES_MAX}")
    if not 1 <= producer.number <= NUMBER_MAX:
        raise InvalidArgument(f"producer number is {producer.number}: numbers begin with 1 and go up by one")
    return ProducerStamp(producer.producer_id, producer.producer_epoch, producer.number)


def check_key(key: bytes, topic: Topic) -> None:
    if topic.mode is not Mode.COMPACT:
        raise WrongMode(f"topic {topic.name!r} is of mode 'log': reading by key needs mode 'compact'")
    if not 1 <= len(key) <= KEY_BYTES_MAX:
        raise InvalidArgument(f"the key has {len(key)} bytes: give 1 to {KEY_BYTES_MAX}")


def check_number(name: str, value: int, *, lowest: int = 0) -> int:
    if not lowest <= value <= NUMBER_MAX:
        raise InvalidArgument(f"{name} is {value}: give {lowest} to {NUMBER_MAX}")
    return value


def lease_from_wire(lease_ms: int) -> int:
    if not lease_ms:
        return PIN_LEASE_MS_DEFAULT
    if not PIN_LEASE_MS_MIN <= lease_ms <= PIN_LEASE_MS_MAX:
        raise InvalidArgument(
            f"lease_ms is {lease_ms}: give {PIN_LEASE_MS_MIN} to {PIN_LEASE_MS_MAX}, or 0 for {PIN_LEASE_MS_DEFAULT}"
        )
    return lease_ms


def chunk_bytes_from_wire(batch_bytes: int) -> int:
    if batch_bytes > READ_CHUNK_BYTES_MAX:
        raise InvalidArgument(f"batch_bytes is {batch_bytes}: give at most {READ_CHUNK_BYTES_MAX}, or 0")
    return batch_bytes or READ_CHUNK_BYTES
