"""Views of a store as it stood at its last boundaries, kept open for readers while the commit point lags behind.

A tail applies batches at once but shows only what is committed. LMDB keeps an older state as long as a read transaction
stands in it, so the writer opens one before each change and closes those that a newer released one makes useless. In
health one or two are open, for milliseconds. While a fault holds the commit point back, the last released one stays and
is read from, bounded in number and time, because pages that a view can see are not reused.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from kayos.errors import Unavailable
from kayos.limits import KEPT_VIEW_S_MAX, KEPT_VIEWS_MAX
from kayos.storage.environment import Environment
from kayos.storage.interface import Identity
from kayos.storage.lmdb_reads import LmdbReads
from kayos.storage.place import Place
from kayos.storage.transaction import Transaction


class KeptView(LmdbReads):
    """All reads of a store, at the boundary `seq`; one reader at a time."""

    def __init__(self, identity: Identity, place: Place) -> None:
        self.identity = identity
        self.place = place
        self.seq = place.state.high_seq
        self.opened_at = time.monotonic()
        self._env = place.env
        self._lock = threading.Lock()
        self._held = ExitStack()
        self._env.enter_reader()
        self._txn: Transaction | None = self._held.enter_context(self._env.reading_inside())

    @contextmanager
    def _reading_any(self) -> Iterator[tuple[Transaction, Environment]]:
        with self._lock:
            if self._txn is None:
                raise Unavailable("this view of the past is closed: ask again", retry_delay_ms=50)
            yield self._txn, self._env

    def close(self) -> None:
        with self._lock:
            self._txn = None
            self._held.close()


class KeptViews:
    """Changed by the writer's thread alone, looked at by any."""

    def __init__(self) -> None:
        self._views: tuple[KeptView, ...] = ()

    def keep(self, identity: Identity, place: Place, commit_point: int) -> None:
        """Before the next change: keep the state that it will replace, let go of what nobody needs any more."""
        released = [view for view in self._views if view.seq <= commit_point]
        oldest = time.monotonic() - KEPT_VIEW_S_MAX
        wanted = [*released[-1:], *(view for view in self._views if view.seq > commit_point)]
        kept = [view for view in wanted if view.opened_at > oldest]
        for view in self._views:
            if view not in kept:
                view.close()
        if len(kept) < KEPT_VIEWS_MAX and all(view.seq != place.state.high_seq for view in kept):
            kept.append(KeptView(identity, place))
        self._views = tuple(kept)

    def find(self, commit_point: int) -> KeptView | None:
        """The newest that is released."""
        return next((view for view in reversed(self._views) if view.seq <= commit_point), None)

    def clear(self) -> None:
        views, self._views = self._views, ()
        for view in views:
            view.close()
