"""The downstream's half of the conversation: from Hello to a log that is a prefix of the upstream's, then its batches.

    SEEKING → GREETING → STREAMING
                       → ADOPTING → SEEKING …           the upstream's table, then Hello again
                       → COPYING → SEEKING …            pieces, then Hello again
                       → ROLLING_BACK → COPYING → …     records for what must be undone, then pieces
                       → WEDGED                         waits for another view

Hello is said only while the writer has nothing to do for this replica, so what it tells is what is fsynced. A member of
the chain does everything that is not one step in a copy beside its store: until the copy is whole, the store that it
has acknowledged stays, and the replica can be made head. A newcomer has acknowledged nothing and works in place.
"""

from enum import StrEnum
from typing import TYPE_CHECKING

from kayos.limits import (
    LINK_SILENT_TICKS_MAX,
    PIECES_AHEAD_MAX,
    READ_CHUNK_BYTES_MAX,
    ROLLBACK_BYTES_MAX,
    ROLLBACK_KEYS_PER_QUESTION,
)
from kayos.model.catch_up import CatchUpPiece, Rollback
from kayos.replica.effects import (
    AdoptTable,
    Apply,
    ApplyPiece,
    ApplyRollback,
    BeginCopy,
    CancelCopy,
    FetchView,
    FindDiverged,
    Follow,
    SendUp,
)
from kayos.stream.messages import (
    Ack,
    AskPiece,
    AskRecords,
    Bye,
    CatchUp,
    Continue,
    Downward,
    Hello,
    Piece,
    Progress,
    Records,
    RefusalCode,
    Refuse,
    Reset,
    RollBack,
    Sent,
    Wedge,
)

if TYPE_CHECKING:
    # The machine owns its follower; the other direction is for the type checker.
    from kayos.replica.machine import Replica


class FollowerState(StrEnum):
    IDLE = "idle"
    SEEKING = "seeking"
    GREETING = "greeting"
    ADOPTING = "adopting"
    STREAMING = "streaming"
    COPYING = "catching up"
    ROLLING_BACK = "rolling back"
    WEDGED = "wedged"


class Follower:
    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        self.upstream = ""
        self.state = FollowerState.IDLE
        self._session = 0
        self._is_member = False
        self._silent_ticks = 0
        self._pieces_ahead = 0
        # The position that the next piece must follow; None when none was asked for.
        self._asked_after: int | None = None
        # Where the next question goes on; None when the last piece has come.
        self._next_after: int | None = None
        self._held_piece: CatchUpPiece | None = None
        self._all_retained = False
        self._rollback_to = 0
        self._rollback: Rollback | None = None
        self._keys: tuple[bytes, ...] = ()
        self._records: list[bytes] = []
        self._records_size = 0

    @property
    def is_established(self) -> bool:
        return self.state is FollowerState.STREAMING

    @property
    def phase(self) -> str:
        return self.state.value

    # Coming and going

    def start(self, upstream: str, *, is_member: bool) -> None:
        self.upstream = upstream
        self._is_member = is_member
        self.state = FollowerState.SEEKING
        self._replica.emit(Follow(upstream))
        self.maybe_greet()

    def stop(self) -> None:
        if self.upstream:
            self._replica.emit(Follow(""))
        self.upstream = ""
        self.state = FollowerState.IDLE

    def link_ready(self, node: str) -> None:
        if node == self.upstream and self.state is not FollowerState.IDLE:
            self.lose("")

    def lose(self, reason: str) -> None:
        """The session is over, whatever it was at; begin another one. `reason` is for a reader of this code."""
        if self.state in (FollowerState.IDLE, FollowerState.WEDGED):
            return
        self.state = FollowerState.SEEKING
        self.maybe_greet()

    def maybe_greet(self) -> None:
        replica = self._replica
        if self.state is not FollowerState.SEEKING or replica.jobs:
            return
        facts, own = replica.facts, replica.store_facts
        self._session += 1
        self._silent_ticks = 0
        self.state = FollowerState.GREETING
        hello = Hello(
            self._session,
            replica.view.epoch,
            replica.node,
            replica.incarnation,
            own.takeover,
            own.high_seq,
            max(facts.commit_point, replica.storable_commit_point()),
            facts.purge_seq,
            facts.removal_seq,
            facts.sync,
        )
        replica.emit(SendUp(hello))

    def tick(self) -> None:
        """Nothing heard for too long, or nothing to show for it: begin again."""
        if self.state in (FollowerState.IDLE, FollowerState.WEDGED):
            return
        self._silent_ticks += 1
        if self._silent_ticks > LINK_SILENT_TICKS_MAX and not self._replica.jobs:
            self._silent_ticks = 0
            self.lose("silence")

    def acknowledge(self, *, can_wait: bool = False) -> None:
        if self.is_established:
            replica = self._replica
            durable = {node: seq for node, seq in replica.ledger.durable.items() if node in replica.subtree}
            ack = Ack(self._session, replica.view.epoch, replica.facts.high_seq, durable)
            replica.emit(SendUp(ack, can_wait))

    # Hearing

    def receive(self, node: str, message: Downward) -> None:
        replica = self._replica
        if node != self.upstream or message.session != self._session:
            return
        if isinstance(message, Refuse):
            self._refused(message)
            return
        if not replica.is_current(message.epoch):
            return
        if self.state is FollowerState.STREAMING:
            self._receive_streaming(message)
        elif isinstance(message, Bye):
            self.lose(message.reason)
        elif self.state is FollowerState.GREETING:
            self._receive_verdict(message)
        elif self.state is FollowerState.COPYING and isinstance(message, Piece):
            self._receive_piece(message.piece)
        elif self.state is FollowerState.ROLLING_BACK and isinstance(message, Records):
            self._receive_records(message)

    def _refused(self, message: Refuse) -> None:
        if message.code is RefusalCode.STALE_EPOCH and message.epoch > self._replica.view.epoch:
            self._replica.emit(FetchView(message.epoch))
        # Asked again when the silence has lasted, or when the view changes.
        self.state = FollowerState.GREETING

    def _receive_verdict(self, message: Downward) -> None:
        match message:
            case Continue() | Wedge() if self._replica.facts.is_copying:
                # Either a clone that nothing was copied into yet is not needed, or an unfinished copy was judged where
                # the store beside it may be judged otherwise.
                self._leave_session()
                self._replica.order(CancelCopy(self._session))
            case Continue():
                self._continue(message)
            case CatchUp():
                self._catch_up(all_retained=not self._replica.facts.sync.is_ready)
            case RollBack():
                self._begin_rollback(message.seq)
            case Reset():
                self.start_over()
            case Wedge():
                self.state = FollowerState.WEDGED
                self._replica.problem = (
                    f"{message.reason}: this copy stays as it is; compare it with {self.upstream}'s and decide"
                )

    # Batches

    def _continue(self, message: Continue) -> None:
        replica = self._replica
        self._silent_ticks = 0
        replica.problem = ""
        if replica.facts.takeover == message.takeover:
            self.state = FollowerState.STREAMING
            self._established()
        else:
            # No batch is taken before the table is stored: without it the log would stand in the wrong history.
            self.state = FollowerState.ADOPTING
            replica.order(AdoptTable(message.takeover, replica.view.epoch))

    def table_adopted(self) -> None:
        self._replica.make_downstreams_greet()
        if self.state is FollowerState.ADOPTING:
            self.lose("the table was adopted")

    def _established(self) -> None:
        replica = self._replica
        replica.note_own()
        replica.spread_news()
        replica.downstreams.greet_all()

    def _receive_streaming(self, message: Downward) -> None:
        replica = self._replica
        self._silent_ticks = 0
        match message:
            case Sent():
                replica.ledger.merge(message.durable, except_node=replica.node)
                self._take_batch(message)
                replica.spread_news()
            case Progress():
                replica.ledger.merge(message.durable, except_node=replica.node)
                replica.spread_news()
                if message.sent_seq > replica.accepted_seq:
                    self.lose("a batch was lost")
            case Bye():
                self.lose(message.reason)
            case CatchUp() | RollBack() | Reset() | Wedge():
                self.lose("the upstream forgot this session and answered an old Hello again")
            case _:
                pass  # The verdict came twice.

    def _take_batch(self, message: Sent) -> None:
        replica, batch = self._replica, message.batch
        if batch.last_seq <= replica.accepted_seq:
            self.acknowledge()
        elif self.follows(batch.previous_seq):
            replica.append(batch)
            replica.order(Apply(batch, min(replica.commit_point, batch.last_seq)))
        else:
            self.lose("a gap")

    def follows(self, previous_seq: int) -> bool:
        """A batch is taken only where it belongs."""
        return previous_seq == self._replica.accepted_seq

    # Pieces

    def start_over(self) -> None:
        """Copy everything. A copy that was begun for another source is given up first, and Hello said with what the
        store itself holds."""
        self._leave_session()
        if self._replica.facts.is_copying and self._replica.facts.sync.end_seq:
            self._replica.order(CancelCopy(self._session))
        else:
            self._replica.order(BeginCopy(self._session, is_clone=False))

    def _leave_session(self) -> None:
        self.state = FollowerState.COPYING
        self._asked_after = self._next_after = None
        self._held_piece = None
        self._rollback = None
        self._pieces_ahead = 0
        self._silent_ticks = 0

    def _catch_up(self, *, all_retained: bool) -> None:
        self._leave_session()
        self._all_retained = all_retained
        facts = self._replica.facts
        self._ask_piece(facts.high_seq if facts.sync.is_ready else facts.sync.through_seq)

    def _ask_piece(self, after_seq: int) -> None:
        facts = self._replica.facts
        start_seq = facts.high_seq if facts.sync.is_ready else facts.sync.start_seq
        min_end_seq = max(after_seq, facts.sync.end_seq)
        self._asked_after = after_seq
        ask = AskPiece(self._session, self._replica.view.epoch, after_seq, start_seq, min_end_seq, self._all_retained)
        self._replica.emit(SendUp(ask))

    def _receive_piece(self, piece: CatchUpPiece) -> None:
        if piece.slice.after_seq != self._asked_after:
            return
        self._silent_ticks = 0
        self._asked_after = None
        facts = self._replica.facts
        is_one_step = facts.sync.is_ready and piece.tables is not None
        if self._is_member and not facts.is_copying and not is_one_step:
            self._held_piece = piece
            self._replica.order(BeginCopy(self._session, is_clone=True))
        else:
            self._apply(piece)

    def _apply(self, piece: CatchUpPiece) -> None:
        self._pieces_ahead += 1
        self._next_after = piece.slice.through_seq if piece.tables is None else None
        self._replica.order(ApplyPiece(self._session, piece))
        self._maybe_ask_next()

    def _maybe_ask_next(self) -> None:
        """While the writer applies a piece the next one is under way."""
        if self._next_after is not None and self._asked_after is None and self._pieces_ahead < PIECES_AHEAD_MAX:
            self._ask_piece(self._next_after)

    def copied(self, effect: ApplyPiece | ApplyRollback | BeginCopy | CancelCopy) -> None:
        """The writer did its part."""
        if self.state is not FollowerState.COPYING or effect.session != self._session:
            return
        self._silent_ticks = 0
        facts = self._replica.facts
        match effect:
            case BeginCopy() if self._held_piece is not None:
                piece, self._held_piece = self._held_piece, None
                self._apply(piece)
            case BeginCopy() if self._rollback is not None:
                self._apply_rollback()
            case BeginCopy():
                self._catch_up(all_retained=True)
            case CancelCopy():
                self.lose("the copy was given up")
            case ApplyRollback():
                self._catch_up(all_retained=True)
            case ApplyPiece():
                self._pieces_ahead -= 1
                if facts.sync.is_ready:
                    # The log changed by more than an append: Hello, before anything else is taken.
                    self.lose("caught up")
                else:
                    self._maybe_ask_next()

    # Rolling back

    def _begin_rollback(self, seq: int) -> None:
        self.state = FollowerState.ROLLING_BACK
        self._silent_ticks = 0
        self._rollback_to = seq
        self._records = []
        self._records_size = 0
        self._replica.emit(FindDiverged(self._session, seq))

    def diverged_found(self, effect: FindDiverged, keys: tuple[bytes, ...] | None) -> None:
        if self.state is not FollowerState.ROLLING_BACK or effect.session != self._session:
            return
        if keys is None:
            self.start_over()
            return
        self._keys = keys
        self._ask_records()

    def _ask_records(self) -> None:
        """Asked at least once, even for no key: the answer names the state that everything is brought to."""
        epoch = self._replica.view.epoch
        self._replica.emit(SendUp(AskRecords(self._session, epoch, cut_question(self._keys), self._rollback_to)))

    def _receive_records(self, message: Records) -> None:
        found = message.restorable
        if self._keys and not found.answered:
            self.lose("an answer to nothing")
            return
        self._silent_ticks = 0
        self._records += found.records
        self._records_size += sum(map(len, found.records))
        self._keys = self._keys[found.answered :]
        if self._records_size > ROLLBACK_BYTES_MAX:
            self.start_over()
        elif self._keys:
            self._ask_records()
        else:
            self._leave_session()
            self._rollback = Rollback(self._rollback_to, tuple(self._records), found.history_id, found.end_seq)
            if self._is_member:
                self._replica.order(BeginCopy(self._session, is_clone=True))
            else:
                self._apply_rollback()

    def _apply_rollback(self) -> None:
        rollback, self._rollback = self._rollback, None
        assert rollback is not None
        self._replica.order(ApplyRollback(self._session, rollback))


def cut_question(keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """As many keys as fit into one question."""
    size = 0
    for index, key in enumerate(keys[:ROLLBACK_KEYS_PER_QUESTION]):
        size += len(key)
        if size > READ_CHUNK_BYTES_MAX and index:
            return keys[:index]
    return keys[:ROLLBACK_KEYS_PER_QUESTION]
