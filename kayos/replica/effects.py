"""What the machine wants done. The driver performs effects in their order.

Effects of the writer run one after the other in the order given, each ends in `Done(effect, facts)`, or in
`Failed(effect, …)`. Effects of readers run whenever they can and come back as their own events.
"""

from typing import NamedTuple

from kayos.model.catch_up import CatchUpPiece, Rollback
from kayos.model.takeover import TakeoverTable
from kayos.model.write import Batch
from kayos.stream.messages import AskPiece, AskRecords, Downward, Upward


class Follow(NamedTuple):
    """Keep a connection to this node and say when it is there (`LinkReady`); empty: to nobody."""

    node: str


class SendUp(NamedTuple):
    """`can_wait`: nobody waits for this word, so it may go out a moment later, together with the next one."""

    message: Upward
    can_wait: bool = False


class SendDown(NamedTuple):
    node: str
    message: Downward
    can_wait: bool = False


class FetchView(NamedTuple):
    """Somebody knows a later epoch."""

    epoch: int


# For the writer


class Apply(NamedTuple):
    """Batches that stand next to each other in the queue may share one commit."""

    batch: Batch
    commit_point: int


class SaveEpoch(NamedTuple):
    epoch: int


class SaveCommitPoint(NamedTuple):
    commit_point: int


class TakeOver(NamedTuple):
    """Begin a new history, whose id the driver draws, at the log's end."""

    epoch: int
    start_seq: int


class AdoptTable(NamedTuple):
    takeover: TakeoverTable
    epoch: int


class ApplyPiece(NamedTuple):
    session: int
    piece: CatchUpPiece


class ApplyRollback(NamedTuple):
    session: int
    rollback: Rollback


class BeginCopy(NamedTuple):
    """Fill a copy beside the store, from nothing or from what the store holds (`is_clone`). The store stays as it is,
    and what it has acknowledged with it, until the copy is whole."""

    session: int
    is_clone: bool


class CancelCopy(NamedTuple):
    session: int


# For readers


class ReadPiece(NamedTuple):
    node: str
    ask: AskPiece


class FindRecords(NamedTuple):
    node: str
    ask: AskRecords


class FindDiverged(NamedTuple):
    """The keys of what stands above `after_seq`."""

    session: int
    after_seq: int


# For those who wait


class Answer(NamedTuple):
    token: int
    copies: int


class Forsake(NamedTuple):
    """This replica cannot say any more whether the wait would have ended well."""

    token: int
    reason: str


class Release(NamedTuple):
    """Consumers may see boundaries up to here."""

    seq: int


class Serve(NamedTuple):
    """The head accepts writes from now on, or no longer."""

    accepts_writes: bool


WriterEffect = (
    Apply | SaveEpoch | SaveCommitPoint | TakeOver | AdoptTable | ApplyPiece | ApplyRollback | BeginCopy | CancelCopy
)
ReaderEffect = ReadPiece | FindRecords | FindDiverged
Effect = WriterEffect | ReaderEffect | Follow | SendUp | SendDown | FetchView | Answer | Forsake | Release | Serve
