"""Between schema and model: what goes out comes back."""

import pytest

from kayos.errors import InvalidArgument
from kayos.model.mark import Mark
from kayos.model.pin import Pin
from kayos.model.record import Record, encode_record, pack_headers
from kayos.model.topic import Mode, Retention, Topic
from kayos.wire.codec import (
    columns_from_records,
    mark_from_wire,
    mark_to_wire,
    mode_from_wire,
    pin_from_wire,
    pin_to_wire,
    records_from_columns,
    topic_from_wire,
    topic_to_wire,
)
from kayos.wire.methods import CLUSTER_METHODS, LOG_METHODS
from kayos.wire.v1 import types_pb2

BIG = 2**63 - 1


def test_columns_give_back_every_record_in_order() -> None:
    headers = (("trace", b"\x00\xff"), ("empty", b""))
    records = [
        Record(1, 1, 10, b"key", b"value"),
        Record(5, 2, 11, b"deleted", b""),
        Record(6, 1, 11, b"", b"unkeyed"),
        Record(7, 1, 12, b"with headers", b"\x00" * 1_000, headers),
        Record(BIG, 1, BIG, b"k" * 4_096, b"", (), 99),
    ]
    stored = [
        encode_record(
            record.seq,
            record.kind,
            record.timestamp_ms,
            record.key,
            record.value,
            pack_headers(record.headers) if record.headers else b"",
            record.expires_at_ms,
        )
        for record in records
    ]
    # When a message goes is the server's business; everything else arrives.
    assert records_from_columns(columns_from_records(stored)) == [
        record._replace(expires_at_ms=0) for record in records
    ]
    assert records_from_columns(columns_from_records([])) == []


def test_marks_pins_and_topics() -> None:
    mark = Mark(b"h" * 16, BIG, 3, BIG)
    assert mark_from_wire(mark_to_wire(mark)) == mark
    assert mark_from_wire(types_pb2.Mark()) == Mark(b"", 0)
    pin = Pin("p", 5, 1, 2, "released")
    assert pin_from_wire(pin_to_wire(pin)) == pin
    topic = Topic("t", "id", 3, 2, 1, 2, 2, Mode.LOG, Retention(1, 2, 3, 4), 5)
    assert topic_from_wire(topic_to_wire(topic)) == topic


@pytest.mark.parametrize("length", [0, 15, 17])
def test_a_mark_above_0_names_its_history(length: int) -> None:
    with pytest.raises(InvalidArgument, match=f"has {length} bytes"):
        mark_from_wire(types_pb2.Mark(seq=1, history_id=b"h" * length))


def test_the_mode_that_is_not_given_is_compact_and_an_unknown_one_is_refused() -> None:
    assert mode_from_wire(0) is Mode.COMPACT
    with pytest.raises(InvalidArgument, match="mode 7 is unknown"):
        mode_from_wire(7)


def test_methods_are_read_off_the_schema() -> None:
    assert LOG_METHODS["CommitMark"].handler_name == "commit_mark"
    assert LOG_METHODS["ProduceStream"].client_streams and LOG_METHODS["ProduceStream"].server_streams
    assert not LOG_METHODS["Subscribe"].client_streams and LOG_METHODS["Subscribe"].server_streams
    assert CLUSTER_METHODS["GetView"].path == "/kayos.v1.Cluster/GetView"
