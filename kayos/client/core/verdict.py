"""What an error means for the one who asked: try again, look for another node, or give up."""

import random
from enum import Enum, auto

from kayos.errors import (
    ConditionFailed,
    DeadlineExceeded,
    FailedPrecondition,
    InternalError,
    InvalidArgument,
    KayosError,
    NotFound,
    NotMyRole,
    ProducerFenced,
    ProducerGap,
    ProducerUnknown,
    StaleEpoch,
    TopicExists,
    WriteUnknown,
)
from kayos.limits import CLIENT_RETRY_DELAY_MS_MAX, CLIENT_RETRY_DELAY_MS_MIN


class Verdict(Enum):
    RETRY = auto()  # the same request again, later
    REROUTE = auto()  # the same request, at the node that the new view names
    RESTART = auto()  # the shard forgot this producer, or its last numbers: a new producer epoch, numbers from 1
    FENCED = auto()  # a newer life of this producer is in charge
    REFUSED = auto()  # certainly not done, and a retry cannot help
    UNKNOWN = auto()  # given up on, and nobody can say whether it was done


# The first class that fits decides, so the narrow ones come first.
_VERDICTS: tuple[tuple[type[KayosError], Verdict], ...] = (
    (StaleEpoch, Verdict.REROUTE),
    (NotMyRole, Verdict.REROUTE),
    (ProducerUnknown, Verdict.RESTART),
    (ProducerGap, Verdict.RESTART),
    (ProducerFenced, Verdict.FENCED),
    (ConditionFailed, Verdict.REFUSED),
    (FailedPrecondition, Verdict.REFUSED),
    (InvalidArgument, Verdict.REFUSED),
    (NotFound, Verdict.REFUSED),
    (TopicExists, Verdict.REFUSED),
)


def judge(error: KayosError) -> Verdict:
    for error_class, verdict in _VERDICTS:
        if isinstance(error, error_class):
            return verdict
    if error.retryable or is_from_transport(error):
        return Verdict.RETRY
    return Verdict.UNKNOWN


def is_from_transport(error: KayosError) -> bool:
    """gRPC itself broke the call (reset, cancelled by a dying server): no node of ours said so."""
    return type(error) is KayosError or (isinstance(error, InternalError) and not error.fields)


def leaves_doubt(error: KayosError) -> bool:
    """Whether a request answered with this error may have been written all the same."""
    return isinstance(error, WriteUnknown | DeadlineExceeded) or judge(error) is Verdict.UNKNOWN


class Backoff:
    """Delays that double up to a bound, with jitter so that many clients do not come back at once."""

    def __init__(self, source: random.Random | None = None) -> None:
        self._random = source or random.Random()
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def next_delay_s(self, error: KayosError | None = None) -> float:
        """At least what the server asked for, at most twice the bound."""
        ceiling = min(CLIENT_RETRY_DELAY_MS_MIN * 2.0**self._failures, CLIENT_RETRY_DELAY_MS_MAX)
        self._failures = min(self._failures + 1, 16)
        asked = min(error.retry_delay_ms, CLIENT_RETRY_DELAY_MS_MAX) if error else 0
        return (asked + self._random.uniform(ceiling / 2, ceiling)) / 1000.0
