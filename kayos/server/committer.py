"""The writer's thread at work on a shard's store: groups of producers' requests, and orders of the replica's machine.

What a commit could not finish after it was forwarded may stand elsewhere and not here: the shard is told to distrust
its store, which ends this life of the replica.
"""

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from kayos.errors import DataLoss, InternalError, KayosError, WriteUnknown
from kayos.model.write import Batch, Request
from kayos.replica.effects import WriterEffect
from kayos.replica.events import Done, Failed, Trouble
from kayos.server.driver import Driver, facts_of
from kayos.server.writer import Answer, now_ms
from kayos.storage.interface import Store, StoreState


class Owner(Protocol):
    """The shard, as the committer needs it. `check_role` is asked from the thread, the rest is told on the loop."""

    driver: Driver

    def check_role(self) -> None: ...

    def state_moved(self, state: StoreState) -> None: ...

    def distrust(self, reason: str, cause: str) -> None: ...


class Committer:
    def __init__(self, store: Store, owner: Owner, call_on_loop: Callable[..., object], log: Any) -> None:
        self._store = store
        self._owner = owner
        self._call_on_loop = call_on_loop
        self._log = log
        self._state = self._told = store.state
        self._has_forwarded = False

    # In the thread

    def commit_group(self, requests: Sequence[Request]) -> Sequence[Answer]:
        self._has_forwarded = False
        try:
            self._owner.check_role()
            driver = self._owner.driver
            forward = partial(self._forward, driver)
            commit_point = driver.replica.commit_point
            return self._store.commit(requests, now_ms=now_ms(), commit_point=commit_point, forward=forward).answers
        except KayosError as error:
            return repeat_error(self._judge(error), len(requests))
        except Exception:
            error_id = self._log_bug("a commit failed")
            self._distrust(f"a commit failed, error {error_id}", "")
            failure = InternalError(f"internal error {error_id}: see the node's log", error_id=error_id)
            return repeat_error(failure, len(requests))
        finally:
            self._state = self._store.state

    def perform(self, orders: Sequence[WriterEffect]) -> Sequence[Done | Failed]:
        try:
            return self._owner.driver.perform(orders)
        except Exception:
            error_id = self._log_bug("an order of the replica failed")
            facts = facts_of(self._store.state)
            reason = f"internal error {error_id}: see the node's log"
            return [Failed(order, Trouble.BROKEN, reason, facts) for order in orders]
        finally:
            self._state = self._store.state

    def _forward(self, driver: Driver, batch: Batch) -> None:
        self._has_forwarded = True
        driver.forward(batch)

    def _judge(self, error: KayosError) -> KayosError:
        """What the callers are told, and whether the store can still be trusted."""
        is_disk_error = isinstance(error, WriteUnknown | DataLoss)
        if is_disk_error or self._has_forwarded:
            self._distrust(error.message, cause_of(error))
        if self._has_forwarded and not is_disk_error:
            return WriteUnknown(f"{error.message}; send again with the same producer number", retry_delay_ms=200)
        return error

    def _distrust(self, reason: str, cause: str) -> None:
        self._owner.driver.may_commit = False
        self._call_on_loop(self._owner.distrust, reason, cause)

    def _log_bug(self, event: str) -> str:
        error_id = secrets.token_hex(8)
        self._log.exception(event, error_id=error_id)
        return error_id

    # On the loop

    def group_committed(self) -> None:
        state = self._state
        if state is not self._told:
            self._owner.driver.synced(state)
        self._tell(state)

    def performed(self, outcomes: Sequence[Done | Failed]) -> None:
        self._owner.driver.performed(outcomes)
        self._tell(self._state)

    def _tell(self, state: StoreState) -> None:
        self._told = state
        self._owner.state_moved(state)


def cause_of(error: KayosError) -> str:
    """What LMDB or the system said, for the log alone."""
    return str(error.__cause__ or "")


def repeat_error(error: KayosError, count: int) -> list[KayosError]:
    """One exception for each caller: a shared one would gather the tracebacks of all."""
    return [type(error)(error.message, **error.fields) for _ in range(count)]
