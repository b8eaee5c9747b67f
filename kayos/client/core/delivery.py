"""What a producer is told: where its messages stand in the log."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kayos.wire.v1 import log_pb2


class Delivery(NamedTuple):
    """One message. `copies` replicas have fsynced it; `duplicate`: an earlier send had stored it already.

    A bare sequence proves nothing after a takeover: (`history_id`, `seq`) names the write for ever.
    """

    topic: str
    shard: int
    seq: int
    history_id: bytes
    copies: int
    timestamp: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class BatchDelivery:
    """One request of several messages: message `i` of it has sequence `first_seq + i`."""

    topic: str
    shard: int
    first_seq: int
    last_seq: int
    history_id: bytes
    copies: int
    timestamp: int
    duplicate: bool

    @property
    def count(self) -> int:
        return self.last_seq - self.first_seq + 1

    def message(self, index: int) -> Delivery:
        return Delivery(
            self.topic,
            self.shard,
            self.first_seq + index,
            self.history_id,
            self.copies,
            self.timestamp,
            self.duplicate,
        )

    def messages(self) -> Iterator[Delivery]:
        return map(self.message, range(self.count))


def delivery_from_wire(topic: str, shard: int, response: log_pb2.ProduceResponse) -> BatchDelivery:
    return BatchDelivery(
        topic,
        shard,
        response.first_seq,
        response.last_seq,
        response.history_id,
        response.copies,
        response.timestamp_ms,
        response.duplicate,
    )
