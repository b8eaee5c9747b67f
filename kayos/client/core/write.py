"""One message on its way in: checked here, at the caller's own line, before anything is queued.

A request is all or nothing, so a message that the server would refuse must never share a request with others:
every bound that the client can know is checked before a message joins a batch.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kayos.errors import InvalidArgument
from kayos.limits import (
    BATCH_BYTES_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_COUNT_MAX,
    KEY_BYTES_MAX,
    REPLICAS_MAX,
    TTL_MS_MAX,
    VALUE_BYTES_MAX,
)
from kayos.model.record import Headers, Kind, pack_headers

APPEND = 3
MESSAGE_OVERHEAD_BYTES = 16

HeadersInput = Mapping[str, bytes] | Iterable[tuple[str, bytes]] | None
Durability = int | str


class Write(NamedTuple):
    """`kind` is put, delete or append (an unkeyed message, whose key is empty)."""

    kind: int
    key: bytes
    value: bytes
    headers: Headers = ()
    ttl_ms: int | None = None
    expected_seq: int | None = None

    @property
    def size(self) -> int:
        total = len(self.key) + len(self.value) + MESSAGE_OVERHEAD_BYTES
        return total + len(pack_headers(self.headers)) if self.headers else total


def make_write(
    key: bytes | None,
    value: bytes | None,
    *,
    headers: HeadersInput = None,
    ttl_ms: int | None = None,
    expected_seq: int | None = None,
) -> Write:
    """A checked write: a put, or with `value=None` a delete, or with `key=None` an append."""
    if key is not None:
        check_key(key)
    elif value is None:
        raise InvalidArgument("a delete needs a key: give the key to delete")
    elif expected_seq is not None:
        raise InvalidArgument("expected_seq needs a key: give one, or leave expected_seq out")
    if value is None and ttl_ms is not None:
        raise InvalidArgument("a delete has no ttl_ms: leave it out")
    if value is not None:
        check_value(value)
    if ttl_ms is not None and not 1 <= ttl_ms <= TTL_MS_MAX:
        raise InvalidArgument(f"ttl_ms is {ttl_ms}: give 1 to {TTL_MS_MAX}")
    if expected_seq is not None and not 0 <= expected_seq < 2**64:
        raise InvalidArgument(f"expected_seq is {expected_seq}: give a sequence, or 0 for 'must not exist'")
    kind = APPEND if key is None else Kind.DELETE if value is None else Kind.PUT
    return Write(kind, key or b"", value or b"", check_headers(headers), ttl_ms, expected_seq)


def check_key(key: bytes) -> None:
    if not isinstance(key, bytes):
        raise InvalidArgument(f"the key is {type(key).__name__}: give bytes, for instance b'k' or text.encode()")
    if not 1 <= len(key) <= KEY_BYTES_MAX:
        raise InvalidArgument(f"the key has {len(key)} bytes: give 1 to {KEY_BYTES_MAX}, or None for no key")


def check_value(value: bytes) -> None:
    if not isinstance(value, bytes):
        raise InvalidArgument(f"the value is {type(value).__name__}: give bytes, or None to delete")
    if len(value) > VALUE_BYTES_MAX:
        raise InvalidArgument(f"the value has {len(value)} bytes, the most is {VALUE_BYTES_MAX}: split it")


def check_headers(headers: HeadersInput) -> Headers:
    if not headers:
        return ()
    pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers)
    for name, value in pairs:
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise InvalidArgument("headers are names (str) with values (bytes): encode the values")
    if len(pairs) > HEADERS_COUNT_MAX:
        raise InvalidArgument(f"{len(pairs)} headers are too many: give at most {HEADERS_COUNT_MAX}")
    if any(not 1 <= len(name.encode()) <= 0xFFFF for name, _ in pairs):
        raise InvalidArgument("a header's name is empty or above 65535 bytes: give a short one")
    size = len(pack_headers(pairs))
    if size > HEADERS_BYTES_MAX:
        raise InvalidArgument(f"the headers have {size} bytes, the most is {HEADERS_BYTES_MAX}: move data to the value")
    return pairs


def check_durability(durability: Durability) -> int:
    """As the wire has it: copies to wait for, 0 for all."""
    if durability == "all":
        return 0
    if isinstance(durability, int) and 1 <= durability <= REPLICAS_MAX:
        return durability
    raise InvalidArgument(f"durability is {durability!r}: give 'all' or a number of copies from 1 to {REPLICAS_MAX}")


def check_request_size(size: int) -> None:
    if size > BATCH_BYTES_MAX:
        raise InvalidArgument(f"the messages have {size} bytes together, the most is {BATCH_BYTES_MAX}: send fewer")
