"""What happens to the machine. Everything comes in through `Replica.step`, one event at a time."""

from enum import Enum, auto
from typing import NamedTuple

from kayos.model.catch_up import CatchUpPiece, Restorable
from kayos.model.chain import ChainView
from kayos.model.write import Batch
from kayos.replica.effects import FindDiverged, FindRecords, ReadPiece, WriterEffect
from kayos.replica.facts import Facts
from kayos.stream.messages import Downward, Upward


class ViewChanged(NamedTuple):
    view: ChainView


class Tick(NamedTuple):
    """Time passes; the driver says how fast."""


class LinkReady(NamedTuple):
    """The connection to the node that is followed stands."""

    node: str


class LinkLost(NamedTuple):
    """The connection with a node broke; what was on its way is lost."""

    node: str


class FromUpstream(NamedTuple):
    node: str
    message: Downward


class FromDownstream(NamedTuple):
    node: str
    message: Upward


class Sequenced(NamedTuple):
    """The head's writer gave a group its sequences; it is not fsynced yet."""

    batch: Batch


class Synced(NamedTuple):
    """The head's writer fsynced its group."""

    facts: Facts


class Done(NamedTuple):
    effect: WriterEffect
    facts: Facts


class Trouble(Enum):
    RESET = auto()  # a piece told that deletes were missed: copy everything
    RETRY = auto()  # nothing was changed, and it may work later (no room, say)
    BROKEN = auto()  # the store's state is unknown or damaged: this life of the replica is over


class Failed(NamedTuple):
    """What the writer was to do was not done; `effect` is None when it was a head's group."""

    effect: WriterEffect | None
    trouble: Trouble
    reason: str
    facts: Facts


class PieceRead(NamedTuple):
    effect: ReadPiece
    piece: CatchUpPiece


class RecordsFound(NamedTuple):
    effect: FindRecords
    restorable: Restorable


class DivergedFound(NamedTuple):
    """`keys` is None when there are too many."""

    effect: FindDiverged
    keys: tuple[bytes, ...] | None


class ReadFailed(NamedTuple):
    effect: ReadPiece | FindRecords | FindDiverged
    reason: str


class Until(Enum):
    COPIES = auto()
    ALL = auto()
    ANY_TAIL = auto()
    ALL_TAILS = auto()


class Wait(NamedTuple):
    """Tell `token` when (`history_id`, `seq`) is held as `until` says; `copies` counts with COPIES only."""

    token: int
    history_id: bytes
    seq: int
    until: Until
    copies: int = 0


class StopWaiting(NamedTuple):
    token: int


Event = (
    ViewChanged
    | Tick
    | LinkReady
    | LinkLost
    | FromUpstream
    | FromDownstream
    | Sequenced
    | Synced
    | Done
    | Failed
    | PieceRead
    | RecordsFound
    | DivergedFound
    | ReadFailed
    | Wait
    | StopWaiting
)
