"""The gateway lets sound writes through unchanged; `test_bad_input` lists what it refuses."""

import pytest

from kayos.errors import InvalidArgument
from kayos.limits import (
    BATCH_COUNT_MAX,
    HEADERS_COUNT_MAX,
    KEY_BYTES_MAX,
    NUMBER_MAX,
    PRODUCER_ID_BYTES_MAX,
    TTL_MS_MAX,
    VALUE_BYTES_MAX,
)
from kayos.model.producer import ProducerStamp
from kayos.model.record import unpack_headers
from kayos.model.topic import Mode, Topic
from kayos.server.gateway import check_number, chunk_bytes_from_wire, lease_from_wire, write_from_wire
from kayos.wire.v1 import log_pb2, types_pb2

TOPIC = Topic(name="t", topic_id="id")
LOG = Topic(name="l", topic_id="id", mode=Mode.LOG)


def test_plain_columns_pass_as_they_are() -> None:
    write, size = write_from_wire(log_pb2.ProduceRequest(keys=[b"a", b"b"], values=[b"1", b""]), TOPIC)
    assert (list(write.keys), list(write.values), write.kinds) == ([b"a", b"b"], [b"1", b""], b"")
    assert (write.producer, dict(write.headers), dict(write.ttl_ms), dict(write.expected)) == (None, {}, {}, {})
    assert size >= 3


def test_without_keys_messages_are_unkeyed() -> None:
    write, _ = write_from_wire(log_pb2.ProduceRequest(values=[b"1", b"2"]), TOPIC)
    assert (list(write.keys), write.kinds) == ([b"", b""], b"")


def test_kinds_become_those_of_the_store() -> None:
    request = log_pb2.ProduceRequest(keys=[b"a", b"b", b""], values=[b"1", b"", b"3"], kinds=b"\x01\x02\x03")
    assert write_from_wire(request, TOPIC)[0].kinds == b"\x01\x02\x01"
    request = log_pb2.ProduceRequest(keys=[b"a", b""], values=[b"1", b"3"], kinds=b"\x01\x03")
    assert write_from_wire(request, TOPIC)[0].kinds == b"", "all are puts: the fast way"


def test_sparse_columns_arrive_at_their_index() -> None:
    request = log_pb2.ProduceRequest(
        keys=[b"a", b"b"],
        values=[b"1", b"2"],
        headers=[types_pb2.IndexedHeaders(index=1, headers=[types_pb2.Header(name="é", value=b"\xff")])],
        ttls=[log_pb2.IndexedTtl(index=0, ttl_ms=TTL_MS_MAX)],
        conditions=[log_pb2.Condition(index=1, expected_seq=NUMBER_MAX), log_pb2.Condition(index=0)],
        producer=log_pb2.Producer(producer_id=b"p" * PRODUCER_ID_BYTES_MAX, producer_epoch=2, number=NUMBER_MAX),
    )
    write, _ = write_from_wire(request, TOPIC)
    assert {index: unpack_headers(packed) for index, packed in write.headers.items()} == {1: (("é", b"\xff"),)}
    assert (dict(write.ttl_ms), dict(write.expected)) == ({0: TTL_MS_MAX}, {1: NUMBER_MAX, 0: 0})
    assert write.producer == ProducerStamp(b"p" * PRODUCER_ID_BYTES_MAX, 2, NUMBER_MAX)


@pytest.mark.parametrize(
    "request_",
    [
        log_pb2.ProduceRequest(keys=[b"k" * KEY_BYTES_MAX], values=[b"v" * VALUE_BYTES_MAX]),
        log_pb2.ProduceRequest(values=[b""] * BATCH_COUNT_MAX),
        log_pb2.ProduceRequest(
            values=[b"x"],
            headers=[types_pb2.IndexedHeaders(headers=[types_pb2.Header(name="n")] * HEADERS_COUNT_MAX)],
        ),
    ],
    ids=["sizes", "count", "headers"],
)
def test_at_the_bound_is_inside(request_: log_pb2.ProduceRequest) -> None:
    write, _ = write_from_wire(request_, LOG)
    assert write.count == len(request_.values)


def test_the_size_counts_every_message_and_its_headers() -> None:
    small, small_size = write_from_wire(log_pb2.ProduceRequest(values=[b""] * 1_000), TOPIC)
    header = types_pb2.IndexedHeaders(headers=[types_pb2.Header(name="n", value=b"v" * 1_000)])
    _, with_header = write_from_wire(log_pb2.ProduceRequest(values=[b""], headers=[header]), TOPIC)
    assert small.count == 1_000 and small_size >= 10_000, "empty messages cost memory too"
    assert with_header > 1_000


def test_numbers_leases_and_chunks() -> None:
    assert check_number("n", NUMBER_MAX) == NUMBER_MAX
    for value in (-1, NUMBER_MAX + 1):
        with pytest.raises(InvalidArgument, match=f"n is {value}"):
            check_number("n", value)
    assert (lease_from_wire(0), lease_from_wire(1_000)) == (60_000, 1_000)
    assert (chunk_bytes_from_wire(0), chunk_bytes_from_wire(5)) == (512 * 1024, 5)
