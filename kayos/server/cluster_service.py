"""The service of operators and of clients that look for their way: topics, views, status, housekeeping."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

import kayos
from kayos.cluster.coordinator import Coordinator
from kayos.cluster.turns import Turns
from kayos.errors import InvalidArgument, KayosError, OutOfRange, WrongMode
from kayos.model.control import Trim
from kayos.model.topic import Mode, Retention, Topic, check_name
from kayos.server.gateway import check_number
from kayos.server.hosting import HostedTopic, Hosting
from kayos.server.maintenance import Maintenance
from kayos.server.rpc import Call
from kayos.server.shard import Shard
from kayos.storage.interface import Usage
from kayos.wire.chain_codec import shard_view_to_wire
from kayos.wire.codec import mode_from_wire, retention_from_wire, takeover_to_wire, topic_to_wire
from kayos.wire.v1 import cluster_pb2


class ClusterService:
    def __init__(
        self, coordinator: Coordinator, hosting: Hosting, maintenance: Maintenance, *, node_id: str, address: str
    ) -> None:
        self._coordinator = coordinator
        self._hosting = hosting
        self._maintenance = maintenance
        self._node_id = node_id
        self._address = address
        # The list of topics and the shards that are open must never tell different stories.
        self._turns = Turns()
        self._started_ms = int(time.time() * 1000)

    # Topics

    async def create_topic(
        self, request: cluster_pb2.CreateTopicRequest, call: Call
    ) -> cluster_pb2.CreateTopicResponse:
        wanted = topic_from_request(request)
        wanted.check()
        topic, created = await self._turns.take(self._create_and_host(wanted))
        return cluster_pb2.CreateTopicResponse(topic=topic_to_wire(topic), created=created)

    async def list_topics(self, request: cluster_pb2.ListTopicsRequest, call: Call) -> cluster_pb2.ListTopicsResponse:
        topics = await self._coordinator.list_topics()
        return cluster_pb2.ListTopicsResponse(topics=map(topic_to_wire, topics))

    async def describe_topic(
        self, request: cluster_pb2.DescribeTopicRequest, call: Call
    ) -> cluster_pb2.DescribeTopicResponse:
        hosted = self._hosting.find_topic(request.name)
        shards = await self._describe_shards(hosted)
        return cluster_pb2.DescribeTopicResponse(topic=topic_to_wire(hosted.topic), shards=shards)

    async def alter_topic(self, request: cluster_pb2.AlterTopicRequest, call: Call) -> cluster_pb2.AlterTopicResponse:
        check_name("topic", request.name)
        names = ("max_age_ms", "max_bytes", "max_messages", "tombstone_ms")
        changes = {name: getattr(request, name) for name in names if request.HasField(name)}
        if not changes:
            raise InvalidArgument(f"the request changes nothing: give one of {', '.join(names)}")
        topic = await self._turns.take(self._alter_and_tell(request.name, changes))
        return cluster_pb2.AlterTopicResponse(topic=topic_to_wire(topic))

    async def delete_topic(
        self, request: cluster_pb2.DeleteTopicRequest, call: Call
    ) -> cluster_pb2.DeleteTopicResponse:
        check_name("topic", request.name)
        await self._turns.take(self._delete_and_unhost(request.name))
        return cluster_pb2.DeleteTopicResponse()

    async def _create_and_host(self, wanted: Topic) -> tuple[Topic, bool]:
        topic, created = await self._coordinator.create_topic(wanted)
        failed = await self._hosting.host(topic)
        if created and failed:
            # A topic that cannot hold data (a full disk) is not created at all.
            await self._delete_and_unhost(topic.name)
            raise next(iter(failed.values()))
        return topic, created

    async def _alter_and_tell(self, name: str, changes: Mapping[str, int]) -> Topic:
        topic = await self._coordinator.alter_topic(name, changes)
        self._hosting.change(topic)
        return topic

    async def _delete_and_unhost(self, name: str) -> None:
        topic = await self._coordinator.delete_topic(name)
        await self._hosting.unhost(topic)

    # Looking

    async def get_view(self, request: cluster_pb2.GetViewRequest, call: Call) -> cluster_pb2.GetViewResponse:
        check_name("topic", request.topic)
        topic = await self._coordinator.find_topic(request.topic)
        views = [await self._coordinator.find_view(topic, index) for index in range(topic.shards)]
        shards = [shard_view_to_wire(view.shard, view.chain_view, view.addresses) for view in views]
        return cluster_pb2.GetViewResponse(topic=topic_to_wire(topic), shards=shards)

    async def get_status(self, request: cluster_pb2.GetStatusRequest, call: Call) -> cluster_pb2.GetStatusResponse:
        shards = [status for hosted in self._hosting.topics() for status in await self._describe_shards(hosted)]
        return cluster_pb2.GetStatusResponse(
            node_id=self._node_id,
            version=kayos.__version__,
            address=self._address,
            started_ms=self._started_ms,
            shards=shards,
            resident_bytes=resident_bytes(),
        )

    async def _describe_shards(self, hosted: HostedTopic) -> list[cluster_pb2.ShardStatus]:
        found = []
        for index in range(hosted.topic.shards):
            shard = hosted.shards.get(index)
            if shard is not None:
                found.append(await describe_shard(shard))
            elif (failure := hosted.failed.get(index)) is not None:
                found.append(cluster_pb2.ShardStatus(topic=hosted.topic.name, shard=index, problem=failure.message))
        return found

    # Housekeeping

    async def compact_shard(
        self, request: cluster_pb2.CompactShardRequest, call: Call
    ) -> cluster_pb2.CompactShardResponse:
        shard = self._hosting.find_shard(request.topic, request.shard, 0)
        bytes_before, bytes_after = await self._maintenance.compact(shard)
        return cluster_pb2.CompactShardResponse(bytes_before=bytes_before, bytes_after=bytes_after)

    async def trim_shard(self, request: cluster_pb2.TrimShardRequest, call: Call) -> cluster_pb2.TrimShardResponse:
        shard = self._hosting.find_shard(request.topic, request.shard, 0)
        if shard.topic.mode is not Mode.LOG:
            raise WrongMode(f"topic {request.topic!r} is of mode 'compact': trimming needs mode 'log'")
        through_seq = check_number("through_seq", request.through_seq, lowest=1)
        if through_seq > shard.state.high_seq:
            raise OutOfRange(
                f"through_seq {through_seq} is above the log's end, {shard.state.high_seq}",
                high_seq=shard.state.high_seq,
            )
        await shard.control(Trim(through_seq))
        return cluster_pb2.TrimShardResponse(through_seq=shard.state.floors.trim_seq)


def topic_from_request(request: cluster_pb2.CreateTopicRequest) -> Topic:
    """Numbers that are 0 take the default; `min_durable` all replicas, `min_replicas` more than half."""
    replicas = request.replicas or 1
    return Topic(
        name=request.name,
        topic_id="",
        shards=request.shards or 1,
        replicas=replicas,
        tails=request.tails or 1,
        min_durable=request.min_durable or replicas,
        min_replicas=request.min_replicas or replicas // 2 + 1,
        mode=mode_from_wire(request.mode),
        retention=retention_from_wire(request.retention) if request.HasField("retention") else Retention(),
    )


async def describe_shard(shard: Shard) -> cluster_pb2.ShardStatus:
    state, report = shard.state, shard.report()
    status = cluster_pb2.ShardStatus(
        topic=shard.topic.name,
        shard=shard.index,
        epoch=shard.epoch,
        role=report.role,
        high_seq=max(report.high_seq, state.high_seq),
        durable_seq=state.high_seq,
        visible_seq=min(report.commit_point, state.high_seq),
        purge_seq=state.floors.reader_seq,
        sync=state.sync.phase,
        takeover=takeover_to_wire(state.takeover),
        problem=shard.problem,
        node=shard.place.node,
        incarnation=state.incarnation,
        following=report.following,
        phase=report.phase,
        commit_point=report.commit_point,
        durable=report.durable,
        accepts_writes=shard.accepts_writes,
    )
    if report.learner:
        status.learner.node = report.learner
        status.learner.is_close = report.learner_is_close
        status.learner.is_ready = report.learner_is_ready
    try:
        usage = await shard.read(shard.store.usage)
    except KayosError as error:
        status.problem = status.problem or error.message
        return status
    fill_usage(status, usage)
    return status


def fill_usage(status: cluster_pb2.ShardStatus, usage: Usage) -> None:
    for name in (
        "messages",
        "message_bytes",
        "keys",
        "tombstones",
        "retained",
        "retained_bytes",
        "marks",
        "producers",
        "pins",
        "file_bytes",
        "free_bytes",
    ):
        setattr(status, name, getattr(usage, name))


def resident_bytes() -> int:
    """Of this process; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
