"""What housekeeping a shard needs now: a pure decision from facts to control records.

Only the head decides, and every decision is a logged control record, so that replicas never act on their
own clock. Each step is bounded by `MAINTENANCE_ROWS_MAX` rows; what is left waits for the next step.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kayos.limits import MAINTENANCE_ROWS_MAX, PIN_RETAINED_BYTES_MAX
from kayos.model.control import Control, EndPin, Expire, ForgetProducers, Purge, Trim
from kayos.model.floors import Floors
from kayos.model.pin import Pin
from kayos.model.topic import Mode, Retention
from kayos.model.write import ControlRequest, Request

LEASE_ENDED = "lease ended"
OVER_BUDGET = "retained bytes over budget"


@dataclass(frozen=True, slots=True)
class Facts:
    """One look at a shard, taken before anything is decided.

    `front` is the oldest messages as (seq, bytes): of the whole log in mode `log`, above `floors.aged_seq` and
    without tombstones in mode `compact`. `aged_seq` is the sequence at or below which all is older than
    `max_age_ms`; `purgeable_seq` the one through which tombstones are older than `tombstone_ms`;
    `expired` the (ms, seq) through which TTLs are past; `idle_producers_seq` the one at or below which
    every write is older than the retention of producers. 0 or None: nothing. `swept` says that no
    retained row waits to be freed, so that `retained_bytes` is what living pins need.
    """

    now_ms: int
    mode: Mode
    retention: Retention
    floors: Floors
    messages: int = 0
    message_bytes: int = 0
    retained_bytes: int = 0
    swept: bool = True
    producers: int = 0
    pins: tuple[Pin, ...] = ()
    front: tuple[tuple[int, int], ...] = ()
    aged_seq: int = 0
    purgeable_seq: int = 0
    expired: tuple[int, int] | None = None
    idle_producers_seq: int = 0
    retained_bytes_max: int = PIN_RETAINED_BYTES_MAX


def plan(facts: Facts) -> list[Request]:
    """The control records to write, in order."""
    return [ControlRequest(control) for control in find_controls(facts)]


def find_controls(facts: Facts) -> Iterator[Control]:
    yield from find_pins_to_end(facts)
    if facts.mode is Mode.LOG:
        yield from find_trim(facts)
    elif facts.purgeable_seq > facts.floors.purge_seq:
        yield Purge(facts.purgeable_seq)
    yield from find_expiry(facts)
    if facts.producers and facts.idle_producers_seq:
        yield ForgetProducers(facts.idle_producers_seq)


def find_pins_to_end(facts: Facts) -> Iterator[Control]:
    """Leases that are past; then, over the budget of retained bytes, the oldest of the others.

    One at a time, and only when earlier ends have been swept: the next look shows whether it was enough.
    """
    living = [pin for pin in facts.pins if pin.is_alive]
    past = [pin for pin in living if pin.lease_until_ms <= facts.now_ms]
    yield from (EndPin(pin.pin_id, LEASE_ENDED) for pin in past)
    held = sorted((pin for pin in living if pin not in past), key=lambda pin: pin.seq)
    if held and not past and facts.swept and facts.retained_bytes > facts.retained_bytes_max:
        yield EndPin(held[0].pin_id, OVER_BUDGET)


def find_trim(facts: Facts) -> Iterator[Control]:
    """The front of a log that is too old, too many or too large, whichever goes furthest."""
    retention = facts.retention
    messages_over = facts.messages - retention.max_messages if retention.max_messages else 0
    bytes_over = facts.message_bytes - retention.max_bytes if retention.max_bytes else 0
    through_seq = 0
    for seq, size in facts.front[:MAINTENANCE_ROWS_MAX]:
        if messages_over <= 0 and bytes_over <= 0 and seq > facts.aged_seq:
            break
        through_seq = seq
        messages_over -= 1
        bytes_over -= size
    if through_seq > facts.floors.trim_seq:
        yield Trim(through_seq)


def find_expiry(facts: Facts) -> Iterator[Control]:
    """Messages past their TTL and, in mode `compact`, past the topic's `max_age_ms`."""
    floors = facts.floors
    through_ms, through_seq = facts.expired or (floors.expired_ms, floors.expired_seq)
    aged_seq = floors.aged_seq
    if facts.mode is Mode.COMPACT:
        aged = [seq for seq, _ in facts.front[:MAINTENANCE_ROWS_MAX] if seq <= facts.aged_seq]
        aged_seq = max([aged_seq, *aged[-1:]])
    if facts.expired is not None or aged_seq > floors.aged_seq:
        yield Expire(through_ms, through_seq, aged_seq)
