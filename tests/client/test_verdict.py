"""What an error means for the one who asked, for every class of the tree; and how long to wait."""

import random

import pytest

from kayos import errors
from kayos.client.core.verdict import Backoff, Verdict, judge, leaves_doubt
from kayos.errors import KayosError, Unavailable, all_error_classes
from kayos.limits import CLIENT_RETRY_DELAY_MS_MAX, CLIENT_RETRY_DELAY_MS_MIN

RETRY = {
    "KayosError",
    "Unavailable",
    "ShuttingDown",
    "WriteUnknown",
    "ResourceExhausted",
    "StoreFull",
    "Overloaded",
    "LimitReached",
    "DeadlineExceeded",
}
REROUTE = {"StaleEpoch", "NotMyRole"}
REFUSED = {
    "InvalidArgument",
    "OutOfRange",
    "NotFound",
    "TopicNotFound",
    "ShardNotFound",
    "MarkNotFound",
    "PinNotFound",
    "TopicExists",
    "FailedPrecondition",
    "ConditionFailed",
    "MarkBackwards",
    "MarkAhead",
    "WrongMode",
}
UNKNOWN = {
    "NotInChain",
    "Aborted",
    "RollbackRequired",
    "ResetRequired",
    "SnapshotExpired",
    "Gap",
    "DataLoss",
    "DamagedRecord",
    "DamagedStore",
    "InternalError",
}
EXPECTED = {
    **dict.fromkeys(RETRY, Verdict.RETRY),
    **dict.fromkeys(REROUTE, Verdict.REROUTE),
    **dict.fromkeys(REFUSED, Verdict.REFUSED),
    **dict.fromkeys(UNKNOWN, Verdict.UNKNOWN),
    "ProducerUnknown": Verdict.RESTART,
    "ProducerGap": Verdict.RESTART,
    "ProducerFenced": Verdict.FENCED,
}


@pytest.mark.parametrize("error_class", list(all_error_classes()), ids=lambda found: found.__name__)
def test_every_error_has_its_verdict(error_class: type[KayosError]) -> None:
    error = error_class("said by a node", error_id="1")
    assert judge(error) is EXPECTED[error_class.__name__]


def test_what_grpc_itself_says_is_tried_again() -> None:
    assert judge(errors.InternalError("INTERNAL: RST_STREAM")) is Verdict.RETRY
    assert judge(KayosError("CANCELLED: the server went away")) is Verdict.RETRY


@pytest.mark.parametrize(
    ("error", "in_doubt"),
    [
        (errors.WriteUnknown("x"), True),
        (errors.DeadlineExceeded("x"), True),
        (errors.InternalError("x", error_id="1"), True),
        (errors.Overloaded("x"), False),
        (errors.StoreFull("x"), False),
        (errors.NotMyRole("x"), False),
        (errors.ConditionFailed("x"), False),
        (errors.InvalidArgument("x"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_which_answers_leave_it_open_whether_it_was_written(error: KayosError, in_doubt: bool) -> None:
    assert leaves_doubt(error) is in_doubt


def test_delays_double_up_to_the_bound_and_begin_anew_after_a_success() -> None:
    backoff = Backoff(random.Random(1))
    delays_ms = [backoff.next_delay_s() * 1000 for _ in range(20)]
    for failures, delay_ms in enumerate(delays_ms):
        ceiling = min(CLIENT_RETRY_DELAY_MS_MIN * 2**failures, CLIENT_RETRY_DELAY_MS_MAX)
        assert ceiling / 2 <= delay_ms <= ceiling
    backoff.reset()
    assert backoff.next_delay_s() * 1000 <= CLIENT_RETRY_DELAY_MS_MIN


@pytest.mark.parametrize(("asked_ms", "least_ms"), [(500, 500), (10**9, CLIENT_RETRY_DELAY_MS_MAX)])
def test_the_server_s_own_delay_is_kept_within_reason(asked_ms: int, least_ms: int) -> None:
    delay_ms = Backoff(random.Random(1)).next_delay_s(Unavailable("x", retry_delay_ms=asked_ms)) * 1000
    assert least_ms <= delay_ms <= least_ms + CLIENT_RETRY_DELAY_MS_MIN
