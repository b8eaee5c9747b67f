"""Compaction without pause: a dense copy is made beside the store, caught up, and swapped in.

`prepare` does the long part from any thread while writes go on: copy one committed state, then follow the
source in rounds until little is left. `swap` does the rest in the writer's thread: the last changes, then the
switch. The changes come through the same code that replicas use to catch up. When the source purged tombstones
above the copy's state meanwhile, rows cannot tell what to delete: the copy is given up and made again.
"""

import shutil
from typing import TYPE_CHECKING

from kayos.errors import FailedPrecondition, ResetRequired
from kayos.limits import CATCH_UP_CHUNK_BYTES
from kayos.model.snapshot import LogSlice
from kayos.storage.generation import environment_path
from kayos.storage.interface import SyncPhase

if TYPE_CHECKING:
    # The store reopens itself by a compaction, so it knows this module and not the other way round.
    from kayos.storage.lmdb_store import LmdbStore

_ROUNDS_MAX = 5
_TRIES_MAX = 3


class Compaction:
    def __init__(self, store: "LmdbStore") -> None:
        self._store = store
        self._source_generation = store.generation
        self._target: LmdbStore | None = None
        self.bytes_before = store.usage().file_bytes
        self.bytes_after = 0

    @property
    def _number(self) -> int:
        return self._source_generation + 1

    def prepare(self) -> None:
        """Any thread: copy, then follow until what is left is small."""
        self._copy()
        for _ in range(_ROUNDS_MAX):
            if self._follow(rows_left_max=1):
                return

    def swap(self) -> None:
        """The writer's thread, between two groups."""
        store = self._store
        if store.generation != self._source_generation:
            self.abandon()
            raise FailedPrecondition("another compaction was faster: nothing to do")
        for _ in range(_TRIES_MAX):
            try:
                self._finish()
                break
            except ResetRequired:
                self._copy()
        else:
            self.abandon()
            raise FailedPrecondition("purges overtook the compaction: it will be tried again")
        target = self._target
        assert target is not None
        self._target = None
        store.swap_environment(target.env, self._number)
        self.bytes_after = store.usage().file_bytes

    def abandon(self) -> None:
        """Leave the store as it was and remove the copy."""
        if self._target is not None:
            self._target.env.close()
            self._target = None
        shutil.rmtree(environment_path(self._store.directory, self._number), ignore_errors=True)

    def _copy(self) -> None:
        self.abandon()
        self._target = self._store.copy_to(self._number)

    def _follow(self, *, rows_left_max: int) -> bool:
        """Bring the copy's log nearer to the source's; whether at most so many slices were left."""
        target = self._target
        assert target is not None
        for count in range(1_000):
            piece = self._next_piece(target)
            if not piece.records:
                return count <= rows_left_max
            target.apply_catch_up(piece)
        return False

    def _finish(self) -> None:
        target = self._target
        assert target is not None
        while (piece := self._next_piece(target)).records:
            target.apply_catch_up(piece)
        sync = target.state.sync
        start_seq = sync.start_seq if sync.phase is SyncPhase.CATCHING_UP else target.state.high_seq
        target.finish_catch_up(self._store.read_catch_up_tables(start_seq))

    def _next_piece(self, target: "LmdbStore") -> LogSlice:
        sync = target.state.sync
        position = sync.through_seq if sync.phase is SyncPhase.CATCHING_UP else target.state.high_seq
        return self._store.read_log(position, bytes_max=CATCH_UP_CHUNK_BYTES)
