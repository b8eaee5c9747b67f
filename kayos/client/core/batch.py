"""A request in the making, and the sealed request with its story.

The body (columns) is serialized once. Shard, epoch and number may change with every send; they are
appended as a second serialized message, since protobuf reads two messages one after the other as one.
"""

from dataclasses import dataclass, field
from typing import Any

from kayos.client.core.delivery import BatchDelivery
from kayos.client.core.write import APPEND, Write
from kayos.errors import KayosError
from kayos.limits import BATCH_COUNT_MAX
from kayos.model.record import Kind
from kayos.wire.codec import headers_to_wire
from kayos.wire.v1 import log_pb2, types_pb2


@dataclass(slots=True, eq=False)
class Batch:
    """A sealed request. Once sealed its messages never change; only its number may, and only when it is
    certain that no copy with the old number was or will be written.

    `ticket`: what the shell wants back when the outcome is there; `told`: the shell has passed it on. `alone`: it
    carries a condition, so nothing may be in flight beside it. `lost`: the fate of some copy of it is not known.
    `error`: the last refusal.
    """

    body: bytes
    count: int
    size: int
    deadline: float
    ticket: Any
    alone: bool = False
    number: int = 0
    attempts: int = 0
    in_flight: bool = False
    lost: bool = False
    error: KayosError | None = None
    outcome: BatchDelivery | KayosError | None = None
    told: bool = False

    def encode(self, ref: log_pb2.ShardRef, producer: log_pb2.Producer, correlation: int) -> bytes:
        envelope = log_pb2.ProduceRequest(shard=ref, producer=producer, correlation=correlation)
        return self.body + envelope.SerializeToString()


@dataclass(slots=True)
class Draft:
    """Columns that still grow. Tickets stand one to a message, in order."""

    durability: int
    created_at: float
    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    kinds: bytearray = field(default_factory=bytearray)
    headers: list[types_pb2.IndexedHeaders] = field(default_factory=list)
    ttls: list[log_pb2.IndexedTtl] = field(default_factory=list)
    conditions: list[log_pb2.Condition] = field(default_factory=list)
    tickets: list[Any] = field(default_factory=list)
    size: int = 0

    @property
    def count(self) -> int:
        return len(self.values)

    def add(self, write: Write, size: int, ticket: Any = None) -> None:
        index = len(self.values)
        self.keys.append(write.key)
        self.values.append(write.value)
        self.kinds.append(write.kind)
        if write.headers:
            self.headers.append(types_pb2.IndexedHeaders(index=index, headers=headers_to_wire(write.headers)))
        if write.ttl_ms is not None:
            self.ttls.append(log_pb2.IndexedTtl(index=index, ttl_ms=write.ttl_ms))
        if write.expected_seq is not None:
            self.conditions.append(log_pb2.Condition(index=index, expected_seq=write.expected_seq))
        self.tickets.append(ticket)
        self.size += size

    def is_full(self, batch_bytes: int) -> bool:
        return self.size >= batch_bytes or len(self.values) >= BATCH_COUNT_MAX

    def seal(self, *, deadline: float, ticket: Any = None) -> Batch:
        all_put = self.kinds.count(Kind.PUT) == len(self.kinds)
        all_append = self.kinds.count(APPEND) == len(self.kinds)
        request = log_pb2.ProduceRequest(
            durability=self.durability,
            keys=() if all_append else self.keys,
            values=self.values,
            kinds=b"" if all_put or all_append else bytes(self.kinds),
            headers=self.headers,
            ttls=self.ttls,
            conditions=self.conditions,
        )
        return Batch(
            body=request.SerializeToString(),
            count=self.count,
            size=self.size,
            deadline=deadline,
            ticket=self.tickets if ticket is None else ticket,
            alone=bool(self.conditions),
        )
