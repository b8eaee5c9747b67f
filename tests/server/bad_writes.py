"""Bad writes: everything that a ProduceRequest can get wrong (the world they meet: bad_requests.prepare)."""

from typing import Any

from kayos.limits import BATCH_COUNT_MAX, KEY_BYTES_MAX, TTL_MS_MAX, VALUE_BYTES_MAX
from kayos.wire.v1 import log_pb2, types_pb2
from tests.server.bad_request import BIG, GOOD, Bad, invalid


def produce(**fields: Any) -> log_pb2.ProduceRequest:
    return log_pb2.ProduceRequest(**{"shard": GOOD, **fields})


def refused(name: str, advice: str, **fields: Any) -> Bad:
    """A write whose fields are wrong."""
    return Bad(name, "Produce", produce(**fields), "INVALID_ARGUMENT", "INVALID_ARGUMENT", advice)


def headers(*entries: types_pb2.Header, index: int = 0) -> types_pb2.IndexedHeaders:
    return types_pb2.IndexedHeaders(index=index, headers=entries)


def producer(name: str, advice: str, status: str = "INVALID_ARGUMENT", code: str = "", **fields: Any) -> Bad:
    request = produce(values=[b"x"], producer=log_pb2.Producer(**fields))
    return Bad(name, "Produce", request, status, code or status, advice)


NAMED = types_pb2.Header(name="n", value=b"v")
ONE = {"keys": [b"a"], "values": [b"x"]}

WRITES = [
    refused("empty batch", "send at least one message"),
    refused("keys without values", "give one value per message", keys=[b"a"]),
    refused("kinds without values", "give one value per message", kinds=b"\x01"),
    refused("fewer keys than values", "give one key per message", keys=[b"a"], values=[b"x", b"y"]),
    refused("more keys than values", "give one key per message", keys=[b"a", b"b"], values=[b"x"]),
    refused("fewer kinds than values", "give one kind per message", kinds=b"\x01", keys=[b"a"] * 2, values=[b"x"] * 2),
    refused("kind 0", "use 1 (put)", kinds=b"\x00", **ONE),
    refused("kind 9", "use 1 (put)", kinds=b"\x09", **ONE),
    refused("append with a key", "leave the key empty", kinds=b"\x03", **ONE),
    refused("put without a key", "needs one", kinds=b"\x01", values=[b"x"]),
    refused("delete without a key", "needs one", kinds=b"\x02", values=[b""]),
    refused("delete with a value", "leave it empty", kinds=b"\x02", **ONE),
    refused("an empty key among keys", "give it one", keys=[b"a", b""], values=[b"x", b"y"]),
    refused("key too long", f"at most {KEY_BYTES_MAX}", keys=[b"k" * (KEY_BYTES_MAX + 1)], values=[b"x"]),
    refused("value too long", f"at most {VALUE_BYTES_MAX}", values=[b"v" * (VALUE_BYTES_MAX + 1)]),
    refused("batch too large", "split it", values=[b"v" * (3 << 20)] * 3),
    refused("too many messages", "split it", values=[b""] * (BATCH_COUNT_MAX + 1)),
    refused("too many headers", "at most 64", headers=[headers(*[NAMED] * 65)], **ONE),
    refused(
        "headers too large", "at most 65536", headers=[headers(types_pb2.Header(name="n", value=b"v" * 65_537))], **ONE
    ),
    refused("a header without a name", "give each one", headers=[headers(types_pb2.Header(value=b"v"))], **ONE),
    refused("a header's name too long", "at most 1024", headers=[headers(types_pb2.Header(name="n" * 1_025))], **ONE),
    refused("headers of no message", "the batch ends at 0", headers=[headers(NAMED, index=1)], **ONE),
    refused("headers twice", "give them once", headers=[headers(NAMED), headers(NAMED)], **ONE),
    refused(
        "too many headers in all",
        "split it",
        values=[b""] * 1_100,
        headers=[headers(*[NAMED] * 60, index=i) for i in range(1_100)],
    ),
    refused("TTL 0", f"give 1 to {TTL_MS_MAX}", ttls=[log_pb2.IndexedTtl(index=0)], **ONE),
    refused("TTL 2^64-1", f"give 1 to {TTL_MS_MAX}", ttls=[log_pb2.IndexedTtl(ttl_ms=BIG)], **ONE),
    refused("TTL of no message", "the batch ends at 0", ttls=[log_pb2.IndexedTtl(index=2**32 - 1, ttl_ms=1)], **ONE),
    refused(
        "TTL of a delete", "leave it out", kinds=b"\x02", keys=[b"a"], values=[b""], ttls=[log_pb2.IndexedTtl(ttl_ms=1)]
    ),
    refused("condition of no message", "the batch ends at 0", conditions=[log_pb2.Condition(index=1)], **ONE),
    refused("condition without a key", "conditions look at keys", values=[b"x"], conditions=[log_pb2.Condition()]),
    refused("condition at 2^64-1", "give 0 to", conditions=[log_pb2.Condition(expected_seq=BIG)], **ONE),
    refused("copies above N", "give 0 (all) to 1", durability=2, **ONE),
    refused("copies 2^32-1", "give 0 (all) to 1", durability=2**32 - 1, **ONE),
    Bad(
        "a condition that fails",
        "Produce",
        produce(conditions=[log_pb2.Condition(expected_seq=2)], **ONE),
        "FAILED_PRECONDITION",
        "CONDITION_FAILED",
        "read it again",
    ),
    producer("producer without an id", "give 1 to 64", number=1),
    producer("producer id too long", "give 1 to 64", producer_id=b"p" * 65, number=1),
    producer("producer number 0", "begin with 1", producer_id=b"p"),
    producer("producer number 2^64-1", "begin with 1", producer_id=b"p", number=BIG),
    producer(
        "producer number leaves a gap",
        "the next one is 2",
        "INVALID_ARGUMENT",
        "PRODUCER_GAP",
        producer_id=b"p",
        producer_epoch=5,
        number=3,
    ),
    producer(
        "producer fenced",
        "stop this producer",
        "FAILED_PRECONDITION",
        "PRODUCER_FENCED",
        producer_id=b"p",
        producer_epoch=4,
        number=2,
    ),
    producer(
        "producer unknown", "new producer id", "FAILED_PRECONDITION", "PRODUCER_UNKNOWN", producer_id=b"q", number=2
    ),
    Bad(
        "delete in a log",
        "Produce",
        produce(shard=log_pb2.ShardRef(topic="log"), kinds=b"\x02", keys=[b"a"], values=[b""]),
        "FAILED_PRECONDITION",
        "WRONG_MODE",
        "use a topic of mode 'compact'",
    ),
    Bad(
        "unknown topic",
        "Produce",
        produce(shard=log_pb2.ShardRef(topic="nobody"), **ONE),
        "NOT_FOUND",
        "TOPIC_NOT_FOUND",
        "kayos topic create",
    ),
    Bad(
        "wrong shard",
        "Produce",
        produce(shard=log_pb2.ShardRef(topic="good", shard=1), **ONE),
        "NOT_FOUND",
        "SHARD_NOT_FOUND",
        "its shards are 0 to 0",
    ),
    Bad(
        "shard 2^32-1",
        "Produce",
        produce(shard=log_pb2.ShardRef(topic="good", shard=2**32 - 1), **ONE),
        "NOT_FOUND",
        "SHARD_NOT_FOUND",
        "its shards are 0 to 0",
    ),
    Bad(
        "future epoch",
        "Produce",
        produce(shard=log_pb2.ShardRef(topic="good", epoch=2), **ONE),
        "UNAVAILABLE",
        "UNAVAILABLE",
        "send again",
    ),
    Bad(
        "epoch 2^64-1",
        "Produce",
        produce(shard=log_pb2.ShardRef(topic="good", epoch=BIG), **ONE),
        "UNAVAILABLE",
        "UNAVAILABLE",
        "send again",
    ),
    invalid("no shard at all", "Produce", log_pb2.ProduceRequest(values=[b"x"]), "use 1 to 63"),
]
