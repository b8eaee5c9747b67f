"""Every error that Kayos tells a caller, in one tree.

    KayosError
    ├── InvalidArgument        the request is wrong: correct it, a retry cannot help
    │   ├── OutOfRange         a number beyond what exists
    │   └── ProducerGap        a producer's number does not follow the last one that is known (`last_number`)
    ├── NotFound
    │   ├── TopicNotFound · ShardNotFound · MarkNotFound · PinNotFound
    ├── TopicExists            the name is taken by a topic with other settings
    ├── FailedPrecondition     the request is sound, the state forbids it
    │   ├── ConditionFailed    a conditional write met another sequence (`current_seq`)
    │   ├── MarkBackwards · MarkAhead
    │   ├── ProducerFenced · ProducerUnknown
    │   ├── StaleEpoch · NotMyRole · WrongMode
    ├── NotInChain             a replica speaks to one that it does not follow
    ├── Aborted                what was read so far is void: start again as the error says
    │   ├── RollbackRequired   undo everything above `seq`, then go on from there
    │   ├── ResetRequired      drop everything, then start from 0
    │   ├── SnapshotExpired    the pinned snapshot ended, start again from the mark
    │   └── Gap                a batch does not follow what the replica holds
    ├── Unavailable            retry later (`retry_delay_ms`)
    │   ├── ShuttingDown
    │   └── WriteUnknown       written or not: a retry with the same producer number settles it
    ├── ResourceExhausted      retry later, something is full
    │   ├── StoreFull · Overloaded · LimitReached
    ├── DataLoss               a stored copy is damaged; it is never served
    │   ├── DamagedRecord · DamagedStore
    ├── DeadlineExceeded
    └── InternalError          a bug; the text stays in the node's log under `error_id`

Each class has a gRPC `status`, a stable `code` and says whether the same request may be sent again
(`retryable`). What the caller needs next travels in `fields` (numbers and short words only, never
message bodies), so that the error that arrives is the error that was raised.
"""

from collections.abc import Iterator
from typing import ClassVar


class KayosError(Exception):
    """The root: `code` and `fields` travel, the message is for people."""

    code: ClassVar[str] = "KAYOS"
    status: ClassVar[str] = "UNKNOWN"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **fields: int | str) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields

    def number(self, name: str) -> int:
        """A numeric field, 0 when the sender did not give it."""
        return int(self.fields.get(name, 0))

    @property
    def retry_delay_ms(self) -> int:
        return self.number("retry_delay_ms")

    def __reduce__(self) -> tuple[object, ...]:
        return (rebuild_error, (self.code, self.message, dict(self.fields)))


class InvalidArgument(KayosError):
    code = "INVALID_ARGUMENT"
    status = "INVALID_ARGUMENT"


class OutOfRange(InvalidArgument):
    code = "OUT_OF_RANGE"
    status = "OUT_OF_RANGE"


class ProducerGap(InvalidArgument):
    """Fields: `last_number`. A producer that never left one out wrote with fewer copies than were lost since."""

    code = "PRODUCER_GAP"


class NotFound(KayosError):
    code = "NOT_FOUND"
    status = "NOT_FOUND"


class TopicNotFound(NotFound):
    code = "TOPIC_NOT_FOUND"


class ShardNotFound(NotFound):
    code = "SHARD_NOT_FOUND"


class MarkNotFound(NotFound):
    code = "MARK_NOT_FOUND"


class PinNotFound(NotFound):
    code = "PIN_NOT_FOUND"


class TopicExists(KayosError):
    code = "TOPIC_EXISTS"
    status = "ALREADY_EXISTS"


class FailedPrecondition(KayosError):
    code = "FAILED_PRECONDITION"
    status = "FAILED_PRECONDITION"


class ConditionFailed(FailedPrecondition):
    """Fields: `index` of the message in its request, `expected_seq`, `current_seq`."""

    code = "CONDITION_FAILED"

    @property
    def current_seq(self) -> int:
        return self.number("current_seq")


class MarkBackwards(FailedPrecondition):
    """Fields: `stored_seq`."""

    code = "MARK_BACKWARDS"


class MarkAhead(FailedPrecondition):
    """Fields: `high_seq`."""

    code = "MARK_AHEAD"


class ProducerFenced(FailedPrecondition):
    """Fields: `producer_epoch`, the newer one that is in charge."""

    code = "PRODUCER_FENCED"


class ProducerUnknown(FailedPrecondition):
    """The shard does not know this producer (any more) and the number is not 1."""

    code = "PRODUCER_UNKNOWN"


class StaleEpoch(FailedPrecondition):
    """Fields: `epoch`, the current one."""

    code = "STALE_EPOCH"


class NotMyRole(FailedPrecondition):
    code = "NOT_MY_ROLE"


class NotInChain(KayosError):
    """Fields: `epoch`, the current one."""

    code = "NOT_IN_CHAIN"
    status = "PERMISSION_DENIED"


class WrongMode(FailedPrecondition):
    """The topic's mode does not offer this (keys and conditions need mode `compact`, trim needs `log`)."""

    code = "WRONG_MODE"


class Aborted(KayosError):
    code = "ABORTED"
    status = "ABORTED"


class RollbackRequired(Aborted):
    """Fields: `seq`, the last sequence that the mark's history and the log share."""

    code = "ROLLBACK_REQUIRED"

    @property
    def seq(self) -> int:
        return self.number("seq")


class ResetRequired(Aborted):
    """Fields: `purge_seq`, below which deletes or messages may have been missed."""

    code = "RESET_REQUIRED"


class SnapshotExpired(Aborted):
    code = "SNAPSHOT_EXPIRED"


class Gap(Aborted):
    """Fields: `high_seq` of the replica, `previous_seq` of the batch."""

    code = "GAP"


class Unavailable(KayosError):
    code = "UNAVAILABLE"
    status = "UNAVAILABLE"
    retryable = True


class ShuttingDown(Unavailable):
    code = "SHUTTING_DOWN"


class WriteUnknown(Unavailable):
    code = "WRITE_UNKNOWN"


class ResourceExhausted(KayosError):
    code = "RESOURCE_EXHAUSTED"
    status = "RESOURCE_EXHAUSTED"
    retryable = True


class StoreFull(ResourceExhausted):
    code = "STORE_FULL"


class Overloaded(ResourceExhausted):
    code = "OVERLOADED"


class LimitReached(ResourceExhausted):
    """Too many of something countable: streams, pins, consumers, producers, topics."""

    code = "LIMIT_REACHED"


class DataLoss(KayosError):
    code = "DATA_LOSS"
    status = "DATA_LOSS"


class DamagedRecord(DataLoss):
    code = "DAMAGED_RECORD"


class DamagedStore(DataLoss):
    code = "DAMAGED_STORE"


class DeadlineExceeded(KayosError):
    code = "DEADLINE_EXCEEDED"
    status = "DEADLINE_EXCEEDED"
    retryable = True


class InternalError(KayosError):
    """Fields: `error_id`, to be found in the node's log."""

    code = "INTERNAL"
    status = "INTERNAL"


def all_error_classes() -> Iterator[type[KayosError]]:
    """Every class of the tree, the root first."""
    waiting: list[type[KayosError]] = [KayosError]
    while waiting:
        found = waiting.pop()
        yield found
        waiting.extend(found.__subclasses__())


def rebuild_error(code: str, message: str, fields: dict[str, int | str]) -> KayosError:
    """The error that a peer named by its stable code; an unknown code stays a plain KayosError."""
    for error_class in all_error_classes():
        if error_class.code == code:
            return error_class(message, **fields)
    return KayosError(message, **fields)
