"""Marks that the server holds: commit, get, list, set, reset. All of a topic's shards at once, by shard."""

from collections.abc import Mapping
from dataclasses import dataclass

from kayos.client.core.calls import Directory, call_head, get_view
from kayos.client.core.steps import Steps
from kayos.errors import InvalidArgument, MarkNotFound
from kayos.model.mark import Mark
from kayos.model.topic import check_name
from kayos.wire.codec import mark_from_wire, mark_to_wire
from kayos.wire.v1 import log_pb2, types_pb2


@dataclass(frozen=True, slots=True)
class MarkInfo:
    """A consumer's mark in one shard and how far the log has gone; `message_seq` is its newest message."""

    topic: str
    shard: int
    consumer: str
    mark: Mark
    high_seq: int
    message_seq: int

    @property
    def lag(self) -> int:
        """Sequences between the mark and the newest message, 0 for a consumer that has all; gaps make it an upper
        bound of messages."""
        return max(0, self.message_seq - self.mark.seq)


@dataclass(frozen=True, slots=True)
class MarkChange:
    shard: int
    before: Mark
    after: Mark


def commit(directory: Directory, topic: str, shard: int, consumer: str | None, mark: Mark) -> Steps[None]:
    """Move the consumer's mark forward."""
    if not consumer:
        raise InvalidArgument("there is no consumer to commit for: give consumer= when you begin to consume")
    name = consumer

    def build(ref: log_pb2.ShardRef) -> log_pb2.CommitMarkRequest:
        return log_pb2.CommitMarkRequest(shard=ref, consumer=name, mark=mark_to_wire(mark))

    yield from call_head(directory, "CommitMark", topic, shard, build)


def set_all(directory: Directory, topic: str, consumer: str, marks: Mapping[int, Mark]) -> Steps[None]:
    """Store marks kept elsewhere, by shard; like a commit they only move forward."""
    check_name("consumer", consumer)
    for shard, mark in sorted(marks.items()):
        yield from commit(directory, topic, shard, consumer, mark)


def get(directory: Directory, topic: str, consumer: str) -> Steps[dict[int, MarkInfo]]:
    """The consumer's marks by shard; shards without one are left out, MarkNotFound if there is none at all."""
    check_name("consumer", consumer)
    view = yield from get_view(directory, topic)
    found: dict[int, MarkInfo] = {}
    missing: MarkNotFound | None = None
    for shard in range(view.shards):

        def build(ref: log_pb2.ShardRef) -> log_pb2.GetMarkRequest:
            return log_pb2.GetMarkRequest(shard=ref, consumer=consumer)

        try:
            response = yield from call_head(directory, "GetMark", topic, shard, build)
        except MarkNotFound as error:
            missing = error
            continue
        found[shard] = info_from_wire(topic, shard, consumer, response.mark, response)
    if missing is not None and not found:
        raise missing
    return found


def info_from_wire(
    topic: str,
    shard: int,
    consumer: str,
    mark: types_pb2.Mark,
    log: log_pb2.GetMarkResponse | log_pb2.ListMarksResponse,
) -> MarkInfo:
    return MarkInfo(topic, shard, consumer, mark_from_wire(mark), log.high_seq, log.message_seq)


def list_all(directory: Directory, topic: str) -> Steps[list[MarkInfo]]:
    """Every mark of the topic, by consumer and shard."""
    view = yield from get_view(directory, topic)
    marks: list[MarkInfo] = []
    for shard in range(view.shards):
        response = yield from call_head(
            directory, "ListMarks", topic, shard, lambda ref: log_pb2.ListMarksRequest(shard=ref)
        )
        for entry in response.marks:
            marks.append(info_from_wire(topic, shard, entry.consumer, entry.mark, response))
    return sorted(marks, key=lambda info: (info.consumer, info.shard))


def reset(
    directory: Directory,
    topic: str,
    consumer: str,
    *,
    seq: int | None,
    time_ms: int | None,
    latest: bool,
    drop: bool,
    shard: int | None,
    dry_run: bool,
) -> Steps[list[MarkChange]]:
    """Move marks anywhere, back too: an operator's act. Exactly one target; one shard or all of them."""
    check_name("consumer", consumer)
    if (seq is not None) + (time_ms is not None) + latest + drop != 1:
        raise InvalidArgument("give exactly one of seq, time_ms, latest and drop")
    template = log_pb2.ResetMarkRequest(consumer=consumer, dry_run=dry_run)
    if seq is not None:
        template.seq = seq
    elif time_ms is not None:
        template.time_ms = time_ms
    elif latest:
        template.latest = True
    else:
        template.drop = True
    view = yield from get_view(directory, topic)
    changes = []
    for number in range(view.shards) if shard is None else (shard,):

        def build(ref: log_pb2.ShardRef) -> log_pb2.ResetMarkRequest:
            request = log_pb2.ResetMarkRequest(shard=ref)
            request.MergeFrom(template)
            return request

        response = yield from call_head(directory, "ResetMark", topic, number, build)
        changes.append(MarkChange(number, mark_from_wire(response.before), mark_from_wire(response.after)))
    return changes
