"""Places in a log as users write them: 0, mark, latest, seq:N, time:2026-01-31T12:00:00Z, time:1767225600000."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

import click


class Place(Enum):
    BEGINNING = "0"
    MARK = "mark"
    LATEST = "latest"
    DROP = "drop"
    SEQ = "seq:N"
    TIME = "time:T"


@dataclass(frozen=True, slots=True)
class Position:
    place: Place
    number: int = 0


def position_type(*places: Place) -> Callable[[str], Position]:
    """A type of option: one of `places`, a sequence or a time."""
    words = {place.value: place for place in places}

    def parse(text: str) -> Position:
        if text in words:
            return Position(words[text])
        kind, _, rest = text.partition(":")
        if kind == "seq" and is_number(rest):
            return Position(Place.SEQ, int(rest))
        if kind == "time":
            return Position(Place.TIME, parse_time(rest))
        raise click.BadParameter(f"{text!r} is no position: give one of {', '.join(words)}, seq:N, time:T")

    return parse


def position_metavar(*places: Place) -> str:
    return "|".join([place.value for place in (*places, Place.SEQ, Place.TIME)])


def parse_time(text: str) -> int:
    """Milliseconds since 1970; without a zone it is the local time, as for every other tool."""
    if is_number(text):
        return int(text)
    try:
        timestamp_ms = int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        timestamp_ms = -1
    if timestamp_ms < 0:
        raise click.BadParameter(f"{text!r} is no time: give 2026-01-31T12:00:00Z, or milliseconds since 1970")
    return timestamp_ms


def is_number(text: str) -> bool:
    """Whether it is a whole number that a sequence or a time can have."""
    return text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < 2**63
