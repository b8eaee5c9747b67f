"""The durable store: one shard's copy in LMDB.

One thread writes and replaces `state` after each durable commit; readers see the environment's committed
state in short transactions. An error of a commit leaves the outcome open: the store then refuses writes until
`reopen` has read back what the disk holds.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kayos.errors import (
    DamagedStore,
    FailedPrecondition,
    Gap,
    StaleEpoch,
    Unavailable,
    WriteUnknown,
)
from kayos.files import fsync_path
from kayos.limits import (
    COMPACT_FREE_BYTES_MIN,
    COMPACT_FREE_FRACTION,
    DISK_RESERVE_BYTES_MAX,
    GROUP_BYTES_MAX,
    MAP_BYTES_DEFAULT,
    STORE_FULL_FRACTION,
)
from kayos.model.pin import Pin
from kayos.model.snapshot import LogSlice
from kayos.model.takeover import TakeoverRow
from kayos.model.write import Batch, Request
from kayos.storage import catch_up, generation
from kayos.storage.batch import append_records, check_batch
from kayos.storage.changes import Changes
from kayos.storage.compaction import Compaction
from kayos.storage.environment import Environment
from kayos.storage.interface import (
    CatchUpTables,
    CommitResult,
    Identity,
    StoreState,
    SyncPhase,
    SyncState,
    ignore_batch,
)
from kayos.storage.layout import (
    FORMAT_VERSION,
    IDENTITY,
    STATE,
    SYNC,
    TAKEOVER,
    StateRow,
    Sums,
    pack_identity,
    pack_sync,
    pack_takeover,
    unpack_pin,
)
from kayos.storage.lmdb_reads import LmdbReads
from kayos.storage.meta import read_meta
from kayos.storage.room import DiskRoom, find_disk_room
from kayos.storage.sequencer import Sequencer
from kayos.storage.sweep import Sweep
from kayos.storage.transaction import Transaction
from kayos.storage.verify import verify_before_use
from kayos.storage.witness import Witness

_INCARNATION_BYTES = 16


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """`verify`: read every row once before the store is used (see storage/verify.py)."""

    map_bytes: int = MAP_BYTES_DEFAULT
    full_fraction: float = STORE_FULL_FRACTION
    disk_reserve_bytes_max: int = DISK_RESERVE_BYTES_MAX
    verify: bool = True


class LmdbStore(LmdbReads):
    """See kayos.storage.interface.Store for what each call means."""

    def __init__(self, directory: Path, identity: Identity, options: StoreOptions) -> None:
        self.directory = directory
        self.identity = identity
        self.options = options
        self.generation = 0
        self._needs_reopen = False
        self._known_transaction = 0
        self._sweep = Sweep()
        self._witness: Witness | None = None
        self.env: Environment
        self._state: StoreState
        self._sums: tuple[Sums, Sums]
        self._pins: dict[str, Pin]

    @classmethod
    def open(cls, directory: Path, identity: Identity, options: StoreOptions | None = None) -> "LmdbStore":
        """Open or create; refuses damage, another shard's data and another format."""
        store = cls(directory, identity, options or StoreOptions())
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        witness = store._witness = Witness(directory / "witness")
        try:
            store._open_current()
        except BaseException:
            witness.close()
            raise
        return store

    def _open_current(self) -> None:
        self.generation = generation.read_current(self.directory)
        if not self.generation:
            self._check_never_used()
            self._create()
        generation.remove_others(self.directory, self.generation)
        path = generation.environment_path(self.directory, self.generation)
        if self.options.verify:
            verify_before_use(path, self.options.map_bytes)
        self._use(Environment(path, self.options.map_bytes))

    def _check_never_used(self) -> None:
        """A crash during the creation leaves an environment that nothing was ever written to, and a blank
        witness; a store whose CURRENT was lost must not be taken for one."""
        if self._witness is not None and self._witness.read() is not None:
            raise DamagedStore(
                f"{self.directory / generation.CURRENT} is missing although the store was in use: "
                "restore the directory from another copy"
            )

    def _create(self) -> None:
        """Prepare the first generation whole before it is named, so that a crash leaves none or all."""
        generation.remove_others(self.directory, 0)
        self.generation = 1
        env = Environment(generation.environment_path(self.directory, 1), self.options.map_bytes)
        with env.writing() as txn:
            txn.put(IDENTITY, pack_identity(self.identity), db=env.tables.meta)
            txn.put(STATE, StateRow().pack(), db=env.tables.meta)
        env.close()
        # Every name on the way to the data must be as durable as the data.
        fsync_path(env.directory)
        fsync_path(self.directory.parent)
        generation.write_current(self.directory, self.generation)

    def _use(self, env: Environment) -> None:
        try:
            self._load(env)
            self._check_witness(env)
        except BaseException:
            env.close()
            raise
        self.env = env
        self._needs_reopen = False
        self._sweep = Sweep()
        self._note_commit()

    def copy_to(self, number: int) -> "LmdbStore":
        """A compact copy of the committed state as another generation; nothing of it is witnessed yet."""
        path = generation.environment_path(self.directory, number)
        with self._reading_any() as (txn, env):
            env.copy_into(path, txn)
        copy = LmdbStore(self.directory, self.identity, self.options)
        copy.generation = number
        copy.env = Environment(path, self.options.map_bytes)
        copy._load(copy.env)
        return copy

    def _note_commit(self) -> None:
        self._known_transaction = self.env.last_transaction
        if self._witness is not None:
            self._witness.note(generation=self.generation, transaction=self._known_transaction)

    def _load(self, env: Environment) -> None:
        with env.reading() as txn:
            meta = read_meta(txn, env)
            pins = {key.decode(): unpack_pin(key, row) for key, row in txn.cursor(env.tables.pins)}
        if meta.format_version != FORMAT_VERSION:
            raise FailedPrecondition(
                f"{env.directory} has format {meta.format_version}, this Kayos reads {FORMAT_VERSION}: "
                "use a version that matches"
            )
        if meta.identity != self.identity:
            raise FailedPrecondition(
                f"{env.directory} belongs to topic {meta.identity.topic_id} shard {meta.identity.shard} "
                f"({meta.identity.mode}), not to {self.identity.topic_id} shard {self.identity.shard} "
                f"({self.identity.mode}): give each shard its own directory back"
            )
        row = meta.state
        self._state = StoreState(
            identity=meta.identity,
            incarnation=os.urandom(_INCARNATION_BYTES),
            high_seq=row.high_seq,
            message_seq=row.message_seq,
            last_timestamp_ms=row.last_timestamp_ms,
            floors=row.floors,
            takeover=meta.takeover,
            epoch=row.epoch,
            commit_point=row.commit_point,
            sync=meta.sync,
        )
        self._sums, self._pins = (Sums(*row.log), Sums(*row.retained)), pins

    def _check_witness(self, env: Environment) -> None:
        noted = self._witness.read() if self._witness is not None else None
        if noted is not None and noted[0] == self.generation and noted[1] > env.last_transaction:
            raise DamagedStore(
                f"{env.directory} is at transaction {env.last_transaction} but was at {noted[1]} before: "
                "its newest commits are missing; restore it from another copy"
            )

    # Writing

    @contextmanager
    def changing(self) -> Iterator[Changes]:
        """One durable change: all of it, or none, or (WriteUnknown) the store must be reopened."""
        if self._needs_reopen:
            raise Unavailable("the store is being reopened after a disk error: try again", retry_delay_ms=200)
        try:
            with self.env.writing() as txn:
                changes = Changes(self.env, txn, self._state, self._sums, self._pins)
                yield changes
                changes.finish()
        except (WriteUnknown, DamagedStore):
            self._needs_reopen = True
            raise
        if changes.pins != self._pins:
            self._sweep.pins_changed(self._pins, changes.pins)
        self._state, self._pins = changes.state, changes.pins
        self._sums = (changes.log_sums, changes.retained_sums)
        self._note_commit()

    def commit(
        self, requests: Sequence[Request], *, now_ms: int, forward: Callable[[Batch], None] = ignore_batch
    ) -> CommitResult:
        self._check_ready_to_write()
        answers: tuple[object, ...] = ()
        try:
            with self.changing() as changes:
                sequencer = Sequencer(changes, now_ms=now_ms, nearly_full=self._is_nearly_full(changes.txn))
                answers, batch = sequencer.sequence(requests)
                if batch is None:
                    raise _NothingToWriteError
                forward(batch)
        except _NothingToWriteError:
            return CommitResult(answers, None)  # type: ignore[arg-type]
        return CommitResult(answers, batch)

    def apply(self, batch: Batch) -> None:
        self._check_ready_to_write()
        state = self._state
        if batch.epoch < state.epoch:
            raise StaleEpoch(
                f"the batch is of epoch {batch.epoch}, this replica is at {state.epoch}", epoch=state.epoch
            )
        if batch.last_seq <= state.high_seq:
            return
        if batch.previous_seq != state.high_seq:
            raise Gap(
                f"the batch follows sequence {batch.previous_seq}, this replica is at {state.high_seq}",
                high_seq=state.high_seq,
                previous_seq=batch.previous_seq,
            )
        records = check_batch(batch)
        with self.changing() as changes:
            append_records(changes, records, batch.records)
            changes.put_producers(batch.producers)
            changes.state = replace(
                changes.state, high_seq=batch.last_seq, last_timestamp_ms=batch.timestamp_ms, epoch=batch.epoch
            )

    def take_over(self, row: TakeoverRow) -> None:
        if row.start_seq != self._state.high_seq:
            raise FailedPrecondition(
                f"a takeover row must start at the high sequence {self._state.high_seq}, not {row.start_seq}"
            )
        with self.changing() as changes:
            takeover = changes.state.takeover.with_takeover(row)
            changes.txn.put(TAKEOVER, pack_takeover(takeover), db=changes.tables.meta)
            changes.state = replace(changes.state, takeover=takeover, epoch=max(changes.state.epoch, row.epoch))

    def save_epoch(self, epoch: int) -> None:
        with self.changing() as changes:
            changes.state = replace(changes.state, epoch=max(changes.state.epoch, epoch))

    def save_commit_point(self, commit_point: int) -> None:
        with self.changing() as changes:
            changes.state = replace(changes.state, commit_point=max(changes.state.commit_point, commit_point))

    def save_sync(self, sync: SyncState) -> None:
        with self.changing() as changes:
            changes.txn.put(SYNC, pack_sync(sync), db=changes.tables.meta)
            changes.state = replace(changes.state, sync=sync)

    def apply_catch_up(self, piece: LogSlice) -> None:
        with self.changing() as changes:
            catch_up.apply_piece(changes, piece)

    def finish_catch_up(self, tables: CatchUpTables) -> None:
        with self.changing() as changes:
            catch_up.apply_tables(changes, tables)

    def sweep_retained(self, rows_max: int) -> bool:
        if not self._sums[1].count:
            return True
        if not self._sweep.is_done:
            with self.changing() as changes:
                position = self._sweep.step(changes, rows_max)
            self._sweep.position = position
        return self._sweep.is_done

    def _check_ready_to_write(self) -> None:
        if self._state.sync.phase is not SyncPhase.READY:
            raise FailedPrecondition(f"this replica is {self._state.sync.phase}: it takes no writes until it is whole")

    def _is_nearly_full(self, txn: Transaction) -> bool:
        page_size = self.env.page_size
        used_bytes = self.env.used_pages(txn) * page_size
        if used_bytes >= self.options.full_fraction * self.options.map_bytes:
            return True
        reusable_bytes = (self.env.last_page + 1) * page_size - used_bytes
        return self.disk_room().is_short and reusable_bytes < 2 * GROUP_BYTES_MAX

    def disk_room(self) -> DiskRoom:
        options = self.options
        return find_disk_room(
            self.directory, full_fraction=options.full_fraction, reserve_bytes_max=options.disk_reserve_bytes_max
        )

    def reopen(self) -> None:
        """After a disk error: read back what is there. What may not have reached the disk is written anew."""
        known = self._known_transaction
        self.env.close()
        path = generation.environment_path(self.directory, self.generation)
        verify_before_use(path, self.options.map_bytes)
        self._use(Environment(path, self.options.map_bytes))
        if self._known_transaction > known:
            # The failed commit shows although its fsync failed: Linux may hold it in memory only, and a
            # second fsync would prove nothing. A fresh copy is fsynced for sure.
            compaction = Compaction(self)
            compaction.prepare()
            compaction.swap()

    def wants_compaction(self) -> bool:
        usage = self.usage()
        enough = usage.free_bytes >= COMPACT_FREE_BYTES_MIN
        return enough and usage.free_bytes >= COMPACT_FREE_FRACTION * usage.file_bytes

    def swap_environment(self, env: Environment, number: int) -> None:
        """Go on in another environment of the same content (writer's thread); readers of the old one finish."""
        old, self.generation = self.env, number
        generation.write_current(self.directory, number)
        incarnation = self._state.incarnation
        self._use(env)
        self._state = replace(self._state, incarnation=incarnation)
        old.close()
        generation.remove_others(self.directory, number)

    def check_readers(self) -> int:
        return self.env.check_readers()

    def close(self) -> None:
        self.env.close()
        if self._witness is not None:
            self._witness.close()


class _NothingToWriteError(Exception):
    """Every request of the group was refused or a repeat: end the transaction without writing."""
