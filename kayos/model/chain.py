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

    @property
    def is_head(self) -> bool:
        return self in (Role.HEAD, Role.ALONE)

    @property
    def is_tail(self) -> bool:
        return self in (Role.TAIL, Role.ALONE)


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
        last = self.members[-1]
        return None if last.state is MemberState.SERVING else last

    @property
    def path_length(self) -> int:
        """Replicas that a message passes from the head to one tail: what `all` means."""
        return len(self.spine) + 1

    @property
    def copies_to_commit(self) -> int:
        return min(self.min_durable, self.path_length)

    def find_member(self, node: str) -> Member | None:
        for member in self.members:
            if member.node == node:
                return member
        return None

    def role_of(self, node: str) -> Role:
        member = self.find_member(node)
        if member is None:
            return Role.NONE
        if member.state is not MemberState.SERVING:
            return Role.LEARNER
        if len(self.serving) == 1:
            return Role.ALONE
        if node == self.head:
            return Role.HEAD
        return Role.TAIL if node in self.tail_nodes else Role.MIDDLE

    def upstream_of(self, node: str) -> str:
        """Whom a member follows; empty for the head and for strangers."""
        role = self.role_of(node)
        if role is Role.LEARNER:
            return self.serving[-1]
        if role is Role.TAIL:
            return self.spine[-1]
        if role is Role.MIDDLE:
            return self.spine[self.spine.index(node) - 1]
        return ""

    def downstreams_of(self, node: str) -> tuple[str, ...]:
        """Whom a member feeds, the newcomer included."""
        return tuple(member.node for member in self.members if self.upstream_of(member.node) == node)

    def subtree_of(self, node: str) -> frozenset[str]:
        """A member and all that it feeds, directly or not."""
        return frozenset({node}).union(*(self.subtree_of(downstream) for downstream in self.downstreams_of(node)))

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
        held = sorted((durable.get(node, 0) for node in self.serving), reverse=True)
        tail = max(durable.get(node, 0) for node in self.tail_nodes)
        return min(held[self.copies_to_commit - 1], tail)
