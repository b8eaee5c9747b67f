"""One shard on one node: `step(event) → effects`.

The machine follows at most one replica (`Follower`) and feeds any number (`Feeder`). Three sequences describe its log:
`accepted_seq`, handed to its writer and forwarded; `facts.high_seq`, fsynced; `commit_point`, held by enough
replicas. What it does depends on the view:

    head      begins a history durably (TakeOver), then accepts writes: Sequenced, Synced
    others    say Hello to their upstream, are made a prefix of its log, then take its batches

Order of things, everywhere: a view counts once its epoch is stored; a replica tells others of its log only while it is
`is_established`: its head has begun, or its upstream has found it a prefix in this epoch. A log that changed by
anything but an append makes every downstream say Hello again.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kayos.model.chain import ChainView, MemberState, Role
from kayos.model.write import Batch
from kayos.replica.claim import is_mine
from kayos.replica.downstreams import Downstreams
from kayos.replica.effects import (
    AdoptTable,
    Apply,
    ApplyPiece,
    ApplyRollback,
    BeginCopy,
    CancelCopy,
    Effect,
    FindDiverged,
    Release,
    SaveCommitPoint,
    SaveEpoch,
    Serve,
    TakeOver,
    WriterEffect,
)
from kayos.replica.events import (
    DivergedFound,
    Done,
    Event,
    Failed,
    FromDownstream,
    FromUpstream,
    LinkLost,
    LinkReady,
    PieceRead,
    ReadFailed,
    RecordsFound,
    Sequenced,
    StopWaiting,
    Synced,
    Tick,
    Trouble,
    ViewChanged,
    Wait,
)
from kayos.replica.facts import Facts
from kayos.replica.feeder import Feeder
from kayos.replica.follower import Follower
from kayos.replica.ledger import Ledger
from kayos.replica.report import Report, make_report
from kayos.replica.waits import Waits
from kayos.stream.window import Window

NO_VIEW = ChainView(0, ())


class Replica:
    def __init__(self, node: str, incarnation: bytes, facts: Facts) -> None:
        self.node = node
        self.incarnation = incarnation
        self.facts = facts
        # Those of the store itself: while a copy is filled beside it, `facts` are the copy's.
        self.store_facts = facts
        self.view = NO_VIEW
        self.role = Role.NONE
        self.accepted_seq = facts.high_seq
        self.commit_point = facts.commit_point
        self.accepts_writes = False
        self.problem = ""
        self.is_broken = False
        self.jobs = 0
        self.window = Window(facts.high_seq)
        self.ledger = Ledger(NO_VIEW)
        self.waits = Waits(self)
        self.downstreams = Downstreams(self)
        self.follower = Follower(self)
        self._effects: list[Effect] = []
        self._is_view_stored = False
        self._begins_history = False
        # This node and all that stand behind it: of these it tells its upstream.
        self.subtree = frozenset({node})
        # Batches that the writer had no room for.
        self._refused: list[Apply] = []
        # What was acknowledged before this epoch: a newcomer must hold it before it is a member.
        self.promised_seq = 0

    def step(self, event: Event) -> list[Effect]:
        self._effects = []
        _HANDLERS[type(event)](self, event)
        return self._effects

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def order(self, effect: WriterEffect) -> None:
        """Something for the writer, which will come back as Done or Failed."""
        self.jobs += 1
        self._effects.append(effect)

    @property
    def is_head(self) -> bool:
        return self.role.is_head

    @property
    def feeders(self) -> dict[str, Feeder]:
        return self.downstreams.feeders

    @property
    def is_whole(self) -> bool:
        """Whether the store can be read from: not in the middle of a catch-up, and no copy is being filled."""
        return self.facts.sync.is_ready and not self.facts.is_copying

    @property
    def is_established(self) -> bool:
        """Whether this log is known to be the chain's, in this epoch."""
        if self.role.is_head:
            return self._is_view_stored and not self._begins_history and not self.is_broken
        return self.follower.is_established

    def report(self) -> Report:
        return make_report(self)

    # The view

    def _on_view(self, event: ViewChanged) -> None:
        view = event.view
        if view.epoch <= self.view.epoch or view.epoch < self.facts.epoch or self.is_broken:
            return
        before, was_head = self.view, self.role.is_head and self.is_established
        self.view = view
        self._is_view_stored = False
        self.role = view.role_of(self.node) if self.may_take_role(view) else Role.NONE
        self.promised_seq = max(self.promised_seq, self.ledger.durable.get(self.node, 0))
        self.ledger = Ledger(view)
        self.subtree = view.subtree_of(self.node)
        self.downstreams.view_changed(view)
        self.follower.stop()
        # The same head goes on with its history if nobody else can have been head in between.
        goes_on = was_head and self.role.is_head and view.epoch == before.epoch + 1
        self._begins_history = self.role.is_head and not goes_on
        if not goes_on:
            self._stop_serving("this node is no longer the head" if not self.role.is_head else "a new history begins")
        self.order(SaveEpoch(view.epoch))

    def may_take_role(self, view: ChainView) -> bool:
        may = is_mine(view, self.node, self.incarnation, stored_epoch=self.facts.epoch)
        self.problem = (
            ""
            if may
            else (
                f"epoch {view.epoch} gave this place to an earlier life of {self.node}: "
                "name it last and as waiting, in a higher epoch"
            )
        )
        return may

    def _on_epoch_saved(self, effect: SaveEpoch) -> None:
        if effect.epoch != self.view.epoch:
            return
        self._is_view_stored = True
        if self.role is Role.NONE:
            return
        if not self.role.is_head:
            self.follower.start(self.view.upstream_of(self.node), is_member=self.role is not Role.LEARNER)
        elif self._begins_history:
            self._maybe_take_over()
        else:
            self._serve()

    def _maybe_take_over(self) -> None:
        """Once nothing is under way: the history begins where the log ends."""
        if not (self._begins_history and self._is_view_stored and not self.jobs):
            return
        if self.facts.is_copying:
            self.order(CancelCopy(0))
        elif self.facts.sync.is_ready:
            self.order(TakeOver(self.view.epoch, self.facts.high_seq))
        else:
            self.problem = "this replica was made head in the middle of a catch-up: give the role to a whole one"

    def _on_took_over(self, effect: TakeOver) -> None:
        if effect.epoch == self.view.epoch and self.role.is_head:
            self._begins_history = False
            self._log_changed()
            self._serve()

    def _serve(self) -> None:
        count, least = len(self.view.serving), self.view.min_replicas
        accepts = count >= least
        self.problem = "" if accepts else f"the chain has {count} of at least {least} replicas: it takes no writes"
        self.accepts_writes = accepts
        self.emit(Serve(accepts))
        self._note_durable()
        self.downstreams.greet_all()

    def _stop_serving(self, reason: str) -> None:
        if self.accepts_writes:
            self.accepts_writes = False
            self.emit(Serve(False))
        self.waits.forsake_all(reason)

    # The log grows

    def _on_sequenced(self, event: Sequenced) -> None:
        self.append(event.batch)

    def append(self, batch: Batch) -> None:
        """Forward first; the writer fsyncs meanwhile."""
        self.accepted_seq = batch.last_seq
        if not self.downstreams.are_expected:
            self.window.restart(batch.last_seq)
            return
        self.window.add(batch, durable_seq=self.facts.high_seq)
        self.downstreams.pump_all()

    def _learn(self, facts: Facts) -> None:
        self._set_facts(facts)
        self._note_durable()

    def _set_facts(self, facts: Facts) -> None:
        self.facts = facts
        if not facts.is_copying:
            self.store_facts = facts

    def _note_durable(self) -> None:
        """The fsynced end of the log counts for the chain once the log is known to be the chain's."""
        self.note_own()
        self.spread_news()
        self.downstreams.answer_deferred()

    def acknowledged_seq(self) -> int:
        """What this replica answers for: what it fsynced, and for a newcomer that is about to be a member, what that
        one holds as well."""
        learner = self.view.learner
        if learner is None or learner.state is not MemberState.SYNCING or self.view.serving[-1] != self.node:
            return self.facts.high_seq
        return min(self.facts.high_seq, self.ledger.durable.get(learner.node, 0))

    def note_own(self) -> None:
        if self.is_established:
            self.ledger.note(self.node, self.acknowledged_seq())

    def spread_news(self) -> None:
        """Tell what is newly known to be durable: up what stands behind this replica, down what does not stand behind
        the one that is told."""
        news = self.ledger.take_news()
        if not news:
            return
        commit_point = self.ledger.find_commit_point()
        if commit_point > self.commit_point:
            self.commit_point = commit_point
            self.emit(Release(commit_point))
        self.waits.answer_reached()
        if not news.isdisjoint(self.subtree):
            # Writes on all replicas wait for the end of the chain, whose word this replica will pass on at once.
            self.follower.acknowledge(can_wait=news == {self.node} and self.downstreams.are_expected)
        self.downstreams.tell(news)

    def _log_changed(self) -> None:
        """By something else than an append: whoever reads from here must compare anew."""
        self.accepted_seq = self.facts.high_seq
        self.window.restart(self.facts.high_seq)
        self.make_downstreams_greet()

    def make_downstreams_greet(self) -> None:
        self.downstreams.end_all("the upstream's log was changed by more than an append")

    # Neighbours and time

    def is_current(self, epoch: int) -> bool:
        """Every word carries the epoch in which it is said; of another one nothing is heard."""
        return epoch == self.view.epoch

    def _on_from_downstream(self, event: FromDownstream) -> None:
        self.downstreams.receive(event.node, event.message)

    def _on_read_failed(self, event: ReadFailed) -> None:
        if isinstance(event.effect, FindDiverged):
            self.follower.lose("what diverged could not be read")
        else:
            self.downstreams.read_failed(event.effect, event.reason)

    def _on_link_lost(self, event: LinkLost) -> None:
        self.downstreams.lose(event.node)
        if event.node == self.follower.upstream:
            self.follower.lose("the connection broke")

    def _on_tick(self, event: Tick) -> None:
        self.follower.tick()
        self.downstreams.tick()
        self.follower.acknowledge()
        if self._refused and not self.is_broken:
            self._offer_again()
        if not self.jobs and not self.is_broken:
            self._catch_up_on_jobs()

    def _offer_again(self) -> None:
        refused, self._refused = self._refused, []
        for effect in refused:
            # The epoch may have been raised meanwhile; a store takes nothing from an older one.
            self.emit(effect._replace(batch=replace(effect.batch, epoch=max(effect.batch.epoch, self.view.epoch))))

    def _catch_up_on_jobs(self) -> None:
        """What the writer refused, or what was not worth a commit of its own."""
        if self.view.epoch and not self._is_view_stored:
            self.order(SaveEpoch(self.view.epoch))
        elif self._begins_history:
            self._maybe_take_over()
        elif self.storable_commit_point() > self.facts.commit_point:
            self.order(SaveCommitPoint(self.storable_commit_point()))

    def storable_commit_point(self) -> int:
        """The floor below which this copy never goes: what it holds of what it has seen committed."""
        return min(self.commit_point, self.facts.high_seq) if self.facts.sync.is_ready else 0

    # The writer's answers

    def _on_done(self, event: Done) -> None:
        self.jobs -= 1
        effect, facts = event.effect, event.facts
        self._learn(facts)
        match effect:
            case SaveEpoch():
                self._on_epoch_saved(effect)
            case TakeOver():
                self._on_took_over(effect)
            case AdoptTable():
                self.follower.table_adopted()
            case ApplyPiece() | ApplyRollback() | BeginCopy() | CancelCopy():
                self._log_changed()
                self.follower.copied(effect)
        if not self.jobs:
            self._maybe_take_over()
            self.follower.maybe_greet()

    def _on_failed(self, event: Failed) -> None:
        effect = event.effect
        self._set_facts(event.facts)
        if event.trouble is Trouble.BROKEN or effect is None:
            # A head's group was forwarded: downstreams may hold what this store does not.
            self._break(event.reason)
            return
        self.problem = event.reason
        if isinstance(effect, Apply):
            # It was forwarded and may be committed further down, so a living upstream never forgets it: it stays a
            # job until it is stored. Batches behind it are refused too, and wait in their order.
            self._refused.append(effect)
            return
        self.jobs -= 1
        if event.trouble is Trouble.RESET:
            self.follower.start_over()
        elif not isinstance(effect, SaveEpoch | SaveCommitPoint | TakeOver):
            # Those are ordered again with the next tick.
            self.follower.lose(event.reason)

    def _break(self, reason: str) -> None:
        """What was forwarded may not be stored: this life serves no more, the next one joins at the end."""
        self.is_broken = True
        self.problem = reason
        self.role = Role.NONE
        self._stop_serving(reason)
        self.follower.stop()
        self.downstreams.end_all(reason)
        self.feeders.clear()

    # Waiting for copies

    def holds(self, history_id: bytes, seq: int) -> bool:
        """Or will hold: the open history may still reach it."""
        end = self.facts.takeover.find_end(history_id, high_seq=max(self.accepted_seq, seq))
        return end is not None and end >= seq


_HANDLERS: dict[type, Callable[[Replica, Any], None]] = {
    ViewChanged: Replica._on_view,
    Tick: Replica._on_tick,
    LinkReady: lambda replica, event: replica.follower.link_ready(event.node),
    LinkLost: Replica._on_link_lost,
    FromUpstream: lambda replica, event: replica.follower.receive(event.node, event.message),
    FromDownstream: Replica._on_from_downstream,
    Sequenced: Replica._on_sequenced,
    Synced: lambda replica, event: replica._learn(event.facts),
    Done: Replica._on_done,
    Failed: Replica._on_failed,
    PieceRead: lambda replica, event: replica.downstreams.piece_read(event),
    RecordsFound: lambda replica, event: replica.downstreams.records_found(event),
    DivergedFound: lambda replica, event: replica.follower.diverged_found(event.effect, event.keys),
    ReadFailed: Replica._on_read_failed,
    Wait: lambda replica, event: replica.waits.add(event),
    StopWaiting: lambda replica, event: replica.waits.drop(event.token),
}
