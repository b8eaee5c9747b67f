"""The words of the conversation.

A downstream opens a session with Hello; every word of it carries the session's number and the epoch, so that a word
that was late, doubled or said in another epoch is recognized. Both sides check epoch and session before anything else.

    downstream                                upstream
    Hello                            →
                                     ←        Continue | CatchUp | RollBack | Reset | Wedge | Refuse
    AskRecords                       →        (rolling back)
                                     ←        Records
    AskPiece                         →        (catching up)
                                     ←        Piece
    Ack                              →        (streaming; also as a sign of life)
                                     ←        Sent, Progress
                                     ←        Bye: say Hello again
"""

from enum import StrEnum
from typing import NamedTuple

from kayos.model.catch_up import CatchUpPiece, Restorable
from kayos.model.sync import SyncState
from kayos.model.takeover import TakeoverTable
from kayos.model.write import Batch

# node → the sequence up to which it has fsynced this chain's log
Durable = dict[str, int]


class Hello(NamedTuple):
    """Who is there and what it holds. `commit_point` is the highest that it has itself seen, `purge_seq` and
    `removal_seq` what was removed from its log. While a copy is filled beside the store, `sync` is the copy's, and
    table and `high_seq` are the store's: what the copy would replace."""

    session: int
    epoch: int
    node: str
    incarnation: bytes
    takeover: TakeoverTable
    high_seq: int
    commit_point: int
    purge_seq: int
    removal_seq: int
    sync: SyncState


class Continue(NamedTuple):
    """What the downstream holds is a prefix of the upstream's log, whose table it takes over; batches follow."""

    session: int
    epoch: int
    takeover: TakeoverTable


class CatchUp(NamedTuple):
    """The downstream is behind what is kept in memory (or goes on with a catch-up): it asks for pieces."""

    session: int
    epoch: int


class RollBack(NamedTuple):
    """The downstream undoes what it holds above `seq`, then catches up."""

    session: int
    epoch: int
    seq: int


class Reset(NamedTuple):
    """Rows cannot tell what the downstream must undo or has missed: it copies everything into a fresh store."""

    session: int
    epoch: int
    reason: str


class Wedge(NamedTuple):
    """Following would take the downstream below the commit point that it has seen: an operator must look."""

    session: int
    epoch: int
    reason: str


class RefusalCode(StrEnum):
    STALE_EPOCH = "stale_epoch"
    NOT_IN_CHAIN = "not_in_chain"


class Refuse(NamedTuple):
    """No conversation; `epoch` is the refuser's."""

    session: int
    epoch: int
    code: RefusalCode
    reason: str


class Sent(NamedTuple):
    """A batch, forwarded before it is fsynced here."""

    session: int
    epoch: int
    batch: Batch
    durable: Durable


class Progress(NamedTuple):
    """A sign of life: how far batches were sent, and what is durable where."""

    session: int
    epoch: int
    sent_seq: int
    durable: Durable


class Ack(NamedTuple):
    """Cumulative: what is durable on the downstream and on those behind it."""

    session: int
    epoch: int
    synced_seq: int
    durable: Durable


class AskPiece(NamedTuple):
    """To be read at a state at or above `min_end_seq`, once that is fsynced: what the downstream holds was."""

    session: int
    epoch: int
    after_seq: int
    start_seq: int
    min_end_seq: int
    all_retained: bool


class Piece(NamedTuple):
    session: int
    epoch: int
    piece: CatchUpPiece


class AskRecords(NamedTuple):
    """Which of these keys stand at or below the divergence point? Answered at a state at or above it."""

    session: int
    epoch: int
    keys: tuple[bytes, ...]
    through_seq: int


class Records(NamedTuple):
    session: int
    epoch: int
    restorable: Restorable


class Bye(NamedTuple):
    """The session is over (the upstream's log changed by more than an append, or the downstream fell behind)."""

    session: int
    epoch: int
    reason: str


Upward = Hello | Ack | AskPiece | AskRecords
Downward = Continue | CatchUp | RollBack | Reset | Wedge | Refuse | Sent | Progress | Piece | Records | Bye
Verdict = Continue | CatchUp | RollBack | Reset | Wedge
