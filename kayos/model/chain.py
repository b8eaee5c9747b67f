"""The chain of a shard as one epoch fixes it: who is in it, in which order, and who reads from whom.

    producer → head → … → last of the spine → tails → consumers

All members but the tails form the spine, each fed by the one before it; the last of the spine feeds every tail. A chain
of one is head and tail at once. A newcomer stands at the end and follows the last serving member: WAITING it catches
up and counts for nothing, SYNCING its upstream acknowledges only what the newcomer holds as well, so that it holds
all that was acknowledged when it becomes SERVING.

Invariants: an epoch names one chain for ever; survivors keep their order; a newcomer enters at the end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from kayos.errors import InvalidArgument


class MemberState(StrEnum):
    WAITING = "waiting"
    SYNCING = "syncing"
    SERVING = "serving"


class Role(StrEnum):
    """What a replica does in an epoch. ALONE is head and tail of a chain of one."""

    HEAD = "head"
    MIDDLE = "middle"
    TAIL = "tail"
    ALONE = "head+tail"
    LEARNER = "learner"
    NONE = "none"

    # Asked with every event, so they are plain attributes of each role.
    is_head: bool
    is_tail: bool

    def __init__(self, name: str) -> None:
        self.is_head = "head" in name
        self.is_tail = "tail" in name


@dataclass(frozen=True, slots=True)
class Member:
    """`incarnation` is the life of the replica that the place was given to; empty: to the first that claims it in
    this epoch (a static file cannot know)."""

    node: str
    incarnation: bytes = b""
    state: MemberState = MemberState.SERVING


@dataclass(frozen=True)
class ChainView:
    """`tails` counts the serving members that consumers read from; `min_durable` and `min_replicas` are the topic's."""

    epoch: int
    members: tuple[Member, ...]
    tails: int = 1
    min_durable: int = 1
    min_replicas: int = 1

    def check(self) -> None:
        names = [member.node for member in self.members]
        if self.epoch < 1:
            raise InvalidArgument(f"epoch is {self.epoch}: give 1 or more, higher with every change of the chain")
        if len(set(names)) != len(names):
            raise InvalidArgument(f"the chain {names} names a node twice: one node holds one replica")
        serving = [member.state is MemberState.SERVING for member in self.members]
        if not any(serving) or serving != sorted(serving, reverse=True):
            raise InvalidArgument(f"the chain {names} must begin with its serving members, then the newcomer")
        if serving.count(False) > 1:
            raise InvalidArgument(f"the chain {names} has several newcomers: add one at a time")
        if not 1 <= self.tails <= max(1, serving.count(True) - 1):
            raise InvalidArgument(
                f"tails is {self.tails} of {serving.count(True)} serving members: leave one to feed them"
            )

    @cached_property
    def serving(self) -> tuple[str, ...]:
        return tuple(member.node for member in self.members if member.state is MemberState.SERVING)

    @cached_property
    def spine(self) -> tuple[str, ...]:
        """The serving members that feed others, or the only one."""
        return self.serving[: -self.tails] if len(self.serving) > 1 else ()

    @cached_property
    def tail_nodes(self) -> tuple[str, ...]:
        return self.serving[len(self.spine) :]

    @property
    def head(self) -> str:
        return self.serving[0]

    @cached_property
    def learner(self) -> Member | None:
        last = self.members[-1] if self.members else None
        return None if last is None or last.state is MemberState.SERVING else last

    @cached_property
    def path_length(self) -> int:
        """Replicas that a message passes from the head to one tail: what `all` means."""
        return len(self.spine) + 1

    @cached_property
    def copies_to_commit(self) -> int:
        return min(self.min_durable, self.path_length)

    def find_member(self, node: str) -> Member | None:
        return self._by_name.get(node)

    def role_of(self, node: str) -> Role:
        return self._roles.get(node, Role.NONE)

    def upstream_of(self, node: str) -> str:
        """Whom a member follows; empty for the head and for strangers."""
        return self._upstreams.get(node, "")

    def downstreams_of(self, node: str) -> tuple[str, ...]:
        """Whom a member feeds, the newcomer included."""
        return self._downstreams.get(node, ())

    def subtree_of(self, node: str) -> frozenset[str]:
        """A member and all that it feeds, directly or not."""
        return self._subtrees.get(node) or frozenset({node})

    # A view is asked the same again and again, so each answer is worked out once.

    @cached_property
    def _by_name(self) -> dict[str, Member]:
        return {member.node: member for member in self.members}

    @cached_property
    def _roles(self) -> dict[str, Role]:
        if len(self.serving) == 1:
            roles = {self.serving[0]: Role.ALONE}
        else:
            roles = dict.fromkeys(self.spine, Role.MIDDLE) | dict.fromkeys(self.tail_nodes, Role.TAIL)
            roles[self.head] = Role.HEAD
        if self.learner is not None:
            roles[self.learner.node] = Role.LEARNER
        return roles

    @cached_property
    def _upstreams(self) -> dict[str, str]:
        upstreams = dict(zip(self.spine[1:], self.spine, strict=False))
        upstreams |= {node: self.spine[-1] for node in self.tail_nodes if self.spine}
        if self.learner is not None:
            upstreams[self.learner.node] = self.serving[-1]
        return upstreams

    @cached_property
    def _downstreams(self) -> dict[str, tuple[str, ...]]:
        fed: dict[str, tuple[str, ...]] = {}
        for node, upstream in self._upstreams.items():
            fed[upstream] = (*fed.get(upstream, ()), node)
        return fed

    @cached_property
    def _subtrees(self) -> dict[str, frozenset[str]]:
        """From the end of the chain to its head: what a member feeds stands behind it."""
        subtrees: dict[str, frozenset[str]] = {}
        for member in reversed(self.members):
            fed = (subtrees[node] for node in self.downstreams_of(member.node))
            subtrees[member.node] = frozenset({member.node}).union(*fed)
        return subtrees

    # What durable sequences mean

    def count_copies(self, durable: Mapping[str, int], seq: int) -> int:
        return sum(durable.get(node, 0) >= seq for node in self.serving)

    def is_on_all(self, durable: Mapping[str, int], seq: int) -> bool:
        """Every replica up to a tail holds it."""
        if any(durable.get(node, 0) < seq for node in self.spine):
            return False
        return any(durable.get(node, 0) >= seq for node in self.tail_nodes)

    def find_commit_point(self, durable: Mapping[str, int]) -> int:
        """The largest sequence that enough replicas hold durably, a tail among them."""
        tail = max([durable.get(node, 0) for node in self.tail_nodes])
        if not tail:
            return 0
        held = sorted([durable.get(node, 0) for node in self.serving])
        return min(held[-self.copies_to_commit], tail)
