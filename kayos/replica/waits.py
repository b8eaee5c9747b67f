"""Those who wait at the head until a write is on enough replicas."""

from typing import TYPE_CHECKING

from kayos.limits import WAITERS_MAX
from kayos.replica.effects import Answer, Forsake
from kayos.replica.events import Wait
from kayos.replica.ledger import Waiters

if TYPE_CHECKING:
    # The machine owns its waits; the other direction is for the type checker.
    from kayos.replica.machine import Replica


class Waits:
    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        self._waiters = Waiters()

    def add(self, wait: Wait) -> None:
        """A bare sequence proves nothing: after a takeover another write may stand there."""
        replica = self._replica
        if not replica.role.is_head or not replica.is_established:
            self._forsake(wait.token, "this node is not the head")
        elif not replica.holds(wait.history_id, wait.seq):
            self._forsake(wait.token, f"the history of sequence {wait.seq} ended before it: the write is lost")
        elif len(self._waiters) >= WAITERS_MAX:
            self._forsake(wait.token, f"{WAITERS_MAX} writes wait for copies already")
        else:
            self._waiters.add(wait)
            self.answer_reached()

    def drop(self, token: int) -> None:
        self._waiters.drop(token)

    def answer_reached(self) -> None:
        if not self._waiters:
            return
        ledger = self._replica.ledger
        for token, seq in self._waiters.take_reached(ledger):
            self._replica.emit(Answer(token, ledger.count_copies(seq)))

    def forsake_all(self, reason: str) -> None:
        for token in self._waiters.take_all():
            self._forsake(token, reason)

    def _forsake(self, token: int, reason: str) -> None:
        self._replica.emit(Forsake(token, reason))
