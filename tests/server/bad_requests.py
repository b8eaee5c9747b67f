"""The table of bad requests to one node: each with the status, the code and the advice that it must get.

The world they meet is that of `prepare`: topic `good` (mode compact, one shard, keys `a` and `b`, sequences 1 and
2, producer `p` at number 1 in epoch 5, consumer `c` marked at 2, pin `pin` at its own sequence) and topic `log`.
"""

from typing import Any

from google.protobuf.message import Message

from kayos.limits import PIN_LEASE_MS_MAX
from kayos.wire.v1 import cluster_pb2, log_pb2, types_pb2
from tests.server.bad_request import BIG, GOOD, Bad, invalid
from tests.server.bad_writes import WRITES
from tests.server.calls import TIMEOUT_S, Calls

BAD_NAMES = {
    "parent": "../x",
    "absolute": "/etc",
    "slash": "a/b",
    "dot": ".",
    "empty": "",
    "long": "x" * 1_000,
    "upper": "CON",
    "emoji": "🦀",
    "newline": "a\nb",
    "nul": "a\0b",
    "space": "a b",
    "backslash": "a\\b",
    "percent": "%2e%2e",
    "dash first": "-rf",
}


def subscribe(name: str, advice: str, status: str = "INVALID_ARGUMENT", code: str = "", **fields: Any) -> Bad:
    return Bad(name, "Subscribe", log_pb2.SubscribeRequest(shard=GOOD, **fields), status, code or status, advice)


FOREIGN = types_pb2.Mark(history_id=b"?" * 16, seq=1)

READS = [
    subscribe("no start", "give a mark"),
    subscribe("after_seq above the log", "subscribe with 'latest'", "OUT_OF_RANGE", after_seq=1_000),
    subscribe("after_seq 2^64-1", "subscribe with 'latest'", "OUT_OF_RANGE", after_seq=BIG),
    subscribe("a negative time", "give 0 to", from_time_ms=-1),
    subscribe("a mark at 2^63", "give 0 to", mark=types_pb2.Mark(history_id=b"?" * 16, seq=2**63)),
    subscribe("a mark without history", "of the boundary", mark=types_pb2.Mark(seq=1)),
    subscribe("a mark of a foreign history", "read from 0", "ABORTED", "RESET_REQUIRED", mark=FOREIGN),
    subscribe("batch_bytes 2^32-1", "give at most", after_seq=0, batch_bytes=2**32 - 1),
    subscribe("an illegal consumer", "use 1 to 63", consumer="../c"),
    invalid("get without a key", "Get", log_pb2.GetRequest(shard=GOOD), "give 1 to 4096"),
    invalid("get a key too long", "Get", log_pb2.GetRequest(shard=GOOD, key=b"k" * 4_097), "give 1 to 4096"),
    invalid("get at 2^64-1", "Get", log_pb2.GetRequest(shard=GOOD, key=b"a", min_seq=BIG), "give 0 to"),
    Bad(
        "get from a log",
        "Get",
        log_pb2.GetRequest(shard=log_pb2.ShardRef(topic="log"), key=b"a"),
        "FAILED_PRECONDITION",
        "WRONG_MODE",
        "needs mode 'compact'",
    ),
    invalid("wait until nothing", "Wait", log_pb2.WaitRequest(shard=GOOD, history_id=b"?" * 16, seq=1), "wait until"),
    invalid("wait until 99", "Wait", log_pb2.WaitRequest(shard=GOOD, seq=1, until=99), "use copies"),  # type: ignore[arg-type]
    invalid("wait for sequence 0", "Wait", log_pb2.WaitRequest(shard=GOOD, until=1), "give 1 to"),
    invalid(
        "wait for 2 copies of 1", "Wait", log_pb2.WaitRequest(shard=GOOD, seq=1, until=1, copies=2), "give 0 (all)"
    ),
    Bad(
        "wait in a foreign history",
        "Wait",
        log_pb2.WaitRequest(shard=GOOD, history_id=b"?" * 16, seq=1, until=1),
        "ABORTED",
        "RESET_REQUIRED",
        "read from 0",
    ),
]


def commit(name: str, advice: str, status: str, code: str, seq: int) -> Bad:
    """With the right history, which `with_history` fills in."""
    request = log_pb2.CommitMarkRequest(shard=GOOD, consumer="c", mark=types_pb2.Mark(seq=seq))
    return Bad(name, "CommitMark", request, status, code, advice)


MARKS = [
    invalid("commit no mark", "CommitMark", log_pb2.CommitMarkRequest(shard=GOOD, consumer="c"), "give the one"),
    commit("commit backwards", "kayos mark reset", "FAILED_PRECONDITION", "MARK_BACKWARDS", 1),
    commit("commit ahead", "boundaries that you received", "FAILED_PRECONDITION", "MARK_AHEAD", 1_000),
    commit("commit 2^64-1", "give 0 to", "INVALID_ARGUMENT", "INVALID_ARGUMENT", BIG),
    Bad(
        "commit a foreign history",
        "CommitMark",
        log_pb2.CommitMarkRequest(shard=GOOD, consumer="new", mark=FOREIGN),
        "ABORTED",
        "RESET_REQUIRED",
        "read from 0",
    ),
    Bad(
        "unknown consumer",
        "GetMark",
        log_pb2.GetMarkRequest(shard=GOOD, consumer="nobody"),
        "NOT_FOUND",
        "MARK_NOT_FOUND",
        "has not committed one",
    ),
    invalid("reset to nowhere", "ResetMark", log_pb2.ResetMarkRequest(shard=GOOD, consumer="c"), "give a sequence"),
    Bad(
        "reset beyond the log",
        "ResetMark",
        log_pb2.ResetMarkRequest(shard=GOOD, consumer="c", seq=BIG),
        "OUT_OF_RANGE",
        "OUT_OF_RANGE",
        "above the log's end",
    ),
    invalid(
        "reset to a negative time",
        "ResetMark",
        log_pb2.ResetMarkRequest(shard=GOOD, consumer="c", time_ms=-1),
        "give 0",
    ),
    Bad(
        "drop an unknown consumer",
        "ResetMark",
        log_pb2.ResetMarkRequest(shard=GOOD, consumer="nobody", drop=True),
        "NOT_FOUND",
        "MARK_NOT_FOUND",
        "nothing to drop",
    ),
]

PINS = [
    invalid("lease 1", "CreatePin", log_pb2.CreatePinRequest(shard=GOOD, lease_ms=1), "give 1000 to"),
    invalid(
        "lease too long", "CreatePin", log_pb2.CreatePinRequest(shard=GOOD, lease_ms=PIN_LEASE_MS_MAX + 1), "give 1000"
    ),
    Bad(
        "pin twice",
        "CreatePin",
        log_pb2.CreatePinRequest(shard=GOOD, pin_id="pin"),
        "FAILED_PRECONDITION",
        "FAILED_PRECONDITION",
        "choose another name",
    ),
    Bad(
        "renew an unknown pin",
        "RenewPin",
        log_pb2.RenewPinRequest(shard=GOOD, pin_id="nobody"),
        "NOT_FOUND",
        "PIN_NOT_FOUND",
        "no pin 'nobody'",
    ),
    Bad(
        "release an unknown pin",
        "ReleasePin",
        log_pb2.ReleasePinRequest(shard=GOOD, pin_id="nobody"),
        "NOT_FOUND",
        "PIN_NOT_FOUND",
        "no pin 'nobody'",
    ),
    Bad(
        "read an unknown pin",
        "ReadPin",
        log_pb2.ReadPinRequest(shard=GOOD, pin_id="nobody"),
        "NOT_FOUND",
        "PIN_NOT_FOUND",
        "kayos pin list",
    ),
    Bad(
        "read an expired pin",
        "ReadPin",
        log_pb2.ReadPinRequest(shard=GOOD, pin_id="expired"),
        "ABORTED",
        "SNAPSHOT_EXPIRED",
        "start again from your mark",
    ),
    Bad(
        "read outside a pin",
        "ReadPin",
        log_pb2.ReadPinRequest(shard=GOOD, pin_id="pin", after_seq=BIG),
        "OUT_OF_RANGE",
        "OUT_OF_RANGE",
        "ask for a part of that",
    ),
    invalid(
        "batch_bytes of a pin",
        "ReadPin",
        log_pb2.ReadPinRequest(shard=GOOD, pin_id="pin", batch_bytes=2**31),
        "give at most",
    ),
]


def create(name: str, advice: str, **fields: Any) -> Bad:
    return invalid(name, "CreateTopic", cluster_pb2.CreateTopicRequest(name="new", **fields), advice)


TOPICS = [
    create("shards 1025", "give 1 to 1024", shards=1_025),
    create("shards 2^32-1", "give 1 to 1024", shards=2**32 - 1),
    create("replicas 10", "give 1 to 9", replicas=10),
    create("replicas above the nodes", "give 1", replicas=2),
    create("tails above N", "give 1 to the number of replicas", tails=2),
    create("min_durable above N", "give 1 to the number of replicas", min_durable=2),
    create("mode 9", "use MODE_COMPACT or MODE_LOG", mode=9),
    create("max_age 2^64-1", "give 0 (never) to", retention=cluster_pb2.Retention(max_age_ms=BIG)),
    create("max_bytes of a compact topic", "use max_age_ms", retention=cluster_pb2.Retention(max_bytes=1)),
    Bad(
        "exists with other settings",
        "CreateTopic",
        cluster_pb2.CreateTopicRequest(name="good", shards=2),
        "ALREADY_EXISTS",
        "TOPIC_EXISTS",
        "choose another name",
    ),
    invalid("alter nothing", "AlterTopic", cluster_pb2.AlterTopicRequest(name="good"), "give one of"),
    Bad(
        "alter an unknown topic",
        "AlterTopic",
        cluster_pb2.AlterTopicRequest(name="nobody", max_age_ms=1),
        "NOT_FOUND",
        "TOPIC_NOT_FOUND",
        "kayos topic create",
    ),
    Bad(
        "delete an unknown topic",
        "DeleteTopic",
        cluster_pb2.DeleteTopicRequest(name="nobody"),
        "NOT_FOUND",
        "TOPIC_NOT_FOUND",
        "kayos topic create",
    ),
    Bad(
        "view of an unknown topic",
        "GetView",
        cluster_pb2.GetViewRequest(topic="nobody"),
        "NOT_FOUND",
        "TOPIC_NOT_FOUND",
        "kayos topic create",
    ),
    Bad(
        "compact an unknown topic",
        "CompactShard",
        cluster_pb2.CompactShardRequest(topic="nobody"),
        "NOT_FOUND",
        "TOPIC_NOT_FOUND",
        "kayos topic create",
    ),
    Bad(
        "trim a compact topic",
        "TrimShard",
        cluster_pb2.TrimShardRequest(topic="good", through_seq=1),
        "FAILED_PRECONDITION",
        "WRONG_MODE",
        "needs mode 'log'",
    ),
    invalid(
        "trim through 2^64-1", "TrimShard", cluster_pb2.TrimShardRequest(topic="log", through_seq=BIG), "give 1 to"
    ),
]


def malformed(method: str) -> list[Bad]:
    """Bytes that are no message: noise, cut off, text that is not UTF-8, and nesting without end."""
    nested = b"\x0b" * 5_000 + b"\x0c" * 5_000
    noise = {"noise": b"\xff" * 50, "truncated": b"\x0a\x7fgo", "not UTF-8": b"\x0a\x03\x0a\x01\xff", "deep": nested}
    if method in ("CreateTopic", "DeleteTopic"):
        noise["not UTF-8"] = b"\x0a\x01\xff"
    return [
        invalid(f"{method}: {name}", method, encoded, "check the client's schema") for name, encoded in noise.items()
    ]


def named(name: str) -> list[Message]:
    """Requests that carry a name, one of each kind."""
    ref = log_pb2.ShardRef(topic=name)
    return [
        cluster_pb2.CreateTopicRequest(name=name),
        cluster_pb2.DescribeTopicRequest(name=name),
        cluster_pb2.DeleteTopicRequest(name=name),
        cluster_pb2.GetViewRequest(topic=name),
        log_pb2.ProduceRequest(shard=ref, values=[b"x"]),
        log_pb2.SubscribeRequest(shard=ref, after_seq=0),
        log_pb2.CommitMarkRequest(shard=GOOD, consumer=name, mark=types_pb2.Mark()),
        log_pb2.ResetMarkRequest(shard=GOOD, consumer=name, latest=True),
        log_pb2.RenewPinRequest(shard=GOOD, pin_id=name),
        log_pb2.ReadPinRequest(shard=GOOD, pin_id=name),
    ]


def method_of(request: Message) -> str:
    return str(request.DESCRIPTOR.name).removesuffix("Request")


NAMES = [
    invalid(f"{method_of(request)} with a name: {what}", method_of(request), request, "use 1 to 63 of a-z")
    for what, name in BAD_NAMES.items()
    for request in named(name)
]
MALFORMED = [
    row for method in ("Produce", "Subscribe", "CommitMark", "CreateTopic", "DeleteTopic") for row in malformed(method)
]
TABLE = [*WRITES, *READS, *MARKS, *PINS, *TOPICS, *NAMES, *MALFORMED]


async def prepare(calls: Calls) -> bytes:
    """Make the world that the table is about; the history that wrote it."""
    await calls.create_topic("good")
    await calls.create_topic("log", mode=2)
    stamp = log_pb2.Producer(producer_id=b"p", producer_epoch=5, number=1)
    written = await calls.put("good", {b"a": b"1", b"b": b"2"}, producer=stamp)
    mark = types_pb2.Mark(history_id=written.history_id, seq=2)
    await calls.CommitMark(log_pb2.CommitMarkRequest(shard=GOOD, consumer="c", mark=mark), timeout=TIMEOUT_S)
    for pin_id in ("pin", "expired"):
        request = log_pb2.CreatePinRequest(shard=GOOD, pin_id=pin_id, lease_ms=3_600_000)
        await calls.CreatePin(request, timeout=TIMEOUT_S)
    await calls.ReleasePin(log_pb2.ReleasePinRequest(shard=GOOD, pin_id="expired"), timeout=TIMEOUT_S)
    return written.history_id


def with_history(bad: Bad, history_id: bytes) -> bytes:
    """The row's request as bytes; marks of consumer `c` get the right history."""
    request = bad.request
    if isinstance(request, bytes):
        return request
    if isinstance(request, log_pb2.CommitMarkRequest) and request.mark.seq and not request.mark.history_id:
        filled = log_pb2.CommitMarkRequest()
        filled.CopyFrom(request)
        filled.mark.history_id = history_id
        return filled.SerializeToString()
    return request.SerializeToString()
