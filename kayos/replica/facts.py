"""What the machine knows of its store: told after every change, never read."""

from typing import NamedTuple

from kayos.model.sync import READY, SyncState
from kayos.model.takeover import TakeoverTable


class Facts(NamedTuple):
    """A committed, fsynced state. `is_copying`: a copy is being filled beside the store, and these are its facts."""

    high_seq: int = 0
    takeover: TakeoverTable = TakeoverTable()
    purge_seq: int = 0
    removal_seq: int = 0
    epoch: int = 0
    commit_point: int = 0
    sync: SyncState = READY
    is_copying: bool = False
