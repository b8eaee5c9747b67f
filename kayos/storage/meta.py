"""The rows of `meta`: whose copy this is and where it stands."""

from dataclasses import dataclass

from kayos.errors import DamagedStore
from kayos.model.sync import SyncState
from kayos.model.takeover import TakeoverTable
from kayos.storage.environment import Environment
from kayos.storage.interface import Identity
from kayos.storage.layout import (
    IDENTITY,
    STATE,
    SYNC,
    TAKEOVER,
    StateRow,
    SyncRow,
    unpack_identity,
    unpack_sync,
    unpack_takeover,
)
from kayos.storage.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Meta:
    format_version: int
    identity: Identity
    state: StateRow
    takeover: TakeoverTable
    sync: SyncState
    lacks_retained: bool


def read_meta(txn: Transaction, env: Environment) -> Meta:
    """All of it, of one committed state; a store without identity or state is damaged."""
    table = env.tables.meta
    takeover = txn.get(TAKEOVER, db=table)
    stored_sync = txn.get(SYNC, db=table)
    sync = SyncRow() if stored_sync is None else unpack_sync(stored_sync)
    format_version, identity = unpack_identity(_read_row(txn, env, IDENTITY))
    return Meta(
        format_version=format_version,
        identity=identity,
        state=read_state_row(txn, env),
        takeover=TakeoverTable() if takeover is None else unpack_takeover(takeover),
        sync=sync.sync,
        lacks_retained=sync.lacks_retained,
    )


def read_state_row(txn: Transaction, env: Environment) -> StateRow:
    return StateRow.unpack(_read_row(txn, env, STATE))


def _read_row(txn: Transaction, env: Environment, name: bytes) -> bytes:
    stored = txn.get(name, db=env.tables.meta)
    if stored is None:
        raise DamagedStore(f"{env.directory} lacks its row {name.decode()!r}: restore it from another copy")
    return stored
