"""Calls with retries: how a search for a server ends, and what it says."""

import pytest

from kayos.client.core.calls import Attempts, Directory
from kayos.client.core.settings import make_settings
from kayos.client.core.steps import Pause
from kayos.errors import DeadlineExceeded, KayosError, Overloaded, Unavailable

REFUSED = Unavailable("UNAVAILABLE: connection refused")
TOO_LATE = DeadlineExceeded("DEADLINE_EXCEEDED: Deadline Exceeded")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def end_of(*failures: KayosError) -> KayosError:
    """What the caller is told when every try fails and the last one at the deadline."""
    clock = Clock()
    attempts = Attempts(Directory(make_settings("a:1,b:2"), clock), 1.0)
    *early, last = failures
    for failure in early:
        assert isinstance(attempts.pause_after(failure), Pause)
    clock.now += 0.9999
    assert 0 < attempts.left_s < 0.01
    with pytest.raises(KayosError) as caught:
        attempts.pause_after(last)
    return caught.value


def test_a_search_in_vain_names_the_servers_and_what_to_do() -> None:
    found = end_of(REFUSED, REFUSED)
    assert type(found) is Unavailable
    assert "no server of a:1,b:2 answered within 1 s" in found.message
    assert "see that a node runs there" in found.message


def test_a_last_try_without_time_does_not_hide_what_the_others_were_told() -> None:
    assert end_of(REFUSED, TOO_LATE).message == end_of(REFUSED, REFUSED).message
    assert type(end_of(Overloaded("full"), TOO_LATE)) is Overloaded


def test_silence_throughout_is_a_deadline() -> None:
    found = end_of(TOO_LATE, TOO_LATE)
    assert type(found) is DeadlineExceeded
    assert "no answer within 1 s" in found.message
