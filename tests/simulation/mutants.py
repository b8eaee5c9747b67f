"""The core, the shell or the manager with one rule taken away: the simulator must notice each.

A mutant is a patch of a few functions, put in place for the time of a `with` and taken back after it. Each comes with
the profile under which its fault has consequences, and the most schedules that may pass before one is found; the
correct core must pass the same ones.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import kayos.stream.greeting
from kayos.model.chain import Member
from kayos.model.sync import READY, SyncState
from kayos.model.takeover import TakeoverTable
from kayos.model.topic import Mode
from kayos.model.write import Batch
from kayos.replica.effects import AdoptTable, Apply, ApplyRollback
from kayos.replica.events import Failed, FromDownstream, Sequenced, Trouble
from kayos.replica.feeder import Feeder
from kayos.replica.follower import Follower, FollowerState
from kayos.replica.machine import _HANDLERS, Replica
from kayos.replica.report import Report
from kayos.storage.memory import MemoryStore
from kayos.stream.messages import Continue, Hello, Sent
from kayos.stream.window import Window
from tests.simulation.manager import Manager
from tests.simulation.node import Node
from tests.simulation.weights import SWARM, Profile

# (class, module or dispatch table; name; what stands there instead)
Patch = tuple[Any, Any, Any]


@dataclass(frozen=True)
class Mutant:
    name: str
    patches: Callable[[], list[Patch]]
    profile: Profile = SWARM
    seed: int = 0
    schedules_max: int = 2_000
    note: str = field(default="")


@contextmanager
def put_in_place(mutant: Mutant | None) -> Iterator[None]:
    patches = mutant.patches() if mutant is not None else []
    kept = [(owner, name, _namespace(owner)[name]) for owner, name, _ in patches]
    for owner, name, value in patches:
        _set(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in kept:
            _set(owner, name, value)


def _namespace(owner: Any) -> Any:
    return owner if isinstance(owner, dict) else owner.__dict__


def _set(owner: Any, name: Any, value: Any) -> None:
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)


# Acknowledging and showing


def acknowledge_before_fsync() -> list[Patch]:
    take_batch, on_sequenced = Follower._take_batch, Replica._on_sequenced

    def eager_take(self: Follower, message: Sent) -> None:
        take_batch(self, message)
        eager_note(self._replica)

    def eager_sequenced(self: Replica, event: Sequenced) -> None:
        on_sequenced(self, event)
        eager_note(self)

    def eager_note(replica: Replica) -> None:
        if replica.is_established:
            replica.ledger.note(replica.node, replica.accepted_seq)
            replica.spread_news()

    return [(Follower, "_take_batch", eager_take), (_HANDLERS, Sequenced, eager_sequenced)]


def no_gate() -> list[Patch]:
    return [(Node, "may_deliver", lambda self, seq: True)]


def gate_by_bare_sequence() -> list[Patch]:
    """A view that was opened in one history is shown when another one has committed its sequence."""
    return [(Node, "stands", lambda self, view: True)]


def wait_by_bare_sequence() -> list[Patch]:
    return [(Replica, "holds", lambda self, history_id, seq: seq <= self.accepted_seq)]


# Taking what does not belong


def no_previous_sequence() -> list[Patch]:
    apply, add = MemoryStore.apply, Window.add

    def trusting_apply(self: MemoryStore, batches: list[Batch], *, commit_point: int = 0) -> None:
        for batch in batches:
            apply(self, [replace(batch, previous_seq=self.state.high_seq)], commit_point=commit_point)

    def trusting_add(self: Window, batch: Batch, *, durable_seq: int) -> None:
        add(self, replace(batch, previous_seq=self.end_seq), durable_seq=durable_seq)

    return [
        (Follower, "follows", lambda self, previous_seq: True),
        (MemoryStore, "apply", trusting_apply),
        (Window, "add", trusting_add),
    ]


def no_hello_after_catch_up() -> list[Patch]:
    """The look at what a downstream still needs closes this hole as well, so it is taken away, too."""
    return [
        (Replica, "make_downstreams_greet", lambda self: None),
        (Feeder, "is_behind", lambda self, window: False),
    ]


def any_epoch_accepted() -> list[Patch]:
    """Words and batches of any epoch. The numbers of sessions close this hole as well, so they are taken away, too."""
    apply, receive, from_downstream = MemoryStore.apply, Follower.receive, Replica._on_from_downstream

    def ageless_apply(self: MemoryStore, batches: list[Batch], *, commit_point: int = 0) -> None:
        ageless = [replace(batch, epoch=max(batch.epoch, self.state.epoch)) for batch in batches]
        apply(self, ageless, commit_point=commit_point)

    def ageless_receive(self: Follower, node: str, message: Any) -> None:
        receive(self, node, message._replace(session=self._session, epoch=self._replica.view.epoch))

    def ageless_from_downstream(self: Replica, event: FromDownstream) -> None:
        feeder, message = self.feeders.get(event.node), event.message
        message = message._replace(epoch=self.view.epoch)
        if feeder is not None and not isinstance(message, Hello):
            message = message._replace(session=feeder.session)
        from_downstream(self, FromDownstream(event.node, message))

    return [
        (Follower, "receive", ageless_receive),
        (_HANDLERS, FromDownstream, ageless_from_downstream),
        (MemoryStore, "apply", ageless_apply),
    ]


def batches_before_the_table() -> list[Patch]:
    """Batches are stored behind a table that the store may have refused: then they stand in the wrong history."""

    def eager_continue(self: Follower, message: Continue) -> None:
        replica = self._replica
        self.state = FollowerState.STREAMING
        if replica.facts.takeover != message.takeover:
            replica.order(AdoptTable(message.takeover, replica.view.epoch))
        self._established()

    return [(Follower, "_continue", eager_continue)]


def refused_batch_forgotten() -> list[Patch]:
    """A batch that was forwarded and found no room is asked for again, instead of being kept."""
    on_failed = Replica._on_failed

    def forgetful(self: Replica, event: Failed) -> None:
        if isinstance(event.effect, Apply) and event.trouble is Trouble.RETRY:
            self.jobs -= 1
            self._set_facts(event.facts)
            self._log_changed()
            self.follower.lose(event.reason)
        else:
            on_failed(self, event)

    return [(_HANDLERS, Failed, forgetful)]


def purge_forgotten() -> list[Patch]:
    return [
        (kayos.stream.greeting, "misses_deletes", lambda hello, own: False),
        (SyncState, "misses_deletes", lambda self, purge_seq: False),
    ]


# Undoing


def divergence_from_one_table() -> list[Patch]:
    def one_sided(up: TakeoverTable, down: TakeoverTable, *, up_high: int, down_high: int) -> int | None:
        for row in reversed(down.rows):
            end = up.find_end(row.history_id, high_seq=up_high)
            if end is not None:
                return min(end, down_high)
        return None if down_high else 0

    return [(kayos.stream.greeting, "find_divergence", one_sided)]


def rollback_in_two_transactions() -> list[Patch]:
    start_job = Node.start_job

    def half_first(self: Node) -> None:
        job = self.queue[0]
        if isinstance(job, ApplyRollback):
            half = self.store.copy() if not self.store.state.is_copying else self.store
            half.roll_back(replace(job.rollback, records=()))
            half._state = replace(half._state, sync=READY)
            self.store = half
            self.world.later(0.01, None, lambda node: self.world.crash(node), self)
        start_job(self)

    return [(Node, "start_job", half_first)]


def no_commit_floor() -> list[Patch]:
    roll_back = MemoryStore.roll_back

    def floorless(self: MemoryStore, rollback: Any) -> None:
        self._state = replace(self._state, commit_point=0)
        roll_back(self, rollback)

    def never(hello: Hello, point: int | None) -> bool:
        return False

    return [
        (kayos.stream.greeting, "goes_below_commit", never),
        (MemoryStore, "roll_back", floorless),
        *no_incarnation(),
    ]


# Membership


def newcomer_early() -> list[Patch]:
    """The rule of settled chains closes this hole as well, so it is taken away, too."""

    def may_promote(self: Manager, learner: Member, report: Report) -> bool:
        return report.learner_is_close

    return [(Manager, "may_promote", may_promote), *outage_of_last_chain_only()]


def restart_in_place() -> list[Patch]:
    """An unclean restart keeps its place: a lost disk is noticed, lost writes are not."""

    def draw_incarnation(self: Node) -> bytes:
        return b"%s/%s" % (self.name.encode(), self.store.state.incarnation)

    return [(Node, "draw_incarnation", draw_incarnation)]


def no_incarnation() -> list[Patch]:
    def draw_incarnation(self: Node) -> bytes:
        return self.name.encode()

    def has_disk(self: Manager, name: str, chain: Any, seen: Any) -> bool:
        return name in seen and not seen[name].is_suspect and seen[name].is_whole

    def disk_of(self: Manager, member: Member, seen: Any) -> bytes:
        return self._world.nodes[member.node].store.state.incarnation

    return [
        (Node, "draw_incarnation", draw_incarnation),
        (Manager, "_has_disk", has_disk),
        (Manager, "_disk_of", disk_of),
    ]


def survivors_reordered() -> list[Patch]:
    return [(Manager, "order", lambda self, survivors: survivors[::-1])]


def outage_of_last_chain_only() -> list[Patch]:
    """What is committed in a chain that never settled is looked for among the last chain's members alone."""

    def last_only(self: Manager, *args: Any) -> None:
        self.chains = self.chains[-1:]

    return [(Manager, "_maybe_settle", last_only)]


def newest_by_stored_epoch() -> list[Patch]:
    def position_of(self: Manager, log_epoch: int, stored_epoch: int, seq: int) -> tuple[int, int]:
        return stored_epoch, seq

    return [(Manager, "position_of", position_of)]


LINKS = Profile(
    "links",
    faults={"reset": 1.0},
    settings={"nodes": 3, "replicas": 3, "tails": 1},
    weights={"fault_interval": 4.0, "loss": 0.05},
    bounds={"window_count": 1},
)
PAIR = Profile(
    "two nodes",
    faults={"depose": 1.0},
    settings={"nodes": 2, "replicas": 2, "tails": 1, "min_durable": 2, "min_replicas": 1},
    weights={"fault_interval": 12.0, "slow_disk": 0.0, "slow_head": 0.6, "steps": 260},
)
FEW_COPIES = Profile(
    "commits that few hold",
    faults={"suspect": 1.0, "outage": 1.0, "depose": 1.0},
    settings={"nodes": 3, "replicas": 3, "min_durable": 2, "min_replicas": 1},
    weights={"fault_interval": 4.0, "slow_disk": 0.1, "slow_head": 0.8},
)
NO_ROOM = Profile(
    "full disks",
    faults={"suspect": 1.0, "crash": 0.5, "depose": 0.5},
    settings={"nodes": 3, "replicas": 3, "min_durable": 2, "min_replicas": 1},
    weights={"fault_interval": 5.0, "no_room": 0.25},
)
DISORDER = Profile(
    "words out of order",
    faults={"suspect": 1.0, "reset": 1.0, "crash": 0.5},
    weights={"fault_interval": 4.0, "duplicate": 0.3, "reorder": 0.3},
)
STALE_HEADS = Profile(
    "stale heads",
    faults={"suspect": 1.0, "crash": 0.6, "reset": 0.3},
    weights={"waits": 0.6, "fault_interval": 5.0, "steps": 160},
)
PURGES = Profile(
    "purges",
    faults={"suspect": 1.0, "crash": 0.5, "cut": 0.5},
    settings={"mode": Mode.COMPACT, "replicas": 3},
    weights={"controls": 0.9, "fault_interval": 6.0, "steps": 260},
    bounds={"window_count": 1},
)
FORCED = Profile(
    "an operator without patience",
    faults={"suspect": 1.0, "crash": 0.5, "cut": 0.5},
    settings={"mode": Mode.COMPACT, "nodes": 3, "replicas": 2, "tails": 1, "min_replicas": 1},
    weights={"fault_interval": 5.0, "steps": 260},
    forced=True,
)
CRASHES = Profile(
    "crashes",
    faults={"crash": 1.0, "outage": 0.3},
    weights={"fault_interval": 4.0, "slow_disk": 0.1, "slow_head": 0.6},
)
LOSSES = Profile("lost words", weights={"loss": 0.1})
ROLLBACKS = Profile("rollbacks", faults={"depose": 1.0}, weights={"slow_head": 0.6, "steps": 160})
SLOW_DISKS = Profile(
    "slow disks",
    faults={"orphan": 1.0},
    settings={"replicas": 2, "nodes": 3, "tails": 1, "min_durable": 2, "min_replicas": 1},
    weights={"fault_interval": 5.0, "slow_disk": 0.5, "steps": 260},
)
LOST_DISKS = Profile("lost disks", faults={"wipe": 1.0, "crash": 0.3}, weights={"fault_interval": 5.0})


MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant("ack-before-fsync", acknowledge_before_fsync),
        Mutant("no-gate", no_gate),
        Mutant("gate-by-bare-sequence", gate_by_bare_sequence, PAIR),
        Mutant("bare-sequence", wait_by_bare_sequence, STALE_HEADS),
        Mutant("no-previous-sequence", no_previous_sequence, LOSSES),
        Mutant("no-hello-after-catch-up", no_hello_after_catch_up, LINKS),
        Mutant("any-epoch", any_epoch_accepted, DISORDER, seed=2_250, schedules_max=6_000),
        Mutant("batches-before-the-table", batches_before_the_table, NO_ROOM),
        Mutant("refused-batch-forgotten", refused_batch_forgotten, NO_ROOM),
        Mutant("purge-forgotten", purge_forgotten, PURGES),
        Mutant("one-table", divergence_from_one_table, FORCED),
        Mutant("rollback-in-two", rollback_in_two_transactions, ROLLBACKS),
        Mutant("no-commit-floor", no_commit_floor, LOST_DISKS),
        Mutant("newcomer-early", newcomer_early, SLOW_DISKS),
        Mutant("restart-in-place", restart_in_place, CRASHES),
        Mutant("no-incarnation", no_incarnation, LOST_DISKS),
        Mutant("survivors-reordered", survivors_reordered),
        Mutant("outage-of-last-chain", outage_of_last_chain_only, FEW_COPIES),
        Mutant("newest-by-stored-epoch", newest_by_stored_epoch, FEW_COPIES),
    )
}

PROFILES = tuple({mutant.profile.name: mutant.profile for mutant in MUTANTS.values()}.values())
