"""Between the schema and the model: marks, pins, topics, takeover rows, columns of messages."""

from collections.abc import Iterable, Sequence
from itertools import repeat

from kayos.errors import InvalidArgument
from kayos.model.mark import Mark
from kayos.model.pin import Pin
from kayos.model.record import HEAD, Record, decode_record
from kayos.model.takeover import HISTORY_ID_BYTES, TakeoverTable
from kayos.model.topic import Mode, Retention, Topic
from kayos.wire.v1 import cluster_pb2, types_pb2

_MODES = {Mode.COMPACT: cluster_pb2.MODE_COMPACT, Mode.LOG: cluster_pb2.MODE_LOG}
_MODES_BACK: dict[int, Mode] = {
    cluster_pb2.MODE_UNSPECIFIED: Mode.COMPACT,
    **{value: mode for mode, value in _MODES.items()},
}


def mark_to_wire(mark: Mark) -> types_pb2.Mark:
    return types_pb2.Mark(
        history_id=mark.history_id,
        seq=mark.seq,
        snapshot_start_seq=mark.snapshot_start_seq,
        snapshot_end_seq=mark.snapshot_end_seq,
    )


def mark_from_wire(wire: types_pb2.Mark) -> Mark:
    if wire.seq and len(wire.history_id) != HISTORY_ID_BYTES:
        raise InvalidArgument(
            f"the mark's history_id has {len(wire.history_id)} bytes: give the {HISTORY_ID_BYTES} of the boundary"
        )
    return Mark(wire.history_id, wire.seq, wire.snapshot_start_seq, wire.snapshot_end_seq)


def pin_to_wire(pin: Pin) -> types_pb2.Pin:
    return types_pb2.Pin(
        pin_id=pin.pin_id,
        seq=pin.seq,
        created_ms=pin.created_ms,
        lease_until_ms=pin.lease_until_ms,
        ended=pin.ended,
    )


def pin_from_wire(wire: types_pb2.Pin) -> Pin:
    return Pin(wire.pin_id, wire.seq, wire.created_ms, wire.lease_until_ms, wire.ended)


def takeover_to_wire(table: TakeoverTable) -> list[types_pb2.TakeoverRow]:
    return [
        types_pb2.TakeoverRow(history_id=row.history_id, start_seq=row.start_seq, epoch=row.epoch) for row in table.rows
    ]


def mode_from_wire(value: int) -> Mode:
    if value not in _MODES_BACK:
        raise InvalidArgument(f"mode {value} is unknown: use MODE_COMPACT or MODE_LOG")
    return _MODES_BACK[value]


def mode_to_wire(mode: Mode) -> cluster_pb2.Mode:
    return _MODES[mode]


def retention_to_wire(retention: Retention) -> cluster_pb2.Retention:
    return cluster_pb2.Retention(
        max_age_ms=retention.max_age_ms,
        max_bytes=retention.max_bytes,
        max_messages=retention.max_messages,
        tombstone_ms=retention.tombstone_ms,
    )


def retention_from_wire(wire: cluster_pb2.Retention) -> Retention:
    return Retention(wire.max_age_ms, wire.max_bytes, wire.max_messages, wire.tombstone_ms)


def topic_to_wire(topic: Topic) -> cluster_pb2.Topic:
    return cluster_pb2.Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        shards=topic.shards,
        replicas=topic.replicas,
        tails=topic.tails,
        min_durable=topic.min_durable,
        min_replicas=topic.min_replicas,
        mode=mode_to_wire(topic.mode),
        retention=retention_to_wire(topic.retention),
        created_ms=topic.created_ms,
    )


def topic_from_wire(wire: cluster_pb2.Topic) -> Topic:
    return Topic(
        name=wire.name,
        topic_id=wire.topic_id,
        shards=wire.shards,
        replicas=wire.replicas,
        tails=wire.tails,
        min_durable=wire.min_durable,
        min_replicas=wire.min_replicas,
        mode=mode_from_wire(wire.mode),
        retention=retention_from_wire(wire.retention),
        created_ms=wire.created_ms,
    )


def headers_to_wire(headers: Iterable[tuple[str, bytes]]) -> list[types_pb2.Header]:
    return [types_pb2.Header(name=name, value=value) for name, value in headers]


def columns_from_records(records: Sequence[bytes]) -> bytes:
    """Serialized MessageColumns of stored records: the hot path of every reader.

    Plain records (no flags) are taken apart here with as few calls as possible; the rare ones with headers
    or an expiry go through the full decoder.
    """
    unpack = HEAD.unpack_from
    size = HEAD.size
    seqs: list[int] = []
    timestamps: list[int] = []
    kinds = bytearray()
    keys: list[bytes] = []
    values: list[bytes] = []
    indexed_headers: list[types_pb2.IndexedHeaders] = []
    for stored in records:
        seq, kind, flags, key_length, timestamp_ms = unpack(stored)
        seqs.append(seq)
        timestamps.append(timestamp_ms)
        kinds.append(kind)
        if flags:
            record = decode_record(stored)
            if record.headers:
                headers = headers_to_wire(record.headers)
                indexed_headers.append(types_pb2.IndexedHeaders(index=len(keys), headers=headers))
            keys.append(record.key)
            values.append(record.value)
        else:
            end = size + key_length
            keys.append(stored[size:end])
            values.append(stored[end:-4])
    columns = types_pb2.MessageColumns(
        seqs=seqs, timestamps_ms=timestamps, kinds=bytes(kinds), keys=keys, values=values, headers=indexed_headers
    )
    return columns.SerializeToString()


def records_from_columns(encoded: bytes) -> list[Record]:
    """The messages of serialized MessageColumns, in order."""
    columns = types_pb2.MessageColumns.FromString(encoded)
    records = list(
        map(Record, columns.seqs, columns.kinds, columns.timestamps_ms, columns.keys, columns.values, repeat(()))
    )
    for entry in columns.headers:
        headers = tuple((header.name, header.value) for header in entry.headers)
        records[entry.index] = records[entry.index]._replace(headers=headers)
    return records
