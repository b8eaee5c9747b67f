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
from dataclasses import dataclass, replace
from typing import Any

from kayos.limits import WAITERS_MAX
from kayos.model.chain import ChainView, MemberState, Role
from kayos.model.write import Batch
from kayos.replica.effects import (
    AdoptTable,
    Answer,
    Apply,
    ApplyPiece,
    ApplyRollback,
    BeginCopy,
    CancelCopy,
    Effect,
    FetchView,
    FindRecords,
    Forsake,
    ReadPiece,
    Release,
    SaveCommitPoint,
    SaveEpoch,
    SendDown,
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
from kayos.replica.feeder import Feeder, FeederState
from kayos.replica.follower import Follower
from kayos.replica.ledger import Ledger, Waiters
from kayos.stream.greeting import Upstream, answer_hello
from kayos.stream.messages import (
    Ack,
    AskPiece,
    AskRecords,
    Bye,
    Continue,
    Downward,
    Durable,
    Hello,
    Piece,
    Progress,
    Records,
    RefusalCode,
    Refuse,
    Sent,
    Wedge,
)
from kayos.stream.window import Window

NO_VIEW = ChainView(0, ())


@dataclass(frozen=True, slots=True)
class Report:
    """What operators and the manager are told. `learner_is_close`: the newcomer streams; `learner_is_ready`: it holds
    all that was ever acknowledged here."""

    role: Role
    epoch: int
    high_seq: int
    durable_seq: int
    commit_point: int
    following: str
    phase: str
    problem: str
    learner: str
    learner_is_close: bool
    learner_is_ready: bool
    durable: Durable


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
        self.waiters = Waiters()
        self.feeders: dict[str, Feeder] = {}
        self.follower = Follower(self)
        self._effects: list[Effect] = []
        self._is_view_stored = False
        self._begins_history = False
        self._feeds_others = False
        self._subtrees: dict[str, frozenset[str]] = {}
        self.subtree = frozenset({node})
        # Batches that the writer had no room for.
        self._refused: list[Apply] = []
        # What was acknowledged before this epoch: a newcomer must hold it before it is a member.
        self._promised_seq = 0

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
    def is_established(self) -> bool:
        """Whether this log is known to be the chain's, in this epoch."""
        if self.role.is_head:
            return self._is_view_stored and not self._begins_history and not self.is_broken
        return self.follower.is_established

    def report(self) -> Report:
        learner = self.view.learner if self.view.members else None
        feeder = self.feeders.get(learner.node) if learner is not None else None
        is_close = feeder is not None and feeder.state is FeederState.STREAMING
        held = self.ledger.durable.get(learner.node, 0) if learner is not None else 0
        return Report(
            role=self.role,
            epoch=self.view.epoch,
            high_seq=self.accepted_seq,
            durable_seq=self.store_facts.high_seq,
            commit_point=self.commit_point,
            following=self.follower.upstream,
            phase=self.follower.phase if not self.is_head else "serving" if self.is_established else "taking over",
            problem=self.problem,
            learner=learner.node if learner is not None and self.view.upstream_of(learner.node) == self.node else "",
            learner_is_close=is_close,
            learner_is_ready=is_close and self.is_established and self._is_learner_ready(held),
            durable=dict(self.ledger.durable),
        )

    def _is_learner_ready(self, held_seq: int) -> bool:
        learner = self.view.learner
        # What was promised in a history that this log has left since binds nobody.
        promised_seq = min(self._promised_seq, self.facts.high_seq)
        return learner is not None and learner.state is MemberState.SYNCING and held_seq >= promised_seq

    # The view

    def _on_view(self, event: ViewChanged) -> None:
        view = event.view
        if view.epoch <= self.view.epoch or view.epoch < self.facts.epoch or self.is_broken:
            return
        before, was_head = self.view, self.role.is_head and self.is_established
        self.view = view
        self._is_view_stored = False
        self.role = view.role_of(self.node) if self.may_take_role(view) else Role.NONE
        self._promised_seq = max(self._promised_seq, self.ledger.durable.get(self.node, 0))
        self.ledger = Ledger(view)
        self._feeds_others = bool(view.downstreams_of(self.node))
        self.subtree = view.subtree_of(self.node)
        self._subtrees = {node: view.subtree_of(node) for node in view.downstreams_of(self.node)}
        self._end_feeders("the chain changed")
        self.follower.stop()
        # The same head goes on with its history if nobody else can have been head in between.
        goes_on = was_head and self.role.is_head and view.epoch == before.epoch + 1
        self._begins_history = self.role.is_head and not goes_on
        if not goes_on:
            self._stop_serving("this node is no longer the head" if not self.role.is_head else "a new history begins")
        self.order(SaveEpoch(view.epoch))

    def may_take_role(self, view: ChainView) -> bool:
        """A role belongs to one life of a replica. Where the view does not name it, the first one to store the epoch
        has it; a chain of one is what it is, whoever restarts it."""
        self.problem = ""
        member = view.find_member(self.node)
        if member is None:
            return True
        if member.incarnation:
            is_mine = member.incarnation == self.incarnation
        else:
            resumes = len(view.serving) == 1 or member.state is MemberState.WAITING
            is_mine = self.facts.epoch < view.epoch or resumes
        if not is_mine:
            self.problem = (
                f"epoch {view.epoch} gave this place to an earlier life of {self.node}: "
                "name it last and as waiting, in a higher epoch"
            )
        return is_mine

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
        self.greet_downstreams()

    def _stop_serving(self, reason: str) -> None:
        if self.accepts_writes:
            self.accepts_writes = False
            self.emit(Serve(False))
        for token in self.waiters.take_all():
            self.emit(Forsake(token, reason))

    # The log grows

    def _on_sequenced(self, event: Sequenced) -> None:
        self.append(event.batch)

    def append(self, batch: Batch) -> None:
        """Forward first; the writer fsyncs meanwhile."""
        self.accepted_seq = batch.last_seq
        if not self._feeds_others:
            self.window.restart(batch.last_seq)
            return
        self.window.add(batch, durable_seq=self.facts.high_seq)
        for node, feeder in list(self.feeders.items()):
            if feeder.state is FeederState.STREAMING:
                self._pump(node, feeder)

    def _on_synced(self, event: Synced) -> None:
        self._learn(event.facts)

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
        if any(feeder.deferred is not None for feeder in self.feeders.values()):
            self._answer_deferred()

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
        for token, seq in self.waiters.take_reached(self.ledger):
            self.emit(Answer(token, self.ledger.count_copies(seq)))
        if not news.isdisjoint(self.subtree):
            self.follower.acknowledge()
        for node, feeder in self.feeders.items():
            if feeder.state is FeederState.STREAMING and not news <= self._subtrees[node]:
                self._send_progress(node, feeder)

    def _log_changed(self) -> None:
        """By something else than an append: whoever reads from here must compare anew."""
        self.accepted_seq = self.facts.high_seq
        self.window.restart(self.facts.high_seq)
        self.make_downstreams_greet()

    def make_downstreams_greet(self) -> None:
        self._end_feeders("the upstream's log was changed by more than an append")

    # Downstreams

    def _on_from_downstream(self, event: FromDownstream) -> None:
        message = event.message
        if isinstance(message, Hello):
            self._on_hello(event.node, message)
            return
        feeder = self.feeders.get(event.node)
        if feeder is None or feeder.session != message.session or not self.is_current(message.epoch):
            return
        match message:
            case Ack():
                feeder.note_acked(message.synced_seq)
                self.ledger.merge(message.durable, except_node=self.node)
                self.note_own()
                self.spread_news()
                if feeder.state is FeederState.STREAMING:
                    self._pump(event.node, feeder)
            case AskPiece() | AskRecords():
                feeder.deferred = message
                self._answer_deferred()

    def is_current(self, epoch: int) -> bool:
        return epoch == self.view.epoch

    def _on_hello(self, node: str, hello: Hello) -> None:
        if hello.epoch < self.view.epoch:
            reason = f"epoch {hello.epoch} is over, {self.view.epoch} is current: fetch the view"
            self._refuse(node, hello, RefusalCode.STALE_EPOCH, reason)
            return
        if hello.epoch > self.view.epoch:
            self.emit(FetchView(hello.epoch))
        elif not self._is_my_downstream(node, hello):
            reason = f"{node} does not follow {self.node} in epoch {self.view.epoch}"
            self._refuse(node, hello, RefusalCode.NOT_IN_CHAIN, reason)
            return
        old = self.feeders.get(node)
        if old is not None and old.hello.incarnation == hello.incarnation and old.session >= hello.session:
            return
        self.feeders[node] = Feeder(hello)
        self.greet_downstreams()

    def _is_my_downstream(self, node: str, hello: Hello) -> bool:
        member = self.view.find_member(node)
        if member is None or hello.node != node or self.view.upstream_of(node) != self.node:
            return False
        return not member.incarnation or member.incarnation == hello.incarnation

    def _refuse(self, node: str, hello: Hello, code: RefusalCode, reason: str) -> None:
        self.emit(SendDown(node, Refuse(hello.session, self.view.epoch, code, reason)))

    def greet_downstreams(self) -> None:
        """Answer those who said Hello, if this replica is sure of its own log."""
        if not (self.is_established and self.facts.sync.is_ready and not self.facts.is_copying):
            return
        for node, feeder in list(self.feeders.items()):
            if feeder.state is FeederState.GREETED and feeder.hello.epoch == self.view.epoch:
                if self._is_my_downstream(node, feeder.hello):
                    self._answer_hello(node, feeder)
                else:
                    del self.feeders[node]

    def _answer_hello(self, node: str, feeder: Feeder) -> None:
        hello = feeder.hello
        own = Upstream(self.facts.takeover, self.accepted_seq, self.facts.purge_seq, self.role.is_head, self.window)
        verdict = answer_hello(hello, own)
        self.emit(SendDown(node, verdict))
        if isinstance(verdict, Continue):
            feeder.state = FeederState.STREAMING
            feeder.sent_seq = min(hello.high_seq, self.accepted_seq)
            self._pump(node, feeder)
            self._send_progress(node, feeder)
        elif isinstance(verdict, Wedge):
            del self.feeders[node]
        else:
            feeder.state = FeederState.COPYING

    def _pump(self, node: str, feeder: Feeder) -> None:
        while feeder.has_room:
            found = self.window.find_after(feeder.sent_seq)
            if found is None:
                if feeder.is_behind(self.window):
                    self._end_feeder(node, "it fell behind what is kept in memory")
                return
            batch, size = found
            if batch.epoch != self.view.epoch:
                # Sequenced in an earlier epoch, vouched for in this one: a store takes nothing from an older epoch.
                batch = replace(batch, epoch=self.view.epoch)
            feeder.note_sent(batch.last_seq, size)
            self.emit(SendDown(node, Sent(feeder.session, self.view.epoch, batch, dict(self.ledger.durable))))

    def _send_progress(self, node: str, feeder: Feeder) -> None:
        progress = Progress(feeder.session, self.view.epoch, feeder.sent_seq, dict(self.ledger.durable))
        self.emit(SendDown(node, progress))

    def _answer_deferred(self) -> None:
        """Questions are answered from the store, which must have reached what the downstream builds upon."""
        if not self.facts.sync.is_ready or self.facts.is_copying:
            return
        for node, feeder in self.feeders.items():
            ask = feeder.deferred
            if isinstance(ask, AskPiece) and self.facts.high_seq >= ask.min_end_seq:
                feeder.deferred = None
                self.emit(ReadPiece(node, ask))
            elif isinstance(ask, AskRecords) and self.facts.high_seq >= ask.through_seq:
                feeder.deferred = None
                self.emit(FindRecords(node, ask))

    def _on_piece_read(self, event: PieceRead) -> None:
        ask = event.effect.ask
        self._send_if_current(event.effect.node, ask, Piece(ask.session, ask.epoch, event.piece))

    def _on_records_found(self, event: RecordsFound) -> None:
        ask = event.effect.ask
        self._send_if_current(event.effect.node, ask, Records(ask.session, ask.epoch, event.restorable))

    def _send_if_current(self, node: str, ask: AskPiece | AskRecords, message: Downward) -> None:
        feeder = self.feeders.get(node)
        if feeder is not None and feeder.session == ask.session and ask.epoch == self.view.epoch:
            self.emit(SendDown(node, message))

    def _on_read_failed(self, event: ReadFailed) -> None:
        effect = event.effect
        if isinstance(effect, ReadPiece | FindRecords):
            feeder = self.feeders.get(effect.node)
            if feeder is not None and feeder.session == effect.ask.session:
                self._end_feeder(effect.node, event.reason)
        else:
            self.follower.lose("what diverged could not be read")

    def _end_feeders(self, reason: str) -> None:
        for node in list(self.feeders):
            if self.feeders[node].state is not FeederState.GREETED:
                self._end_feeder(node, reason)

    def _end_feeder(self, node: str, reason: str) -> None:
        feeder = self.feeders.pop(node)
        self.emit(SendDown(node, Bye(feeder.session, self.view.epoch, reason)))

    # Links and time

    def _on_from_upstream(self, event: FromUpstream) -> None:
        self.follower.receive(event.node, event.message)

    def _on_link_ready(self, event: LinkReady) -> None:
        self.follower.link_ready(event.node)

    def _on_link_lost(self, event: LinkLost) -> None:
        self.feeders.pop(event.node, None)
        if event.node == self.follower.upstream:
            self.follower.lose("the connection broke")

    def _on_tick(self, event: Tick) -> None:
        self.follower.tick()
        for node, feeder in self.feeders.items():
            self._send_progress(node, feeder)
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
        self._end_feeders(reason)
        self.feeders.clear()

    # Waiting for copies

    def _on_wait(self, event: Wait) -> None:
        """A bare sequence proves nothing: after a takeover another write may stand there."""
        if not self.role.is_head or not self.is_established:
            self.emit(Forsake(event.token, "this node is not the head"))
        elif not self.holds(event.history_id, event.seq):
            self.emit(Forsake(event.token, f"the history of sequence {event.seq} ended before it: the write is lost"))
        elif len(self.waiters) >= WAITERS_MAX:
            self.emit(Forsake(event.token, f"{WAITERS_MAX} writes wait for copies already"))
        else:
            self.waiters.add(event)
            for token, seq in self.waiters.take_reached(self.ledger):
                self.emit(Answer(token, self.ledger.count_copies(seq)))

    def holds(self, history_id: bytes, seq: int) -> bool:
        """Or will hold: the open history may still reach it."""
        end = self.facts.takeover.find_end(history_id, high_seq=max(self.accepted_seq, seq))
        return end is not None and end >= seq

    def _on_stop_waiting(self, event: StopWaiting) -> None:
        self.waiters.drop(event.token)

    def _on_diverged(self, event: DivergedFound) -> None:
        self.follower.diverged_found(event.effect, event.keys)


_HANDLERS: dict[type, Callable[[Replica, Any], None]] = {
    ViewChanged: Replica._on_view,
    Tick: Replica._on_tick,
    LinkReady: Replica._on_link_ready,
    LinkLost: Replica._on_link_lost,
    FromUpstream: Replica._on_from_upstream,
    FromDownstream: Replica._on_from_downstream,
    Sequenced: Replica._on_sequenced,
    Synced: Replica._on_synced,
    Done: Replica._on_done,
    Failed: Replica._on_failed,
    PieceRead: Replica._on_piece_read,
    RecordsFound: Replica._on_records_found,
    DivergedFound: Replica._on_diverged,
    ReadFailed: Replica._on_read_failed,
    Wait: Replica._on_wait,
    StopWaiting: Replica._on_stop_waiting,
}
