"""One lane, step by step: what each answer does to the requests that wait. `world.py` proves the whole."""

import random

import pytest

from kayos.client.core.batch import Batch
from kayos.client.core.delivery import BatchDelivery
from kayos.client.core.lane import Lane, LaneState
from kayos.client.core.verdict import Backoff
from kayos.errors import (
    ConditionFailed,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    KayosError,
    NotMyRole,
    Overloaded,
    ProducerFenced,
    ProducerUnknown,
    TopicNotFound,
    Unavailable,
    WriteUnknown,
)
from kayos.limits import CLIENT_IN_FLIGHT_MAX

DELIVERY = BatchDelivery("t", 0, 1, 1, b"h" * 16, 1, 0, False)
GAP = InvalidArgument("producer number 3 leaves a gap: the next one is 1")


def new_lane(requests: int, *, last_epoch: int = 4095, alone: frozenset[int] = frozenset()) -> tuple[Lane, list[Batch]]:
    lane = Lane("t", 0, producer_epoch=0, last_epoch=last_epoch, backoff=Backoff(random.Random(1)))
    batches = [Batch(b"", 1, 10, deadline=100.0, ticket=index, alone=index in alone) for index in range(requests)]
    for batch in batches:
        lane.add(batch)
    return lane, batches


def send_all(lane: Lane) -> list[int]:
    """Send what may be sent; the numbers."""
    numbers = []
    while (batch := lane.find_sendable()) is not None:
        lane.mark_sent(batch)
        numbers.append(batch.number)
    return numbers


def outcome(batch: Batch) -> type | None:
    return None if batch.outcome is None else type(batch.outcome)


def test_requests_go_out_in_order_up_to_the_window() -> None:
    lane, batches = new_lane(CLIENT_IN_FLIGHT_MAX + 2)
    assert send_all(lane) == list(range(1, CLIENT_IN_FLIGHT_MAX + 1))
    lane.accept(batches[0], DELIVERY, 0.0)
    assert send_all(lane) == [CLIENT_IN_FLIGHT_MAX + 1]
    assert lane.take_settled() == [batches[0]]


def test_a_retryable_refusal_waits_for_the_others_then_pauses_then_resends_the_same_numbers() -> None:
    lane, batches = new_lane(3)
    send_all(lane)
    lane.refuse(batches[0], Overloaded("full", retry_delay_ms=300), 1.0)
    assert lane.state is LaneState.DRAINING
    lane.refuse(batches[1], GAP, 1.0)
    lane.refuse(batches[2], GAP, 1.0)
    assert lane.state is LaneState.PAUSED
    assert lane.resume_at >= 1.3
    lane.tick(lane.resume_at)
    assert send_all(lane) == [1, 2, 3]
    assert lane.producer_epoch == 0


@pytest.mark.parametrize(
    ("error", "state"),
    [(NotMyRole("x"), LaneState.ROUTING), (Unavailable("x"), LaneState.PAUSED), (WriteUnknown("x"), LaneState.PAUSED)],
)
def test_the_oldest_request_decides_how_the_lane_goes_on(error: KayosError, state: LaneState) -> None:
    lane, batches = new_lane(2)
    send_all(lane)
    lane.refuse(batches[0], error, 0.0)
    lane.refuse(batches[1], GAP, 0.0)
    assert lane.state is state
    assert not lane.take_settled()


def test_a_refused_request_leaves_and_its_number_goes_to_the_next() -> None:
    lane, batches = new_lane(3)
    send_all(lane)
    lane.refuse(batches[0], TopicNotFound("gone"), 0.0)
    lane.refuse(batches[1], GAP, 0.0)
    lane.refuse(batches[2], GAP, 0.0)
    assert [outcome(batch) for batch in batches] == [TopicNotFound, None, None]
    assert (send_all(lane), lane.producer_epoch) == ([1, 2], 0)


def test_a_number_of_which_a_copy_is_lost_is_never_given_again() -> None:
    lane, batches = new_lane(2)
    send_all(lane)
    lane.lose(batches, Unavailable("reset"), 0.0)
    assert lane.state is LaneState.ROUTING
    lane.route_found(0.0)
    lane.tick(lane.resume_at)
    assert send_all(lane) == [1, 2]
    lane.refuse(batches[0], ConditionFailed("no"), 0.0)
    lane.refuse(batches[1], GAP, 0.0)
    assert outcome(batches[0]) is ConditionFailed
    assert (send_all(lane), lane.producer_epoch) == ([1], 1)


def test_what_expires_in_flight_is_unknown_and_those_behind_it_share_its_fate() -> None:
    lane, batches = new_lane(CLIENT_IN_FLIGHT_MAX + 1)
    send_all(lane)
    for batch in batches:
        batch.deadline = 200.0
    batches[0].deadline = 100.0
    lane.tick(100.0)
    assert {outcome(batch) for batch in batches[:-1]} == {WriteUnknown}
    assert outcome(batches[-1]) is None
    assert (send_all(lane), lane.producer_epoch) == ([1], 1)


def test_what_expires_unsent_was_certainly_not_written() -> None:
    lane, batches = new_lane(1)
    lane.need_route()
    lane.tick(100.0)
    assert outcome(batches[0]) is DeadlineExceeded
    assert lane.producer_epoch == 0


def test_a_condition_is_alone_in_flight() -> None:
    lane, batches = new_lane(3, alone=frozenset({1}))
    assert send_all(lane) == [1]
    lane.accept(batches[0], DELIVERY, 0.0)
    assert send_all(lane) == [2]
    lane.accept(batches[1], DELIVERY, 0.0)
    assert send_all(lane) == [3]


def test_a_forgotten_producer_begins_a_new_epoch() -> None:
    lane, batches = new_lane(1)
    send_all(lane)
    lane.refuse(batches[0], ProducerUnknown("who?"), 0.0)
    lane.tick(lane.resume_at)
    assert (send_all(lane), lane.producer_epoch) == ([1], 1)


def test_a_forgotten_producer_with_a_lost_copy_cannot_know() -> None:
    lane, batches = new_lane(1)
    send_all(lane)
    lane.lose(batches, Unavailable("reset"), 0.0)
    lane.route_found(0.0)
    lane.tick(lane.resume_at)
    send_all(lane)
    lane.refuse(batches[0], ProducerUnknown("who?"), 0.0)
    assert outcome(batches[0]) is WriteUnknown


def test_a_fenced_producer_ends() -> None:
    lane, batches = new_lane(3)
    send_all(lane)
    for batch in batches:
        lane.refuse(batch, ProducerFenced("a newer one"), 0.0)
    assert [outcome(batch) for batch in batches] == [ProducerFenced] * 3


def test_a_topic_that_is_gone_ends_what_waits_and_trouble_is_waited_out() -> None:
    lane, batches = new_lane(1)
    lane.need_route()
    lane.route_failed(Unavailable("no server"), 0.0)
    assert (lane.state, outcome(batches[0])) == (LaneState.PAUSED, None)
    lane.need_route()
    lane.route_failed(TopicNotFound("gone"), 0.0)
    assert outcome(batches[0]) is TopicNotFound


def test_the_last_epoch_is_never_passed() -> None:
    """The next one belongs to the producer's next life, whose messages would be taken for repeats."""
    lane, batches = new_lane(2, last_epoch=0)
    send_all(lane)
    batches[1].deadline = 200.0
    batches[1].in_flight = False
    lane.in_flight = 1
    lane.tick(100.0)
    assert [outcome(batch) for batch in batches] == [WriteUnknown, FailedPrecondition]


def test_closing_tells_everyone_and_says_who_is_in_doubt() -> None:
    lane, batches = new_lane(CLIENT_IN_FLIGHT_MAX + 1)
    send_all(lane)
    lane.close(FailedPrecondition("closed"))
    assert [outcome(batch) for batch in batches] == [WriteUnknown] * CLIENT_IN_FLIGHT_MAX + [FailedPrecondition]
    assert lane.in_flight == 0
