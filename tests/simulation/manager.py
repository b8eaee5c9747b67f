"""The manager's twin: what is stored in ZooKeeper, and a planner that acts on what was observed some time ago.

Every change is compare-and-set on the epoch. A round observes all nodes, then acts later; rounds overlap, as those of
an old and a new manager would. A view reaches each node in its own time, late ones perhaps out of order.

A chain of some epoch is SETTLED once all its members hold, durably and proven in that epoch, what its head had when it
began. Until then what was committed before may be missing from the new members' disks, so the planner keeps the chains
since the last settled one (`chains`) and asks of each of them that what remains holds all that was committed in it:

- a living member of its spine, or its only tail, has all of it, in memory at least: the first survivor goes on;
- otherwise enough members with their disks must be there that no commit can be missing from all of them; then the one
  with the newest log leads: the epoch of its last takeover, then its end. (Its stored epoch tells only what it knew.)
"""

from typing import TYPE_CHECKING, NamedTuple

from kayos.model.chain import ChainView, Member, MemberState
from kayos.replica.events import ViewChanged
from kayos.replica.follower import FollowerState
from kayos.replica.report import Report

if TYPE_CHECKING:
    from tests.simulation.node import Node
    from tests.simulation.world import World


class Chain(NamedTuple):
    """The serving members of one epoch, with the lives and disks that the places were given to."""

    serving: tuple[str, ...]
    spine: tuple[str, ...]
    tails: tuple[str, ...]
    copies: int
    lives: dict[str, bytes]
    disks: dict[str, bytes]


class Seen(NamedTuple):
    """One node as it was observed, with its report if there is a question that it answers."""

    epoch: int
    incarnation: bytes
    disk: bytes
    is_whole: bool
    is_suspect: bool
    report: Report | None
    log_position: tuple[int, int]


Observation = dict[str, Seen]
WEDGED = FollowerState.WEDGED


class Manager:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._wanted = world.settings
        self.view = ChainView(0, ())
        self.chains: list[Chain] = []
        self._settling = (0, 0)
        self._fenced_epoch = 0
        # Of rounds: those of an earlier one end.
        self._series = 0

    def begin(self) -> None:
        names = list(self._world.nodes)[: self._wanted.replicas]
        members = tuple(Member(name, self._world.nodes[name].replica.incarnation) for name in names)
        seen = {name: self._look_at(self._world.nodes[name]) for name in names}
        self.publish(members, seen, tails=self._limit_tails(self._wanted.tails, len(members)))
        self._world.later(2.0, None, self.observe, self._series)

    # Rounds

    def observe(self, series: int) -> None:
        world = self._world
        if series != self._series:
            return
        observation = {name: self._look_at(node) for name, node in world.nodes.items() if node.is_up}
        world.later(0.2 + world.random() * world.reaction, None, self._act, (self.view.epoch, observation))
        world.later(world.round * (0.5 + world.random()), None, self.observe, series)

    def hurry(self) -> None:
        """The next round begins now."""
        self._series += 1
        self.observe(self._series)

    def _look_at(self, node: "Node") -> Seen:
        replica, state = node.replica, node.kept_state
        rows, epoch = state.takeover.rows, replica.view.epoch
        is_wedged = replica.follower.state is WEDGED and epoch == self.view.epoch
        if is_wedged and not self._world.was_forced:
            self._world.fail(f"wedge: nothing committed is lost, but {node.name} says {replica.problem}")
        is_suspect = node.suspected_until > self._world.now or replica.is_broken or is_wedged or node.is_paused
        report = replica.report() if self._is_asked(node.name) else None
        position = self.position_of(rows[-1].epoch if rows else 0, state.epoch, state.high_seq)
        return Seen(epoch, replica.incarnation, state.incarnation, node.is_whole, is_suspect, report, position)

    def _is_asked(self, name: str) -> bool:
        """The head, until its chain has settled, and the last serving member of the newcomer that it feeds."""
        view = self.view
        if len(self.chains) > 1 and name == view.head:
            return True
        return view.learner is not None and name == view.serving[-1]

    def position_of(self, log_epoch: int, stored_epoch: int, seq: int) -> tuple[int, int]:
        return log_epoch, seq

    def _act(self, round_: tuple[int, Observation]) -> None:
        epoch, seen = round_
        if epoch != self.view.epoch:
            return
        self._maybe_settle(seen)
        alive = [member.node for member in self.view.members if self._is_alive(member, seen)]
        survivors = [name for name in self.view.serving if name in alive]
        learner = self.view.learner
        if len(survivors) < len(self.view.serving):
            self._plan_removal(survivors, seen)
        elif learner is not None and learner.node not in alive:
            self.publish(self.view.members[:-1], seen, tails=self.view.tails)
        elif learner is not None:
            self._plan_learner(learner, seen)
        elif len(survivors) < self._world.wanted_length and len(self.chains) == 1:
            # A newcomer works on its disk in place, so no chain that counts may still need that disk.
            self._plan_newcomer(seen)

    def _is_alive(self, member: Member, seen: Observation) -> bool:
        found = seen.get(member.node)
        return found is not None and not found.is_suspect and found.incarnation == member.incarnation

    def publish(self, members: tuple[Member, ...], seen: Observation, *, tails: int, is_fence: bool = False) -> bool:
        world, wanted = self._world, self._wanted
        before = self.view
        disks = {member.node: self._disk_of(member, seen) for member in members}
        is_lost = any(world.nodes[name].store.state.incarnation != disk for name, disk in disks.items())
        if is_lost and not is_fence:
            return False  # It has lost its disk meanwhile: one loss more than the promise covers.
        view = ChainView(before.epoch + 1, members, tails, wanted.min_durable, wanted.min_replicas)
        view.check()
        self.view = view
        lives = {member.node: member.incarnation for member in members}
        self.chains.append(Chain(view.serving, view.spine, view.tail_nodes, view.copies_to_commit, lives, disks))
        for name in before.serving:
            if name not in view.serving:
                world.nodes[name].losses += 1
        if world.story is not None:
            shown = " ".join(f"{member.node}:{member.state}" for member in members)
            world.note(None, "publishes", f"epoch {view.epoch}: {shown}, tails {tails}")
        self._spread(view)
        return True

    def _spread(self, view: ChainView) -> None:
        """To each node in its own time; one that stands outside learns of it by itself when all is calm."""
        world, event = self._world, ViewChanged(view)
        for name, node in world.nodes.items():
            if node.is_up and not (world.is_healing and view.find_member(name) is None):
                is_late = world.random() < world.weights.late_views
                world.later(0.1 + world.random() * (30.0 if is_late else world.reaction), node, node.feed, event)

    def _disk_of(self, member: Member, seen: Observation) -> bytes:
        """A place that is kept is kept for the disk that it was given to."""
        if self.chains and self.chains[-1].lives.get(member.node) == member.incarnation:
            return self.chains[-1].disks[member.node]
        return seen[member.node].disk

    def _limit_tails(self, tails: int, serving: int) -> int:
        return max(1, min(tails, serving - 1))

    # Settling

    def _maybe_settle(self, seen: Observation) -> None:
        head = seen.get(self.view.head)
        if len(self.chains) == 1 or head is None:
            return
        report = head.report
        if (
            report is None
            or report.epoch != self.view.epoch
            or report.phase != "serving"
            or head.incarnation != self._head_life()
        ):
            return
        epoch, mark = self._settling
        if epoch != self.view.epoch:
            self._settling = (self.view.epoch, report.high_seq)
        elif all(report.durable.get(name, 0) >= mark for name in self.view.serving):
            self.chains = self.chains[-1:]

    def _head_life(self) -> bytes:
        return self.view.members[0].incarnation

    # Removing

    def _plan_removal(self, survivors: list[str], seen: Observation) -> None:
        if survivors and all(self._leads(survivors[0], chain) for chain in self.chains):
            self._shorten(self.order(survivors), seen)
            return
        lost = [name for name in self.view.serving if name not in survivors]
        if any(name in seen and seen[name].incarnation == self.chains[-1].lives[name] for name in lost):
            return  # It may be alive and go on with its downstreams: nobody can say what is committed.
        if survivors and self._fenced_epoch != self.view.epoch:
            # Nothing is committed in an epoch whose head is gone: what survivors report of it is final.
            self.publish(self.view.members, seen, tails=self.view.tails, is_fence=True)
            self._fenced_epoch = self.view.epoch
            return
        if any(seen[name].epoch != self.view.epoch for name in survivors):
            return
        self._start_again(survivors, seen)

    def _leads(self, name: str, chain: Chain) -> bool:
        """Whether a living member has all that was committed in that chain."""
        if chain.lives.get(name) != self.chains[-1].lives[name]:
            return False
        return name in chain.spine or chain.tails == (name,)

    def order(self, survivors: list[str]) -> list[str]:
        """Survivors keep their order."""
        return survivors

    def _shorten(self, survivors: list[str], seen: Observation) -> None:
        kept = [name for name in survivors if name in self.view.tail_nodes]
        learner = self.view.learner
        members = [Member(name, self.chains[-1].lives[name]) for name in survivors]
        if learner is not None and self._world.random() < 0.5:
            members.append(learner)
        self.publish(tuple(members), seen, tails=self._limit_tails(len(kept), len(survivors)))

    def _start_again(self, survivors: list[str], seen: Observation) -> None:
        """Nobody alive is sure to have all: enough disks together are."""
        for chain in self.needed_chains():
            there = [name for name in chain.serving if self._has_disk(name, chain, seen)]
            if len(there) <= len(chain.serving) - chain.copies:
                return
        names = [name for name in seen if any(self._has_disk(name, chain, seen) for chain in self.chains)]
        best = max(names, key=lambda name: seen[name].log_position)
        rest = [name for name in survivors if name != best] if best in survivors else []
        members = [Member(name, seen[name].incarnation) for name in [best, *rest]]
        # Its disk alone holds all that was ever committed.
        alone = Chain((best,), (), (best,), 1, {best: seen[best].incarnation}, {best: seen[best].disk})
        before, self.chains = self.chains, [alone]
        if not self.publish(tuple(members), seen, tails=self._limit_tails(self._wanted.tails, len(members))):
            self.chains = before

    def needed_chains(self) -> list[Chain]:
        return self.chains

    def _has_disk(self, name: str, chain: Chain, seen: Observation) -> bool:
        found = seen.get(name)
        if found is None or found.is_suspect or not found.is_whole:
            return False
        return chain.disks.get(name) == found.disk

    def force(self, node: "Node") -> None:
        """`force-unclean`: this copy is the shard from now on, whatever others hold."""
        seen = {node.name: self._look_at(node)}
        self.chains = []
        self.publish((Member(node.name, node.replica.incarnation),), seen, tails=1)

    # Adding

    def _plan_newcomer(self, seen: Observation) -> None:
        spare = [name for name in seen if name not in self.view.serving and not seen[name].is_suspect]
        if spare:
            name = spare[int(self._world.random() * len(spare))]
            newcomer = Member(name, seen[name].incarnation, MemberState.WAITING)
            self.publish((*self.view.members, newcomer), seen, tails=self.view.tails)

    def _plan_learner(self, learner: Member, seen: Observation) -> None:
        report = seen[self.view.serving[-1]].report
        if report is None or report.epoch != self.view.epoch:
            return
        rest = self.view.members[:-1]
        if self.may_promote(learner, report):
            tails = self.view.tails
            if tails < self._wanted.tails:
                tails = self._limit_tails(tails + 1, len(rest) + 1)
            self.publish((*rest, Member(learner.node, learner.incarnation)), seen, tails=tails)
        elif learner.state is MemberState.WAITING and report.learner_is_close:
            syncing = Member(learner.node, learner.incarnation, MemberState.SYNCING)
            self.publish((*rest, syncing), seen, tails=self.view.tails)

    def may_promote(self, learner: Member, report: Report) -> bool:
        return report.learner_is_ready

    # What the world may destroy

    def may_wipe(self, name: str) -> bool:
        """Whether every chain that counts stays above what its promise covers without this disk."""
        for chain in self.chains:
            gone = [one for one in chain.serving if self._world.nodes[one].store.state.incarnation != chain.disks[one]]
            if name in chain.serving and name not in gone and len(gone) + 1 >= chain.copies:
                return False
        return True
