"""The chain of a shard: what the view says, and what every member says of itself."""

from dataclasses import dataclass

from kayos.client.core.calls import Directory, call_any
from kayos.client.core.steps import Invoke, Steps
from kayos.client.core.topics import ShardStatus, shard_status_from_wire
from kayos.errors import KayosError, ShardNotFound
from kayos.limits import MEMBER_ANSWER_S
from kayos.model.chain import Member
from kayos.model.topic import Topic, check_name
from kayos.wire.chain_codec import member_from_wire
from kayos.wire.codec import topic_from_wire
from kayos.wire.methods import CLUSTER_METHODS
from kayos.wire.v1 import cluster_pb2


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """`status` is None when the node did not answer or does not hold the shard; `failure` then says why."""

    member: Member
    address: str
    status: ShardStatus | None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class ChainStatus:
    """The members in the order of the chain, a newcomer last."""

    topic: Topic
    shard: int
    epoch: int
    members: tuple[MemberStatus, ...]


def chain_status(directory: Directory, topic: str, shard: int) -> Steps[ChainStatus]:
    """Members that do not answer are part of the answer."""
    check_name("topic", topic)
    response = yield from call_any(directory, "GetView", cluster_pb2.GetViewRequest(topic=topic))
    view = next((view for view in response.shards if view.shard == shard), None)
    if view is None:
        raise ShardNotFound(f"topic {topic!r} has no shard {shard}: its shards are 0 to {response.topic.shards - 1}")
    members = []
    for wire in view.members:
        members.append((yield from _ask_member(directory, topic, shard, wire)))
    return ChainStatus(topic_from_wire(response.topic), shard, view.epoch, tuple(members))


def _ask_member(directory: Directory, topic: str, shard: int, wire: cluster_pb2.ChainMember) -> Steps[MemberStatus]:
    member = member_from_wire(wire)
    request = cluster_pb2.DescribeTopicRequest(name=topic)
    timeout_s = min(MEMBER_ANSWER_S, directory.settings.timeout_s)
    try:
        response = yield Invoke(wire.address, CLUSTER_METHODS["DescribeTopic"], request, timeout_s)
    except KayosError as error:
        return MemberStatus(member, wire.address, None, f"no answer: {error.message}")
    for status in response.shards:
        if status.shard == shard:
            return MemberStatus(member, wire.address, shard_status_from_wire(status))
    return MemberStatus(member, wire.address, None, "the node does not hold the shard")
