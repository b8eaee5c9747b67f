"""One shard's requests of one producer: the order, the numbers and what happens when one fails.

The server takes request `number` only if it is the last number of this producer and epoch plus one; a number
that it knows gets the original answer, anything else is refused and leaves no trace. So a lane may resend as often
as it likes, in order and with the same numbers, and nothing is lost, doubled or re-ordered. What needs care
is a request that leaves the lane without having been written, because the requests behind it then miss a number:

- A failure closes the lane (DRAINING): nothing is sent until every request in flight was answered or its
  stream broke. Errors of the requests behind the first failed one are not believed, they follow from the gap.
- Then the oldest request decides (`_settle`): retry all in order, or drop it and give its number to the next one.
- A number is given to another request only if no copy of the dropped one, nor of those behind it, can still
  be under way (`lost`). Otherwise the lane takes a new producer epoch, in which the server refuses every
  late copy, and numbers start again from 1.
- When the fate of the dropped request is unknown, those behind it whose copies were lost share that fate and
  are reported so; they cannot be sent in a new epoch, because they might then be stored twice.
- A request with a condition is alone in flight: whether it is refused depends on the moment, so nobody may
  stand behind it until it was answered.
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum, auto

from kayos.client.core.batch import Batch
from kayos.client.core.delivery import BatchDelivery
from kayos.client.core.verdict import Backoff, Verdict, judge, leaves_doubt
from kayos.errors import DeadlineExceeded, FailedPrecondition, KayosError, WriteUnknown
from kayos.limits import CLIENT_IN_FLIGHT_MAX


class LaneState(Enum):
    READY = auto()  # sends
    DRAINING = auto()  # a request failed; waits until nothing is in flight
    ROUTING = auto()  # needs a fresh view
    PAUSED = auto()  # waits until `resume_at`


class Lane:
    """Invariant: in `waiting`, requests in flight stand before all others, and numbers ascend by one."""

    def __init__(self, topic: str, shard: int, *, producer_epoch: int, last_epoch: int, backoff: Backoff) -> None:
        self.topic = topic
        self.shard = shard
        self.producer_epoch = producer_epoch
        self.state = LaneState.READY
        self.waiting: deque[Batch] = deque()
        self.in_flight = 0
        self.next_number = 1
        self.resume_at = 0.0
        self.settled: list[Batch] = []
        self._last_epoch = last_epoch
        self._backoff = backoff
        self._trouble: KayosError | None = None

    # Going out

    def add(self, batch: Batch) -> None:
        self.waiting.append(batch)

    def find_sendable(self) -> Batch | None:
        """The next request that may be sent now."""
        if self.state is not LaneState.READY or self.in_flight >= min(CLIENT_IN_FLIGHT_MAX, len(self.waiting)):
            return None
        batch = self.waiting[self.in_flight]
        if self.in_flight and (batch.alone or self.waiting[self.in_flight - 1].alone):
            return None
        return batch

    def mark_sent(self, batch: Batch) -> None:
        if not batch.number:
            batch.number = self.next_number
            self.next_number += 1
        batch.attempts += 1
        batch.error = None
        batch.in_flight = True
        self.in_flight += 1

    # Coming back

    def accept(self, batch: Batch, delivery: BatchDelivery, now: float) -> None:
        """The server stored it. Later requests may be answered so before an earlier one that is in doubt."""
        self._land(batch)
        self._backoff.reset()
        self._finish(batch, delivery)
        self._maybe_settle(now)

    def refuse(self, batch: Batch, error: KayosError, now: float) -> None:
        self._land(batch)
        batch.lost = batch.lost or leaves_doubt(error)
        if batch.number:  # else it was renumbered since it was sent, and the error speaks of the old number
            batch.error = error
            if batch is self.waiting[0]:  # else it follows from the gap
                self._trouble = error
        self.state = LaneState.DRAINING
        self._maybe_settle(now)

    def lose(self, batches: Iterable[Batch], error: KayosError, now: float) -> None:
        """The stream that carried them broke: each may have been written or not."""
        for batch in batches:
            self._land(batch)
            batch.lost = True
        self._trouble = error
        self.state = LaneState.DRAINING
        self._maybe_settle(now)

    def need_route(self) -> None:
        self.state = LaneState.ROUTING

    def route_found(self, now: float) -> None:
        if self.state is LaneState.ROUTING:
            self._pause(now, self._trouble)

    def route_failed(self, error: KayosError, now: float) -> None:
        """No view to be had: a refusal (the topic is gone) ends what waits, trouble is waited out."""
        if self.state is not LaneState.ROUTING:
            return
        self._trouble = error
        self._pause(now, error)
        if judge(error) is Verdict.REFUSED:
            self._fail_waiting(error)
            self._begin_epoch()

    def tick(self, now: float) -> None:
        if self.state is LaneState.PAUSED and now >= self.resume_at:
            self.state = LaneState.READY
        while self.waiting and self.waiting[0].deadline <= now:
            self._expire_oldest()
        self._maybe_settle(now)
        if self.producer_epoch > self._last_epoch:
            self.close(FailedPrecondition("this producer has used up its epochs: connect again, with a higher epoch"))

    def close(self, error: KayosError) -> None:
        """The client goes: what waits is told so, in doubt or not."""
        self._abandon_lost(error)
        self._fail_waiting(error)

    # Decisions

    def _maybe_settle(self, now: float) -> None:
        """Once nothing is in flight the oldest request decides how the lane goes on."""
        if self.state is not LaneState.DRAINING or self.in_flight:
            return
        error = self.waiting[0].error if self.waiting else None
        self._forget_errors_behind()
        if not self.waiting:
            self.state = LaneState.READY
        elif error is None:
            self.state = LaneState.ROUTING
        else:
            self._obey(error, now)

    def _obey(self, error: KayosError, now: float) -> None:
        oldest = self.waiting[0]
        match judge(error):
            case Verdict.RETRY:
                self._pause(now, error)
            case Verdict.REROUTE:
                self.state = LaneState.ROUTING
            case Verdict.RESTART if not oldest.lost:
                self._begin_epoch()
                self._pause(now, error)
            case Verdict.RESTART:
                self._drop_oldest(WriteUnknown(f"an earlier send may have been written: {error.message}"))
                self.state = LaneState.READY
            case Verdict.FENCED:
                self._fail_waiting(error)
                self.state = LaneState.READY
            case Verdict.REFUSED | Verdict.UNKNOWN:
                self._drop_oldest(error)
                self.state = LaneState.READY

    def _expire_oldest(self) -> None:
        oldest = self.waiting[0]
        reason = f": {self._trouble.message}" if self._trouble else ""
        where = f"{self.topic}/{self.shard}"
        if oldest.in_flight or oldest.lost:
            self._drop_oldest(WriteUnknown(f"no answer from {where} in time, it may have been written{reason}"))
        elif oldest.error is not None:
            self._drop_oldest(oldest.error)
        else:
            self._drop_oldest(DeadlineExceeded(f"not sent to {where} in time, it was not written{reason}"))

    def _drop_oldest(self, error: KayosError) -> None:
        """The oldest leaves unwritten, or with its fate unknown; the others get numbers without a gap."""
        oldest = self.waiting[0]
        in_doubt = isinstance(error, WriteUnknown) or judge(error) is Verdict.UNKNOWN
        if oldest.in_flight:
            self._land(oldest)
        self._finish(oldest, error)
        if in_doubt:
            self._abandon_lost(error)
        if in_doubt or oldest.lost or any(batch.lost or batch.in_flight for batch in self.waiting):
            self._begin_epoch()
        elif oldest.number:
            self._renumber(oldest.number)
        for batch in self.waiting:
            batch.error = None

    def _abandon_lost(self, error: KayosError) -> None:
        """Report every request of which a copy is under way or lost: nobody can say what became of it."""
        for batch in tuple(self.waiting):
            if batch.in_flight or batch.lost:
                self._finish(batch, WriteUnknown(f"{error.message}; it may have been written"))
        self.in_flight = 0

    def _fail_waiting(self, error: KayosError) -> None:
        for batch in tuple(self.waiting):
            self._finish(batch, error)
        self.in_flight = 0

    def _begin_epoch(self) -> None:
        if self.next_number > 1:  # else nothing was sent in this one
            self.producer_epoch += 1
        self._renumber(1)
        for batch in self.waiting:
            batch.lost = False

    def _renumber(self, first: int) -> None:
        self.next_number = first
        for batch in self.waiting:
            batch.number = 0

    def _forget_errors_behind(self) -> None:
        """Behind a failed request there is a gap, so what the server said of the others means nothing."""
        for batch in self.waiting:
            if batch is not self.waiting[0]:
                batch.error = None

    # Leaves

    def _land(self, batch: Batch) -> None:
        batch.in_flight = False
        self.in_flight -= 1

    def _finish(self, batch: Batch, outcome: BatchDelivery | KayosError) -> None:
        if self.waiting and self.waiting[0] is batch:
            self.waiting.popleft()
        else:
            self.waiting.remove(batch)
        batch.outcome = outcome
        self.settled.append(batch)

    def _pause(self, now: float, error: KayosError | None) -> None:
        self.state = LaneState.PAUSED
        self.resume_at = now + self._backoff.next_delay_s(error)

    def take_settled(self) -> list[Batch]:
        settled, self.settled = self.settled, []
        return settled
