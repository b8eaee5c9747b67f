"""Topics: create, list, describe, alter, delete."""

from dataclasses import dataclass

from kayos.client.core.calls import Directory, call_any
from kayos.client.core.steps import Steps
from kayos.errors import InvalidArgument
from kayos.model.takeover import TakeoverRow
from kayos.model.topic import Mode, Retention, Topic, check_name
from kayos.wire.codec import mode_to_wire, topic_from_wire
from kayos.wire.v1 import cluster_pb2


@dataclass(frozen=True, slots=True)
class LearnerStatus:
    """A newcomer as the replica that feeds it sees it: close, it may be made syncing; ready, serving."""

    node: str
    is_close: bool
    is_ready: bool


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One shard as its node sees it; `problem` is empty when all is well. `durable` is what this replica knows of the
    others, by node; `learner` is there where a newcomer is fed."""

    topic: str
    shard: int
    epoch: int
    role: str
    sync: str
    high_seq: int
    durable_seq: int
    visible_seq: int
    purge_seq: int
    messages: int
    message_bytes: int
    keys: int
    tombstones: int
    retained: int
    retained_bytes: int
    marks: int
    producers: int
    pins: int
    file_bytes: int
    free_bytes: int
    takeover: tuple[TakeoverRow, ...]
    problem: str
    node: str
    incarnation: bytes
    following: str
    phase: str
    commit_point: int
    accepts_writes: bool
    durable: dict[str, int]
    learner: LearnerStatus | None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    topic: Topic
    shards: tuple[ShardStatus, ...]


@dataclass(frozen=True, slots=True)
class NodeStatus:
    node_id: str
    version: str
    address: str
    started_ms: int
    resident_bytes: int
    shards: tuple[ShardStatus, ...]


_PLAIN_FIELDS = tuple(
    name for name in ShardStatus.__dataclass_fields__ if name not in ("takeover", "durable", "learner")
)


def shard_status_from_wire(wire: cluster_pb2.ShardStatus) -> ShardStatus:
    rows = tuple(TakeoverRow(row.history_id, row.start_seq, row.epoch) for row in wire.takeover)
    learner = None
    if wire.HasField("learner"):
        learner = LearnerStatus(wire.learner.node, wire.learner.is_close, wire.learner.is_ready)
    return ShardStatus(
        takeover=rows,
        durable=dict(wire.durable),
        learner=learner,
        **{name: getattr(wire, name) for name in _PLAIN_FIELDS},
    )


def create(
    directory: Directory,
    name: str,
    *,
    shards: int,
    replicas: int,
    tails: int,
    min_durable: int,
    min_replicas: int,
    mode: str,
    max_age_ms: int | None,
    max_bytes: int | None,
    max_messages: int | None,
    tombstone_ms: int | None,
) -> Steps[tuple[Topic, bool]]:
    """The topic, and whether it is new; numbers that are 0 take the server's default."""
    check_name("topic", name)
    request = cluster_pb2.CreateTopicRequest(name=name, mode=mode_to_wire(parse_mode(mode)))
    numbers = {
        "shards": shards,
        "replicas": replicas,
        "tails": tails,
        "min_durable": min_durable,
        "min_replicas": min_replicas,
    }
    for field, number in numbers.items():
        check_number(field, number)
        setattr(request, field, number)
    retention = _retention(max_age_ms, max_bytes, max_messages, tombstone_ms)
    if retention:
        request.retention.tombstone_ms = Retention().tombstone_ms
        _set_numbers(request.retention, retention)
    response = yield from call_any(directory, "CreateTopic", request)
    return topic_from_wire(response.topic), response.created


def parse_mode(mode: str) -> Mode:
    try:
        return Mode(mode)
    except ValueError:
        raise InvalidArgument(f"mode {mode!r} is unknown: use 'compact' or 'log'") from None


def check_number(name: str, number: int, most: int = 2**32 - 1) -> None:
    if not 0 <= number <= most:
        raise InvalidArgument(f"{name} is {number}: give 0 to {most}")


def _retention(
    max_age_ms: int | None, max_bytes: int | None, max_messages: int | None, tombstone_ms: int | None
) -> dict[str, int]:
    """The settings that were given, by field."""
    given = {
        "max_age_ms": max_age_ms,
        "max_bytes": max_bytes,
        "max_messages": max_messages,
        "tombstone_ms": tombstone_ms,
    }
    return {field: number for field, number in given.items() if number is not None}


def _set_numbers(target: cluster_pb2.Retention | cluster_pb2.AlterTopicRequest, numbers: dict[str, int]) -> None:
    for field, number in numbers.items():
        check_number(field, number, 2**63 - 1)
        setattr(target, field, number)


def list_all(directory: Directory) -> Steps[list[Topic]]:
    response = yield from call_any(directory, "ListTopics", cluster_pb2.ListTopicsRequest())
    return [topic_from_wire(topic) for topic in response.topics]


def describe(directory: Directory, name: str) -> Steps[TopicDescription]:
    response = yield from call_any(directory, "DescribeTopic", cluster_pb2.DescribeTopicRequest(name=name))
    return TopicDescription(topic_from_wire(response.topic), tuple(map(shard_status_from_wire, response.shards)))


def alter(
    directory: Directory,
    name: str,
    *,
    max_age_ms: int | None,
    max_bytes: int | None,
    max_messages: int | None,
    tombstone_ms: int | None,
) -> Steps[Topic]:
    """Change the retention; what is None stays as it is, 0 means never."""
    request = cluster_pb2.AlterTopicRequest(name=name)
    _set_numbers(request, _retention(max_age_ms, max_bytes, max_messages, tombstone_ms))
    response = yield from call_any(directory, "AlterTopic", request)
    return topic_from_wire(response.topic)


def delete(directory: Directory, name: str) -> Steps[None]:
    yield from call_any(directory, "DeleteTopic", cluster_pb2.DeleteTopicRequest(name=name))
    directory.forget_view(name)


def status(directory: Directory) -> Steps[NodeStatus]:
    response = yield from call_any(directory, "GetStatus", cluster_pb2.GetStatusRequest())
    return NodeStatus(
        response.node_id,
        response.version,
        response.address,
        response.started_ms,
        response.resident_bytes,
        tuple(map(shard_status_from_wire, response.shards)),
    )
