"""The durable store: one shard's copy in LMDB.

One thread writes and replaces `state` after each durable commit; readers see the environment's committed
state in short transactions. An error of a commit leaves the outcome open: the store then refuses writes until
`reopen` has read back what the disk holds.

The store stands in one place, an environment of its directory. It moves to another when a compacted or a full copy of
it is ready; while a full copy is filled, the store stands there already, not ready, and keeps the place it came from.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kayos.errors import DamagedStore, FailedPrecondition, Unavailable, WriteUnknown
from kayos.files import fsync_path
from kayos.limits import (
    COMPACT_FREE_BYTES_MIN,
    COMPACT_FREE_FRACTION,
    DISK_RESERVE_BYTES_MAX,
    GROUP_BYTES_MAX,
    MAP_BYTES_DEFAULT,
    STORE_FULL_FRACTION,
)
from kayos.model.catch_up import CatchUpPiece, Rollback
from kayos.model.sync import SyncPhase, SyncState
from kayos.model.takeover import TakeoverRow, TakeoverTable
from kayos.model.write import Batch, Request
from kayos.storage import catch_up, generation
from kayos.storage.batch import append_runs, find_new, read_batches
from kayos.storage.changes import Changes
from kayos.storage.environment import Environment
from kayos.storage.interface import CommitResult, Identity, ignore_batch
from kayos.storage.kept_views import KeptView, KeptViews
from kayos.storage.layout import StateRow, SyncRow
from kayos.storage.lmdb_reads import LmdbReads
from kayos.storage.place import Place, create_environment, load_place
from kayos.storage.rollback import apply_rollback, check_rollback
from kayos.storage.room import DiskRoom, find_disk_room
from kayos.storage.sequencer import Sequencer
from kayos.storage.sweep import Sweep
from kayos.storage.transaction import Transaction
from kayos.storage.verify import verify_before_use
from kayos.storage.witness import Witness


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
        # How often the log was changed by something else than an append: a compaction that began before is void.
        self.rollbacks = 0
        self._needs_reopen = False
        self._sweep = Sweep()
        self._views = KeptViews()
        self._witness: Witness | None = None
        self.place: Place
        # Where the store stood before a copy was begun; a crash leaves it there.
        self._left: Place | None = None

    @classmethod
    def open(cls, directory: Path, identity: Identity, options: StoreOptions | None = None) -> "LmdbStore":
        """Open or create; refuses damage, another shard's data and another format."""
        store = cls(directory, identity, options or StoreOptions())
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        witness = store._witness = Witness(directory / "witness")
        try:
            store._open_current(verify=store.options.verify)
        except BaseException:
            witness.close()
            raise
        return store

    @property
    def generation(self) -> int:
        return self.place.generation

    def _open_current(self, *, verify: bool) -> None:
        number = generation.read_current(self.directory)
        if not number:
            self._check_never_used()
            number = self._create()
        generation.remove_others(self.directory, number)
        path = generation.environment_path(self.directory, number)
        if verify:
            verify_before_use(path, self.options.map_bytes)
        env = Environment(path, self.options.map_bytes)
        try:
            place = load_place(env, number, self.identity)
            self._check_witness(place)
        except BaseException:
            env.close()
            raise
        self._stand_in(place)

    def _check_never_used(self) -> None:
        """A crash during the creation leaves an environment that nothing was ever written to, and a blank
        witness; a store whose CURRENT was lost must not be taken for one."""
        if self._witness is not None and self._witness.read() is not None:
            raise DamagedStore(
                f"{self.directory / generation.CURRENT} is missing although the store was in use: "
                "restore the directory from another copy"
            )

    def _create(self) -> int:
        """Prepare the first generation whole before it is named, so that a crash leaves none or all."""
        generation.remove_others(self.directory, 0)
        path = generation.environment_path(self.directory, 1)
        create_environment(path, self.options.map_bytes, self.identity, StateRow()).close()
        # Every name on the way to the data must be as durable as the data.
        fsync_path(self.directory.parent)
        generation.write_current(self.directory, 1)
        return 1

    def _stand_in(self, place: Place) -> None:
        self._views.clear()
        self.place = place
        self._needs_reopen = False
        self._sweep = Sweep()
        self._note_commit()

    def _note_commit(self) -> None:
        """A copy beside the store is not witnessed: a crash goes back to where the store stood before."""
        if self._witness is not None and self._left is None:
            self._witness.note(generation=self.generation, transaction=self.place.known_transaction)

    def _check_witness(self, place: Place) -> None:
        noted = self._witness.read() if self._witness is not None else None
        if noted is not None and noted[0] == place.generation and noted[1] > place.known_transaction:
            raise DamagedStore(
                f"{place.env.directory} is at transaction {place.known_transaction} but was at {noted[1]} before: "
                "its newest commits are missing; restore it from another copy"
            )

    # Writing

    @contextmanager
    def changing(self) -> Iterator[Changes]:
        """One durable change: all of it, or none, or (WriteUnknown) the store must be reopened."""
        pins = self.place.pins
        with self._changing_in(self.place) as changes:
            yield changes
        if changes.pins != pins:
            self._sweep.pins_changed(pins, changes.pins)
        self._note_commit()

    @contextmanager
    def _changing_in(self, place: Place) -> Iterator[Changes]:
        if self._needs_reopen:
            raise Unavailable("the store is being reopened after a disk error: try again", retry_delay_ms=200)
        try:
            with place.changing() as changes:
                yield changes
        except (WriteUnknown, DamagedStore):
            self._needs_reopen = True
            raise

    def commit(
        self,
        requests: Sequence[Request],
        *,
        now_ms: int,
        commit_point: int = 0,
        forward: Callable[[Batch], None] = ignore_batch,
    ) -> CommitResult:
        self._check_ready_to_write()
        self._views.clear()
        answers: tuple[object, ...] = ()
        try:
            with self.changing() as changes:
                sequencer = Sequencer(changes, now_ms=now_ms, nearly_full=self._is_nearly_full(changes.txn))
                answers, batch = sequencer.sequence(requests)
                if batch is None:
                    raise _NothingToWriteError
                changes.raise_commit_point(commit_point)
                forward(batch)
        except _NothingToWriteError:
            return CommitResult(answers, None)  # type: ignore[arg-type]
        return CommitResult(answers, batch)

    def apply(self, batches: Sequence[Batch], *, commit_point: int = 0) -> None:
        self._check_ready_to_write()
        fresh = find_new(batches, self.state)
        if not fresh:
            return
        runs = read_batches(fresh, is_compact=self.is_compact)
        last = fresh[-1]
        with self.changing() as changes:
            append_runs(changes, runs)
            changes.state = replace(
                changes.state, high_seq=last.last_seq, last_timestamp_ms=last.timestamp_ms, epoch=last.epoch
            )
            changes.raise_commit_point(commit_point)

    def keep_view(self, commit_point: int) -> None:
        """Writer's thread, before a change: what stands now can be read until a newer boundary is released."""
        if self.state.sync.is_ready and not self.state.is_copying:
            self._views.keep(self.identity, self.place, commit_point)

    def find_view(self, commit_point: int) -> KeptView | None:
        """Any thread: the store at the newest boundary that is released and was kept."""
        return self._views.find(commit_point)

    def take_over(self, row: TakeoverRow) -> None:
        self._check_ready_to_write()
        state = self.state
        if row.start_seq != state.high_seq:
            raise FailedPrecondition(
                f"a takeover row must start at the high sequence {state.high_seq}, not {row.start_seq}"
            )
        self._save_takeover(state.takeover.with_takeover(row), row.epoch)

    def adopt_takeover(self, table: TakeoverTable, epoch: int) -> None:
        self._check_ready_to_write()
        if not catch_up.is_table_of(table, self.state.high_seq):
            raise FailedPrecondition(
                f"the takeover table is not sorted and unique, or runs ahead of this log's end, {self.state.high_seq}"
            )
        if table != self.state.takeover or epoch > self.state.epoch:
            self._save_takeover(table, epoch)

    def _save_takeover(self, table: TakeoverTable, epoch: int) -> None:
        with self.changing() as changes:
            changes.state = replace(changes.state, takeover=table, epoch=max(changes.state.epoch, epoch))

    def save_epoch(self, epoch: int) -> None:
        for place in self._places():
            if epoch > place.state.epoch:
                with self._changing_in(place) as changes:
                    changes.state = replace(changes.state, epoch=epoch)
        self._note_commit()

    def save_commit_point(self, commit_point: int) -> None:
        for place in self._places():
            if commit_point > place.state.commit_point:
                with self._changing_in(place) as changes:
                    changes.raise_commit_point(commit_point)
        self._note_commit()

    def _places(self) -> list[Place]:
        """While a copy is filled, what a crash leaves must know of epoch and commit point, too."""
        return [self.place] if self._left is None else [self._left, self.place]

    def apply_catch_up(self, piece: CatchUpPiece) -> None:
        with self.changing() as changes:
            catch_up.apply_piece(changes, piece)
        if self._left is not None and piece.tables is not None:
            self.move_to(self.place)

    def roll_back(self, rollback: Rollback) -> None:
        self._check_ready()
        check_rollback(self.state, rollback)
        with self.changing() as changes:
            apply_rollback(changes, rollback)
        self.rollbacks += 1

    # Other places

    def begin_copy(self, *, is_clone: bool = False) -> None:
        self.cancel_copy()
        left = self.place
        # The next generation is a compaction's, which may be on its way.
        number = left.generation + 2
        path = generation.environment_path(self.directory, number)
        shutil.rmtree(path, ignore_errors=True)
        if is_clone:
            place = self.copy_to(number).place
        else:
            row = StateRow(epoch=left.state.epoch, commit_point=left.state.commit_point)
            sync = SyncRow(SyncState(SyncPhase.CATCHING_UP))
            env = create_environment(path, self.options.map_bytes, self.identity, row, sync)
            place = load_place(env, number, self.identity)
        place.state = replace(place.state, incarnation=left.state.incarnation, is_copying=True)
        self._left = left
        self._stand_in(place)

    def cancel_copy(self) -> None:
        if self._left is None:
            return
        place, left = self.place, self._left
        self._left = None
        self._stand_in(left)
        place.env.close()
        shutil.rmtree(place.env.directory, ignore_errors=True)

    def copy_to(self, number: int) -> "LmdbStore":
        """A compact copy of the committed state as another generation; nothing of it is witnessed yet."""
        path = generation.environment_path(self.directory, number)
        with self._reading_any() as (txn, env):
            env.copy_into(path, txn)
        copy = LmdbStore(self.directory, self.identity, self.options)
        copy._stand_in(load_place(Environment(path, self.options.map_bytes), number, self.identity))
        return copy

    def move_to(self, place: Place) -> None:
        """Go on in a place that holds all that is needed (writer's thread), durably; readers of the old one finish."""
        old = self._left or self.place
        try:
            generation.write_current(self.directory, place.generation)
        except OSError as error:
            self._needs_reopen = True
            raise WriteUnknown("the switch to another file failed on the disk", retry_delay_ms=200) from error
        place.state = replace(place.state, incarnation=old.state.incarnation, is_copying=False)
        self._left = None
        self._stand_in(place)
        old.env.close()
        generation.remove_others(self.directory, place.generation)

    def sweep_retained(self, rows_max: int) -> bool:
        if not self.place.sums[1].count:
            return True
        if not self._sweep.is_done:
            with self.changing() as changes:
                position = self._sweep.step(changes, rows_max)
            self._sweep.position = position
        return self._sweep.is_done

    def _check_ready_to_write(self) -> None:
        self._check_ready()
        if self._left is not None:
            raise FailedPrecondition("a copy of this replica is being filled: it takes no writes until that is whole")

    def _check_ready(self) -> None:
        sync = self.state.sync
        if not sync.is_ready:
            raise FailedPrecondition(f"this replica is {sync.phase}: it takes no writes until it is whole")

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
        """After a disk error: read back what is there. What may not have reached the disk is written anew, but for an
        unfinished copy, which is dropped."""
        self.cancel_copy()
        self._views.clear()
        known, number = self.place.known_transaction, self.generation
        self.env.close()
        self._open_current(verify=True)
        if self.place.known_transaction > known or self.generation != number:
            # The failed commit shows although its fsync failed: Linux may hold it in memory only, and a
            # second fsync would prove nothing. A fresh copy is fsynced for sure.
            self.move_to(self.copy_to(self.generation + 1).place)

    def wants_compaction(self) -> bool:
        usage = self.usage()
        enough = usage.free_bytes >= COMPACT_FREE_BYTES_MIN
        return enough and usage.free_bytes >= COMPACT_FREE_FRACTION * usage.file_bytes

    def check_readers(self) -> int:
        return self.env.check_readers()

    def close(self) -> None:
        self._views.clear()
        for place in self._places():
            place.env.close()
        if self._witness is not None:
            self._witness.close()


class _NothingToWriteError(Exception):
    """Every request of the group was refused or a repeat: end the transaction without writing."""
