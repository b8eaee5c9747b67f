"""Compaction without pause: a dense copy is made beside the store, caught up, and swapped in.

`prepare` does the long part from any thread while writes go on: copy one committed state, then follow the
source in rounds until little is left. `swap` does the rest in the writer's thread: the last changes, then the
switch. The changes come through the same code that replicas use to catch up. When the source purged tombstones
above the copy's state meanwhile, rows cannot tell what to delete: the copy is given up and made again.
"""

import itertools
import shutil
from typing import TYPE_CHECKING

from kayos.errors import FailedPrecondition, ResetRequired, Unavailable
from kayos.limits import CATCH_UP_CHUNK_BYTES
from kayos.storage.generation import environment_path

if TYPE_CHECKING:
    from kayos.storage.lmdb_store import LmdbStore

_ROUNDS_MAX = 5
_TRIES_MAX = 3


class Compaction:
    def __init__(self, store: "LmdbStore") -> None:
        self._store = store
        self._source_generation = store.generation
        self._source_rollbacks = store.rollbacks
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
            if self._follow() <= 1:
                return

    def swap(self) -> None:
        """The writer's thread, between two groups."""
        store = self._store
        if store.generation != self._source_generation or store.rollbacks != self._source_rollbacks:
            self.abandon()
            raise FailedPrecondition("the store became another one meanwhile: nothing to do")
        for _ in range(_TRIES_MAX):
            try:
                self._follow()
                break
            except ResetRequired:
                self._copy()
        else:
            self.abandon()
            raise FailedPrecondition("purges overtook the compaction: it will be tried again")
        target = self._target
        assert target is not None
        # The copy's own, which no neighbour tells.
        target.save_epoch(store.state.epoch)
        target.save_commit_point(store.state.commit_point)
        self._target = None
        store.move_to(target.place)
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
        if not self._target.state.sync.is_ready:
            self.abandon()
            raise Unavailable("the store is not whole: it is compacted when it has caught up", retry_delay_ms=60_000)

    def _follow(self) -> int:
        """Bring the copy to a state of the source; how many pieces that took."""
        target = self._target
        assert target is not None
        start_seq = target.state.high_seq
        for count in itertools.count(1):
            sync = target.state.sync
            position = start_seq if sync.is_ready else sync.through_seq
            piece = self._store.read_catch_up(position, start_seq=start_seq, bytes_max=CATCH_UP_CHUNK_BYTES)
            target.apply_catch_up(piece)
            if piece.tables is not None:
                return count
        raise AssertionError
