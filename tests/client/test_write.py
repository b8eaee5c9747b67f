"""Messages and columns on their way in: what is checked before anything is queued, and how requests are cut."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kayos.client.core.batch import Draft
from kayos.client.core.bulk import BulkTicket, check_columns, split
from kayos.client.core.delivery import BatchDelivery
from kayos.client.core.route import ShardRoute, View, shard_of
from kayos.client.core.transaction import TransactionDraft
from kayos.client.core.write import APPEND, check_durability, make_write
from kayos.errors import FailedPrecondition, InvalidArgument, Overloaded
from kayos.limits import BATCH_BYTES_MAX, BATCH_COUNT_MAX, KEY_BYTES_MAX, TTL_MS_MAX, VALUE_BYTES_MAX
from kayos.model.record import Kind
from kayos.model.topic import Topic
from kayos.server.gateway import write_from_wire
from kayos.wire.v1 import log_pb2

TOPIC = Topic("t", "id", shards=4)
REF = log_pb2.ShardRef(topic="t", shard=1, epoch=7)
STAMP = log_pb2.Producer(producer_id=b"p", producer_epoch=2, number=3)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        (b"k", b"v", Kind.PUT),
        (b"k", b"", Kind.PUT),
        (b"k", None, Kind.DELETE),
        (None, b"v", APPEND),
        (None, b"", APPEND),
    ],
)
def test_key_and_value_say_what_kind_it_is(key: bytes | None, value: bytes | None, kind: int) -> None:
    assert make_write(key, value).kind == kind


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"key": None, "value": None}, "a delete needs a key"),
        ({"key": b"", "value": b"v"}, "the key has 0 bytes"),
        ({"key": b"k" * (KEY_BYTES_MAX + 1), "value": b"v"}, "the key has 4097 bytes"),
        ({"key": "k", "value": b"v"}, "the key is str: give bytes"),
        ({"key": b"k", "value": "v"}, "the value is str: give bytes"),
        ({"key": b"k", "value": bytes(VALUE_BYTES_MAX + 1)}, "split it"),
        ({"key": b"k", "value": None, "ttl_ms": 5}, "a delete has no ttl_ms"),
        ({"key": b"k", "value": b"v", "ttl_ms": 0}, "ttl_ms is 0"),
        ({"key": b"k", "value": b"v", "ttl_ms": TTL_MS_MAX + 1}, "ttl_ms is"),
        ({"key": b"k", "value": b"v", "expected_seq": -1}, "expected_seq is -1"),
        ({"key": None, "value": b"v", "expected_seq": 0}, "expected_seq needs a key"),
        ({"key": b"k", "value": b"v", "headers": {"a": "b"}}, "encode the values"),
        ({"key": b"k", "value": b"v", "headers": {"": b"b"}}, "name is empty"),
        ({"key": b"k", "value": b"v", "headers": {f"h{i}": b"" for i in range(65)}}, "65 headers"),
        ({"key": b"k", "value": b"v", "headers": {"a": bytes(65_537)}}, "move data to the value"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_message_is_refused_at_the_caller_s_own_line(wrong: dict[str, Any], says: str) -> None:
    key, value = wrong.pop("key"), wrong.pop("value")
    with pytest.raises(InvalidArgument, match=says):
        make_write(key, value, **wrong)


@pytest.mark.parametrize(("given", "wire"), [("all", 0), (1, 1), (9, 9)])
def test_durability_on_the_wire(given: int | str, wire: int) -> None:
    assert check_durability(given) == wire


@pytest.mark.parametrize("wrong", [0, -1, 10, "ALL", "1", None, 1.0])
def test_other_durabilities_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="give 'all' or a number"):
        check_durability(wrong)


def test_a_sealed_draft_arrives_as_it_was_written() -> None:
    draft = Draft(0, 0.0)
    writes = [
        make_write(b"a", b"1", headers={"trace": b"\x00"}, ttl_ms=50),
        make_write(b"b", None, expected_seq=9),
        make_write(None, b"x"),
    ]
    for write in writes:
        draft.add(write, write.size)
    batch = draft.seal(deadline=1.0)
    request = log_pb2.ProduceRequest.FromString(batch.encode(REF, STAMP, 77))
    arrived, _ = write_from_wire(request, TOPIC)
    assert (request.shard, request.correlation, batch.count, batch.alone) == (REF, 77, 3, True)
    assert (arrived.keys, arrived.values) == ([b"a", b"b", b""], [b"1", b"", b"x"])
    assert arrived.kinds == bytes([Kind.PUT, Kind.DELETE, Kind.PUT])
    assert (arrived.ttl_ms, arrived.expected, list(arrived.headers)) == ({0: 50}, {1: 9}, [0])
    assert arrived.producer == (b"p", 2, 3)


@pytest.mark.parametrize("key", [b"k", None])
def test_columns_of_one_kind_are_left_out(key: bytes | None) -> None:
    draft = Draft(0, 0.0)
    draft.add(make_write(key, b"v"), 20)
    request = log_pb2.ProduceRequest.FromString(draft.seal(deadline=1.0).body)
    assert (list(request.keys), request.kinds) == ([b"k"] if key else [], b"")


@pytest.mark.parametrize(
    ("keys", "values", "says"),
    [
        ([], [], "no message"),
        ([b"a"], [b"1", b"2"], "1 keys and 2 values"),
        ([b"a", b""], [b"1", b"2"], "a key has 0 bytes"),
        ([b"a", b"k" * 4097], [b"1", b"2"], "a key has 4097 bytes"),
        (["a"], [b"1"], "a key is str"),
        ([b"a"], ["1"], "a value is str"),
        (None, [b"1", None], "a delete needs a key"),
        ([b"a"], [bytes(VALUE_BYTES_MAX + 1)], "split it"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_columns_are_refused_before_anything_is_sent(keys: Any, values: Any, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        check_columns(keys, values)


columns = st.lists(
    st.tuples(st.binary(min_size=1, max_size=8), st.one_of(st.none(), st.binary(max_size=300))), min_size=1, max_size=60
)


@given(columns, st.integers(1, 5), st.integers(1, 2000))
def test_a_bulk_send_is_cut_by_shard_and_size_and_keeps_its_order(
    rows: list[tuple[bytes, bytes | None]], shards: int, batch_bytes: int
) -> None:
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    found: dict[int, list[tuple[bytes, bytes | None]]] = {shard: [] for shard in range(shards)}
    for piece in split(keys, values, shards=shards, route_shard=None, batch_bytes=batch_bytes, durability=0):
        request = log_pb2.ProduceRequest.FromString(piece.body)
        write, _ = write_from_wire(request, TOPIC)
        kinds = write.kinds or bytes([Kind.PUT]) * write.count
        assert piece.count == write.count
        assert {shard_of(key, shards) for key in write.keys} == {piece.shard}
        triples = zip(write.keys, write.values, kinds, strict=True)
        found[piece.shard] += [(key, None if kind == Kind.DELETE else value) for key, value, kind in triples]
    for shard, arrived in found.items():
        assert arrived == [(key, value) for key, value in rows if shard_of(key, shards) == shard]


def test_no_request_of_a_bulk_send_passes_the_server_s_bounds() -> None:
    uneven = [b"x"] * 1000 + [bytes(3 * 1024 * 1024)] * 9
    pieces = list(split(None, uneven, shards=1, route_shard=0, batch_bytes=BATCH_BYTES_MAX, durability=0))
    assert sum(piece.count for piece in pieces) == len(uneven)
    assert max(piece.size for piece in pieces) <= BATCH_BYTES_MAX
    many = list(split(None, [b""] * 150_000, shards=1, route_shard=0, batch_bytes=BATCH_BYTES_MAX, durability=0))
    assert max(piece.count for piece in many) <= BATCH_COUNT_MAX


def test_a_bulk_ticket_ends_with_its_last_request_and_keeps_the_first_error() -> None:
    ticket = BulkTicket(None)
    ticket.add()
    ticket.add()
    first = Overloaded("first")
    assert [ticket.settle(None), ticket.settle(first)] == [False, False]
    assert ticket.settle(BatchDelivery("t", 0, 1, 5, b"", 1, 0, False))
    assert (ticket.error, ticket.result().count) == (first, 5)


def transaction(route: bytes | None = None) -> TransactionDraft:
    found = TransactionDraft("t", route=route, durability=0)
    found.begin(View(TOPIC, tuple(ShardRoute(1, ("h:1",), ("h:1",)) for _ in range(4))))
    return found


def test_a_transaction_has_one_shard() -> None:
    near = [key for key in (b"%d" % i for i in range(99)) if shard_of(key, 4) == 2]
    far = next(key for key in (b"%d" % i for i in range(99)) if shard_of(key, 4) != 2)
    found = transaction()
    found.add(make_write(None, b"x"))
    assert found.shard is None
    found.add(make_write(near[0], b"x"))
    found.add(make_write(near[1], b"x"))
    assert found.shard == 2
    with pytest.raises(InvalidArgument, match="pass route="):
        found.add(make_write(far, b"x"))
    assert found.draft.count == 3
    routed = transaction(route=b"r")
    routed.add(make_write(near[0], b"x"))
    routed.add(make_write(far, b"x"))
    assert routed.shard == shard_of(b"r", 4)


def test_a_transaction_is_used_once_and_in_its_block() -> None:
    with pytest.raises(FailedPrecondition, match="has not begun"):
        TransactionDraft("t", route=None, durability=0).add(make_write(b"k", b"v"))
    found = transaction()
    with pytest.raises(FailedPrecondition, match="after the block"):
        _ = found.deliveries
    found.end()
    with pytest.raises(FailedPrecondition, match="has ended"):
        found.add(make_write(b"k", b"v"))
    found.finish(None)
    assert found.deliveries == ()


def test_a_transaction_stays_within_one_request() -> None:
    found = transaction()
    found.add(make_write(b"k", bytes(VALUE_BYTES_MAX)))
    with pytest.raises(InvalidArgument, match="send fewer"):
        found.add(make_write(b"k", bytes(VALUE_BYTES_MAX)))
    assert found.draft.count == 1
