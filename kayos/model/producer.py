"""Idempotent producers: which request of whom was stored where."""

from dataclasses import dataclass
from typing import NamedTuple


class ProducerStamp(NamedTuple):
    """What a request carries: numbers go up by one per request, from 1 in each producer epoch."""

    producer_id: bytes
    producer_epoch: int
    number: int


class ProducerResult(NamedTuple):
    number: int
    first_seq: int
    last_seq: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ProducerRow:
    """The newest results of one producer, ascending by number; as many as may be in flight at once."""

    producer_id: bytes
    producer_epoch: int
    results: tuple[ProducerResult, ...]

    @property
    def last(self) -> ProducerResult:
        return self.results[-1]
