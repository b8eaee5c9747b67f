"""Lines of stdin into messages.

    {"key": "k", "value": "v", "headers": {"n": "v"}, "ttl_ms": 1000, "expected_seq": 0, "route": "r"}

`value` null is a delete, without `key` the message is unkeyed. `key_encoding`, `value_encoding` and `headers_encoding`
say what is not plain text. The other fields that `kayos consume` writes (topic, shard, seq, timestamp) may be there and
mean nothing here, so that its output can be fed back. Anything else is an error, so that a mistyped field is never
dropped in silence.
"""

import json
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from kayos.cli.encoding import ENCODINGS, from_text
from kayos.cli.failure import Failure
from kayos.errors import InvalidArgument
from kayos.limits import MIB

# The largest value, every byte of it as \u00XX, and its headers fit in.
LINE_BYTES_MAX = 32 * MIB

_IGNORED = {"topic", "shard", "seq", "timestamp"}
_KNOWN = {"key", "value", "headers", "ttl_ms", "expected_seq", "route"}
_ENCODED = {"key_encoding", "value_encoding", "headers_encoding"}
_TYPES = {dict: "an object", list: "a list", bool: "true or false", int: "a number", float: "a number", str: "text"}


class Line(NamedTuple):
    """One message to be written; `value` None deletes the key."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    ttl_ms: int | None = None
    expected_seq: int | None = None
    route: bytes | None = None


class LineError(Failure):
    """A line that is no message; lines are counted from 1."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"line {number}: {reason}", Failure.USAGE)


class LineParser:
    """`delimiter` given: lines are KEY DELIMITER VALUE; `plain`: each line is a value; else each is JSON."""

    def __init__(self, *, key_encoding: str, value_encoding: str, delimiter: bytes | None, plain: bool) -> None:
        self._key_encoding = key_encoding
        self._value_encoding = value_encoding
        self._delimiter = delimiter
        self._plain = plain

    def read(self, source: IO[bytes]) -> Iterator[tuple[int, int, Line]]:
        """The number of each line, its bytes and its message; LineError at the first that is none."""
        is_json = self._delimiter is None and not self._plain
        number = 0
        while line := source.readline(LINE_BYTES_MAX + 1):
            number += 1
            if len(line) > LINE_BYTES_MAX:
                raise LineError(number, f"it is longer than {LINE_BYTES_MAX} bytes: end each message with a newline")
            if is_json and not line.strip():
                continue
            try:
                yield number, len(line), self.parse(line.removesuffix(b"\n"))
            except InvalidArgument as error:
                raise LineError(number, error.message) from error

    def parse(self, line: bytes) -> Line:
        if self._delimiter is not None:
            key, found, value = line.partition(self._delimiter)
            if not found:
                raise InvalidArgument(f"there is no {self._delimiter.decode(errors='replace')!r} after a key")
            return Line(self._key("the key", key), self._value("the value", value))
        if self._plain:
            return Line(None, self._value("the value", line))
        return self._parse_json(line)

    def _parse_json(self, line: bytes) -> Line:
        fields = load_object(line)
        unknown = sorted(set(fields) - _KNOWN - _IGNORED - _ENCODED)
        if unknown:
            raise InvalidArgument(f"unknown field {unknown[0]!r}: known are {', '.join(sorted(_KNOWN | _ENCODED))}")
        if "value" not in fields:
            raise InvalidArgument('there is no "value": give text, or null to delete the key')
        key = find_text(fields, "key")
        value = find_text(fields, "value")
        route = find_text(fields, "route")
        return Line(
            None if key is None else from_text("key", key, find_encoding(fields, "key", self._key_encoding)),
            None if value is None else from_text("value", value, find_encoding(fields, "value", self._value_encoding)),
            parse_headers(fields),
            find_number(fields, "ttl_ms"),
            find_number(fields, "expected_seq"),
            None if route is None else from_text("route", route, "utf8"),
        )

    def _key(self, what: str, text: bytes) -> bytes:
        return from_text(what, text, self._key_encoding)

    def _value(self, what: str, text: bytes) -> bytes:
        return from_text(what, text, self._value_encoding)


def unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise InvalidArgument("a field stands twice in it: write it once")
    return fields


_decode = json.JSONDecoder(object_pairs_hook=unique_fields).decode


def load_object(line: bytes) -> dict[str, Any]:
    try:
        fields = _decode(line.decode())
    except UnicodeDecodeError:
        raise InvalidArgument("it is not UTF-8: write what is binary as base64, with value_encoding") from None
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"it is not JSON ({error.msg} at column {error.colno})") from None
    except (RecursionError, ValueError):
        raise InvalidArgument("it is not JSON that a message can have: too deep, or a number too long") from None
    if not isinstance(fields, dict):
        raise InvalidArgument('it is no JSON object: write {"key": "...", "value": "..."}')
    return fields


def find_text(fields: dict[str, Any], name: str) -> str | None:
    found = fields.get(name)
    if found is None or isinstance(found, str):
        return found
    raise InvalidArgument(f"{name!r} is {describe(found)}: give text in quotes, or null")


def find_number(fields: dict[str, Any], name: str) -> int | None:
    found = fields.get(name)
    if found is None or type(found) is int:
        return found
    raise InvalidArgument(f"{name!r} is {describe(found)}: give a whole number")


def find_encoding(fields: dict[str, Any], name: str, default: str) -> str:
    found = fields.get(f"{name}_encoding", default)
    if found in ENCODINGS:
        return str(found)
    raise InvalidArgument(f"'{name}_encoding' is {found!r}: give one of {', '.join(ENCODINGS)}")


def parse_headers(fields: dict[str, Any]) -> tuple[tuple[str, bytes], ...]:
    """An object of names and values, or a list of [name, value] where a name stands twice."""
    found = fields.get("headers")
    if found is None:
        return ()
    pairs = list(found.items()) if isinstance(found, dict) else found
    if not isinstance(pairs, list) or not all(map(is_pair, pairs)):
        raise InvalidArgument('\'headers\' are no names with values: write {"name": "value"}, the values in quotes')
    encoding = find_encoding(fields, "headers", "utf8")
    return tuple((name, from_text(f"header {name!r}", value, encoding)) for name, value in pairs)


def is_pair(entry: Any) -> bool:
    return isinstance(entry, list | tuple) and len(entry) == 2 and all(isinstance(part, str) for part in entry)


def describe(found: Any) -> str:
    return _TYPES.get(type(found), "something else")
