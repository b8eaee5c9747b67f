"""One environment of a store, with what is known of its committed state.

A store stands in one place. A compaction and a copy beside it are further places, which it may move to.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kayos.errors import FailedPrecondition
from kayos.files import fsync_path
from kayos.model.pin import Pin
from kayos.storage.changes import Changes
from kayos.storage.environment import Environment
from kayos.storage.interface import Identity, StoreState
from kayos.storage.layout import (
    FORMAT_VERSION,
    IDENTITY,
    STATE,
    SYNC,
    StateRow,
    Sums,
    SyncRow,
    pack_identity,
    pack_sync,
    unpack_pin,
)
from kayos.storage.meta import Meta, read_meta

INCARNATION_BYTES = 16


@dataclass(slots=True)
class Place:
    """`sums` are those of `log` and `retained`; `known_transaction` is the last that was surely committed."""

    generation: int
    env: Environment
    state: StoreState
    sums: tuple[Sums, Sums]
    pins: dict[str, Pin]
    known_transaction: int

    @contextmanager
    def changing(self) -> Iterator[Changes]:
        """One durable change: all of it, or none, or (WriteUnknown) the environment must be reopened."""
        with self.env.writing() as txn:
            changes = Changes(self.env, txn, self.state, self.sums, self.pins)
            yield changes
            changes.finish()
        self.pins, self.sums = changes.pins, (changes.log_sums, changes.retained_sums)
        self.state = changes.state
        self.known_transaction = self.env.last_transaction


def load_place(env: Environment, generation: int, identity: Identity) -> Place:
    """Refuses another shard's data and another format."""
    with env.reading() as txn:
        meta = read_meta(txn, env)
        pins = {key.decode(): unpack_pin(key, row) for key, row in txn.cursor(env.tables.pins)}
    if meta.format_version != FORMAT_VERSION:
        raise FailedPrecondition(
            f"{env.directory} has format {meta.format_version}, this Kayos reads {FORMAT_VERSION}: "
            "use a version that matches"
        )
    if meta.identity != identity:
        raise FailedPrecondition(
            f"{env.directory} belongs to topic {meta.identity.topic_id} shard {meta.identity.shard} "
            f"({meta.identity.mode}), not to {identity.topic_id} shard {identity.shard} "
            f"({identity.mode}): give each shard its own directory back"
        )
    sums = Sums(*meta.state.log), Sums(*meta.state.retained)
    return Place(generation, env, _state_of(meta), sums, pins, env.last_transaction)


def _state_of(meta: Meta) -> StoreState:
    row = meta.state
    return StoreState(
        identity=meta.identity,
        incarnation=os.urandom(INCARNATION_BYTES),
        high_seq=row.high_seq,
        message_seq=row.message_seq,
        last_timestamp_ms=row.last_timestamp_ms,
        floors=row.floors,
        takeover=meta.takeover,
        epoch=row.epoch,
        commit_point=row.commit_point,
        sync=meta.sync,
        lacks_retained=meta.lacks_retained,
    )


def create_environment(
    path: Path, map_bytes: int, identity: Identity, state: StateRow, sync: SyncRow | None = None
) -> Environment:
    """A new one with its first rows, durable but for the name of its directory."""
    env = Environment(path, map_bytes)
    try:
        with env.writing() as txn:
            txn.put(IDENTITY, pack_identity(identity), db=env.tables.meta)
            txn.put(STATE, state.pack(), db=env.tables.meta)
            if sync is not None:
                txn.put(SYNC, pack_sync(sync), db=env.tables.meta)
        fsync_path(env.directory)
    except BaseException:
        env.close()
        raise
    return env
