"""Between the schema and a shard's chain."""

from collections.abc import Mapping

from kayos.errors import InvalidArgument
from kayos.model.chain import ChainView, Member, MemberState
from kayos.wire.v1 import cluster_pb2

_STATES = {
    MemberState.WAITING: cluster_pb2.MEMBER_STATE_WAITING,
    MemberState.SYNCING: cluster_pb2.MEMBER_STATE_SYNCING,
    MemberState.SERVING: cluster_pb2.MEMBER_STATE_SERVING,
}
_STATES_BACK: dict[int, MemberState] = {value: state for state, value in _STATES.items()}


def shard_view_to_wire(shard: int, view: ChainView, addresses: Mapping[str, str]) -> cluster_pb2.ShardView:
    return cluster_pb2.ShardView(
        shard=shard,
        epoch=view.epoch,
        chain=[addresses[node] for node in view.serving],
        tails=[addresses[node] for node in view.tail_nodes],
        members=[
            cluster_pb2.ChainMember(
                node=member.node,
                address=addresses[member.node],
                incarnation=member.incarnation,
                state=_STATES[member.state],
            )
            for member in view.members
        ],
    )


def member_from_wire(wire: cluster_pb2.ChainMember) -> Member:
    if wire.state not in _STATES_BACK:
        raise InvalidArgument(f"member {wire.node!r} is in the unknown state {wire.state}: use the node's version")
    return Member(wire.node, wire.incarnation, _STATES_BACK[wire.state])
