"""The upstream's half of all conversations: who reads from this replica, and what each of them gets.

A downstream that said Hello is answered once this replica is sure of its own log. Then it gets batches as they are
accepted, bounded in flight, or pieces and records from the store when it asks for them.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from kayos.replica.effects import FetchView, FindRecords, ReadPiece, SendDown
from kayos.replica.events import PieceRead, RecordsFound
from kayos.replica.feeder import Feeder, FeederState
from kayos.stream.greeting import Upstream, answer_hello
from kayos.stream.messages import (
    Ack,
    AskPiece,
    AskRecords,
    Bye,
    Continue,
    Downward,
    Hello,
    Piece,
    Progress,
    Records,
    RefusalCode,
    Refuse,
    Sent,
    Upward,
    Wedge,
)

if TYPE_CHECKING:
    # The machine owns its downstreams; the other direction is for the type checker.
    from kayos.model.chain import ChainView
    from kayos.replica.machine import Replica


class Downstreams:
    """`feeders` are the conversations, by node."""

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        self.feeders: dict[str, Feeder] = {}
        self._subtrees: dict[str, frozenset[str]] = {}

    @property
    def are_expected(self) -> bool:
        """Whether anybody follows this replica in its view."""
        return bool(self._subtrees)

    def view_changed(self, view: "ChainView") -> None:
        nodes = view.downstreams_of(self._replica.node)
        self._subtrees = {node: view.subtree_of(node) for node in nodes}
        self.end_all("the chain changed")

    # Hearing

    def receive(self, node: str, message: Upward) -> None:
        if isinstance(message, Hello):
            self._hear_hello(node, message)
            return
        replica, feeder = self._replica, self.feeders.get(node)
        if feeder is None or feeder.session != message.session or not replica.is_current(message.epoch):
            return
        match message:
            case Ack():
                feeder.note_acked(message.synced_seq)
                replica.ledger.merge(message.durable, except_node=replica.node)
                replica.note_own()
                replica.spread_news()
                if feeder.state is FeederState.STREAMING:
                    self._pump(node, feeder)
            case AskPiece() | AskRecords():
                feeder.deferred = message
                self.answer_deferred()

    def _hear_hello(self, node: str, hello: Hello) -> None:
        replica = self._replica
        epoch = replica.view.epoch
        if hello.epoch < epoch:
            reason = f"epoch {hello.epoch} is over, {epoch} is current: fetch the view"
            self._refuse(node, hello, RefusalCode.STALE_EPOCH, reason)
            return
        if hello.epoch > epoch:
            replica.emit(FetchView(hello.epoch))
        elif not self._is_mine(node, hello):
            reason = f"{node} does not follow {replica.node} in epoch {epoch}"
            self._refuse(node, hello, RefusalCode.NOT_IN_CHAIN, reason)
            return
        old = self.feeders.get(node)
        if old is not None and old.hello.incarnation == hello.incarnation and old.session >= hello.session:
            return
        self.feeders[node] = Feeder(hello)
        self.greet_all()

    def _is_mine(self, node: str, hello: Hello) -> bool:
        member = self._replica.view.find_member(node)
        if member is None or hello.node != node or node not in self._subtrees:
            return False
        return not member.incarnation or member.incarnation == hello.incarnation

    def _refuse(self, node: str, hello: Hello, code: RefusalCode, reason: str) -> None:
        self._replica.emit(SendDown(node, Refuse(hello.session, self._replica.view.epoch, code, reason)))

    # Answering Hello

    def greet_all(self) -> None:
        """Answer those who said Hello, if this replica is sure of its own log."""
        replica = self._replica
        if not (replica.is_established and replica.is_whole):
            return
        for node, feeder in list(self.feeders.items()):
            if feeder.state is FeederState.GREETED and feeder.hello.epoch == replica.view.epoch:
                if self._is_mine(node, feeder.hello):
                    self._answer_hello(node, feeder)
                else:
                    del self.feeders[node]

    def _answer_hello(self, node: str, feeder: Feeder) -> None:
        replica, hello = self._replica, feeder.hello
        facts = replica.facts
        own = Upstream(facts.takeover, replica.accepted_seq, facts.purge_seq, replica.role.is_head, replica.window)
        verdict = answer_hello(hello, own)
        replica.emit(SendDown(node, verdict))
        if isinstance(verdict, Continue):
            feeder.state = FeederState.STREAMING
            feeder.sent_seq = min(hello.high_seq, replica.accepted_seq)
            self._pump(node, feeder)
            self._send_progress(node, feeder)
        elif isinstance(verdict, Wedge):
            del self.feeders[node]
        else:
            feeder.state = FeederState.COPYING

    # Batches

    def pump_all(self) -> None:
        for node, feeder in list(self.feeders.items()):
            if feeder.state is FeederState.STREAMING:
                self._pump(node, feeder)

    def _pump(self, node: str, feeder: Feeder) -> None:
        replica = self._replica
        epoch = replica.view.epoch
        while feeder.has_room:
            found = replica.window.find_after(feeder.sent_seq)
            if found is None:
                if feeder.is_behind(replica.window):
                    self._end(node, "it fell behind what is kept in memory")
                return
            batch, size = found
            if batch.epoch != epoch:
                # Sequenced in an earlier epoch, vouched for in this one: a store takes nothing from an older epoch.
                batch = replace(batch, epoch=epoch)
            feeder.note_sent(batch.last_seq, size)
            replica.emit(SendDown(node, Sent(feeder.session, epoch, batch, dict(replica.ledger.durable))))

    def tell(self, news: set[str]) -> None:
        """What is newly durable on these nodes, to those who do not stand before them."""
        for node, feeder in self.feeders.items():
            if feeder.state is FeederState.STREAMING and not news <= self._subtrees[node]:
                self._send_progress(node, feeder)

    def tick(self) -> None:
        """A sign of life for each, or the end for one that has taken nothing until memory no longer reaches back."""
        for node, feeder in list(self.feeders.items()):
            if feeder.state is FeederState.STREAMING and feeder.is_behind(self._replica.window):
                self._end(node, "it fell behind what is kept in memory")
            else:
                self._send_progress(node, feeder)

    def _send_progress(self, node: str, feeder: Feeder) -> None:
        replica = self._replica
        progress = Progress(feeder.session, replica.view.epoch, feeder.sent_seq, dict(replica.ledger.durable))
        replica.emit(SendDown(node, progress, can_wait=True))

    # Questions

    def answer_deferred(self) -> None:
        """Questions are answered from the store, which must have reached what the downstream builds upon."""
        replica = self._replica
        if not replica.is_whole:
            return
        high_seq = replica.facts.high_seq
        for node, feeder in self.feeders.items():
            ask = feeder.deferred
            if isinstance(ask, AskPiece) and high_seq >= ask.min_end_seq:
                feeder.deferred = None
                replica.emit(ReadPiece(node, ask))
            elif isinstance(ask, AskRecords) and high_seq >= ask.through_seq:
                feeder.deferred = None
                replica.emit(FindRecords(node, ask))

    def piece_read(self, event: PieceRead) -> None:
        ask = event.effect.ask
        self._send_if_current(event.effect.node, ask, Piece(ask.session, ask.epoch, event.piece))

    def records_found(self, event: RecordsFound) -> None:
        ask = event.effect.ask
        self._send_if_current(event.effect.node, ask, Records(ask.session, ask.epoch, event.restorable))

    def _send_if_current(self, node: str, ask: AskPiece | AskRecords, message: Downward) -> None:
        feeder = self.feeders.get(node)
        if feeder is not None and feeder.session == ask.session and ask.epoch == self._replica.view.epoch:
            self._replica.emit(SendDown(node, message))

    def read_failed(self, effect: ReadPiece | FindRecords, reason: str) -> None:
        feeder = self.feeders.get(effect.node)
        if feeder is not None and feeder.session == effect.ask.session:
            self._end(effect.node, reason)

    # Ending

    def lose(self, node: str) -> None:
        self.feeders.pop(node, None)

    def end_all(self, reason: str) -> None:
        """Make them say Hello again; those who said it and wait for an answer have."""
        for node in list(self.feeders):
            if self.feeders[node].state is not FeederState.GREETED:
                self._end(node, reason)

    def _end(self, node: str, reason: str) -> None:
        feeder = self.feeders.pop(node)
        self._replica.emit(SendDown(node, Bye(feeder.session, self._replica.view.epoch, reason)))
