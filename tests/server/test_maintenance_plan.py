"""What housekeeping is decided, fact by fact: one line, one case."""

from typing import Any

import pytest

from kayos.limits import MAINTENANCE_ROWS_MAX
from kayos.model.control import Control, EndPin, Expire, ForgetProducers, Purge, Trim
from kayos.model.floors import Floors
from kayos.model.pin import Pin
from kayos.model.topic import Mode, Retention
from kayos.model.write import ControlRequest
from kayos.server.maintenance_plan import Facts, plan

NOW = 1_000_000
LOG = {"mode": Mode.LOG}
TEN = tuple((seq, 100) for seq in range(1, 11))
OLD_PIN = Pin("old", 5, 0, NOW)
LIVE_PIN = Pin("live", 9, 0, NOW + 1)
OLDER_LIVE_PIN = Pin("older", 7, 0, NOW + 1)
ENDED_PIN = Pin("ended", 3, 0, 0, ended="released", ended_seq=4)

CASES: list[tuple[str, dict[str, Any], list[Control]]] = [
    ("nothing to do", {}, []),
    ("a lease past", {"pins": (OLD_PIN, LIVE_PIN, ENDED_PIN)}, [EndPin("old", "lease ended")]),
    (
        "over the budget the oldest pin goes",
        {"pins": (LIVE_PIN, OLDER_LIVE_PIN, ENDED_PIN), "retained_bytes": 11, "retained_bytes_max": 10},
        [EndPin("older", "retained bytes over budget")],
    ),
    (
        "at the budget none goes",
        {"pins": (LIVE_PIN,), "retained_bytes": 10, "retained_bytes_max": 10},
        [],
    ),
    (
        "a lease past may free enough, so the budget waits",
        {"pins": (OLD_PIN, LIVE_PIN), "retained_bytes": 11, "retained_bytes_max": 10},
        [EndPin("old", "lease ended")],
    ),
    (
        "unswept rows may be nobody's, so the budget waits",
        {"pins": (LIVE_PIN,), "retained_bytes": 11, "retained_bytes_max": 10, "swept": False},
        [],
    ),
    ("tombstones old enough", {"purgeable_seq": 7}, [Purge(7)]),
    ("purged before", {"purgeable_seq": 7, "floors": Floors(purge_seq=7)}, []),
    ("TTLs past", {"expired": (NOW - 5, 3)}, [Expire(NOW - 5, 3, 0)]),
    (
        "TTLs past, with floors kept",
        {"expired": (NOW - 5, 3), "floors": Floors(aged_seq=2, expired_ms=9, expired_seq=1)},
        [Expire(NOW - 5, 3, 2)],
    ),
    ("messages past max_age", {"front": TEN, "aged_seq": 4}, [Expire(0, 0, 4)]),
    ("no message at or below the age", {"front": ((5, 10),), "aged_seq": 4}, []),
    (
        "aged, TTL floors kept",
        {"front": TEN, "aged_seq": 4, "floors": Floors(expired_ms=9, expired_seq=8)},
        [Expire(9, 8, 4)],
    ),
    ("a log within its bounds", LOG | {"front": TEN, "messages": 10, "retention": Retention(max_messages=10)}, []),
    (
        "a log of too many",
        LOG | {"front": TEN, "messages": 10, "retention": Retention(max_messages=7)},
        [Trim(3)],
    ),
    (
        "a log too large, by a byte",
        LOG | {"front": TEN, "messages": 10, "message_bytes": 1_000, "retention": Retention(max_bytes=899)},
        [Trim(2)],
    ),
    ("a log too old", LOG | {"front": TEN, "messages": 10, "aged_seq": 6}, [Trim(6)]),
    (
        "whichever goes furthest",
        LOG | {"front": TEN, "messages": 10, "aged_seq": 2, "retention": Retention(max_messages=5)},
        [Trim(5)],
    ),
    (
        "trimmed before",
        LOG | {"front": (), "messages": 0, "aged_seq": 6, "floors": Floors(trim_seq=6)},
        [],
    ),
    ("a log has no tombstones", LOG | {"purgeable_seq": 7}, []),
    ("a log has TTLs", LOG | {"expired": (NOW - 5, 3)}, [Expire(NOW - 5, 3, 0)]),
    ("producers idle for long", {"producers": 2, "idle_producers_seq": 8}, [ForgetProducers(8)]),
    ("no producers to forget", {"producers": 0, "idle_producers_seq": 8}, []),
    (
        "everything at once, pins first",
        {
            "pins": (OLD_PIN,),
            "purgeable_seq": 7,
            "expired": (NOW, 9),
            "producers": 1,
            "idle_producers_seq": 8,
        },
        [EndPin("old", "lease ended"), Purge(7), Expire(NOW, 9, 0), ForgetProducers(8)],
    ),
]


@pytest.mark.parametrize(("facts", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_plan(facts: dict[str, Any], expected: list[Control]) -> None:
    base: dict[str, Any] = {"now_ms": NOW, "mode": Mode.COMPACT, "retention": Retention(), "floors": Floors()}
    assert plan(Facts(**(base | facts))) == [ControlRequest(control) for control in expected]


def test_one_step_is_bounded() -> None:
    front = tuple((seq, 1) for seq in range(1, 2 * MAINTENANCE_ROWS_MAX))
    facts = Facts(now_ms=NOW, mode=Mode.LOG, retention=Retention(), floors=Floors(), front=front, aged_seq=10**9)
    assert plan(facts) == [ControlRequest(Trim(MAINTENANCE_ROWS_MAX))]
