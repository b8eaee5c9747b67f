"""A message as a consumer sees it, and the fast way from columns to messages."""

from collections.abc import Sequence
from functools import partial
from itertools import repeat
from typing import NamedTuple

from kayos.errors import DataLoss
from kayos.model.record import Headers, Kind
from kayos.wire.v1 import types_pb2


class Message(NamedTuple):
    """`key` is None for an unkeyed message, `value` None for a tombstone; `timestamp` is in ms since 1970."""

    topic: str
    shard: int
    seq: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


# Skips the keyword handling of NamedTuple's own constructor: a third of the cost of a message.
_new_message = partial(tuple.__new__, Message)


def messages_from_columns(topic: str, shard: int, encoded: bytes) -> list[Message]:
    """The messages of serialized MessageColumns, in order: the hot path of every consumer."""
    columns = types_pb2.MessageColumns.FromString(encoded)
    # A slice of a repeated field is a list, made faster than `list` makes it.
    seqs, timestamps_ms = columns.seqs[:], columns.timestamps_ms[:]
    kinds = columns.kinds
    keys: Sequence[bytes | None] = columns.keys[:]
    values: Sequence[bytes | None] = columns.values[:]
    if not len(seqs) == len(timestamps_ms) == len(kinds) == len(keys) == len(values):
        raise DataLoss("the server sent columns of unequal length: read again from the mark")
    if b"" in keys:
        keys = [key or None for key in keys]
    if Kind.DELETE in kinds:
        values = [None if kind == Kind.DELETE else value for kind, value in zip(kinds, values, strict=True)]
    rows = zip(repeat(topic), repeat(shard), seqs, keys, values, timestamps_ms, repeat(()))
    messages: list[Message] = list(map(_new_message, rows))
    for entry in columns.headers:
        if entry.index >= len(messages):
            raise DataLoss("the server sent headers for no message: read again from the mark")
        headers = tuple((header.name, header.value) for header in entry.headers)
        messages[entry.index] = messages[entry.index]._replace(headers=headers)
    return messages
