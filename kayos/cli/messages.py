"""Messages as rows, as lines of JSON and as lines for the eye.

    {"topic": "orders", "shard": 0, "seq": 7, "key": "1001", "value": null, "timestamp": 1767225600000}

`key` is null for an unkeyed message, `value` for a tombstone; `headers` are there if the message has any, as an object,
or as a list of pairs where a name stands twice. What is not plain text is named: `key_encoding`, `value_encoding`,
`headers_encoding` (then for all its values), each base64 or hex. `kayos produce` reads these lines back.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kayos.cli.encoding import to_text
from kayos.cli.output import printable, to_json

if TYPE_CHECKING:
    from kayos.client.core.message import Message

_VALUE_WIDTH = 120
_LINE = "{:>5}  {:>10}  {:<24}  {:<24}  {}\n"


class MessageWriter:
    def __init__(self, key_encoding: str, value_encoding: str) -> None:
        self._key_encoding = key_encoding
        self._value_encoding = value_encoding

    def row(self, message: "Message") -> dict[str, Any]:
        row: dict[str, Any] = {
            "topic": message.topic,
            "shard": message.shard,
            "seq": message.seq,
            "key": None,
            "value": None,
            "timestamp": message.timestamp,
        }
        if message.headers:
            row["headers"], encoding = headers_as_text(message.headers)
            name_encoding(row, "headers", encoding)
        if message.key is not None:
            row["key"], encoding = to_text(message.key, self._key_encoding)
            name_encoding(row, "key", encoding)
        if message.value is not None:
            row["value"], encoding = to_text(message.value, self._value_encoding)
            name_encoding(row, "value", encoding)
        return row

    def lines(self, messages: "Iterable[Message]") -> bytes:
        row = self.row
        return "".join([f"{to_json(row(message))}\n" for message in messages]).encode()

    def table_head(self) -> bytes:
        return _LINE.format("SHARD", "SEQ", "TIME", "KEY", "VALUE").encode()

    def table_lines(self, messages: "Iterable[Message]") -> bytes:
        """A stream has no widest cell, so columns have fixed widths and long values are cut."""
        return "".join(map(self._table_line, messages)).encode()

    def _table_line(self, message: "Message") -> str:
        row = self.row(message)
        moment = datetime.fromtimestamp(message.timestamp / 1000, UTC).isoformat(timespec="milliseconds")
        key = "-" if row["key"] is None else printable(row["key"])
        value = "(deleted)" if row["value"] is None else printable(row["value"])
        shown = value if len(value) <= _VALUE_WIDTH else value[: _VALUE_WIDTH - 1] + "…"
        return _LINE.format(message.shard, message.seq, moment.replace("+00:00", "Z"), key, shown)


def name_encoding(row: dict[str, Any], field: str, encoding: str) -> None:
    if encoding != "utf8":
        row[f"{field}_encoding"] = encoding


def headers_as_text(headers: Iterable[tuple[str, bytes]]) -> tuple[Any, str]:
    """One encoding for all the values of a message: utf8 if that fits every one of them."""
    pairs = [(name, to_text(value, "utf8")) for name, value in headers]
    encoding = "utf8"
    texts = [[name, text] for name, (text, _) in pairs]
    if any(used != "utf8" for _, (_, used) in pairs):
        encoding = "base64"
        texts = [[name, to_text(value, "base64")[0]] for name, value in headers]
    if len({name for name, _ in texts}) == len(texts):
        return dict(texts), encoding
    return texts, encoding
