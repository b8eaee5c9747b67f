"""The script language: a line that begins with `>` is a word of the stage and its arguments; below it is what it told.

    > view A B C min_durable=3
    > write w1 A k=1
    > run

A story is replayed by its own words; everything else in the file must come out again, byte for byte. Comments (`#`) and
empty lines stay where they are.
"""

import inspect

from tests.scenarios.stage import Stage
from tests.simulation.weights import bounds_given_back


def replay(text: str) -> str:
    stage = Stage()
    told: list[str] = []
    with bounds_given_back():
        stage.bounds.install()
        for line in text.splitlines():
            if line.startswith(">"):
                told.append(line)
                perform(stage, line[1:].split())
                told += stage.lines
                stage.lines = []
            elif line.startswith("#") or not line:
                told.append(line)
    return "\n".join(told) + "\n"


def perform(stage: Stage, words: list[str]) -> None:
    method = getattr(stage, words[0])
    options = {*inspect.signature(method).parameters, *stage.bounds.__dict__}
    given, named = [], {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if equals and key in options:
            named[key] = convert(value)
        else:
            given.append(convert(word) if words[0] not in ("write", "view") else word)
    method(*given, **named)


def convert(word: str) -> float | int | str:
    if word.isdigit():
        return int(word)
    return float(word) if word.replace(".", "", 1).isdigit() else word
