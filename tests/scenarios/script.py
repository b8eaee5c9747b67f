"""The script language: a line that begins with `>` is a word of the stage with its arguments, what follows is what it told.

    > view A B C min_durable=3
    > write w1 A k=1
    > run

A story is replayed by its own words; everything else in the file must come out again, byte for byte. Comments (`#`) and
empty lines stay where they are.
"""

import inspect

from tests.scenarios.stage import Actor, Stage
from tests.simulation.node import _PERFORM, Node
from tests.simulation.weights import bounds_given_back

from kayos.replica.effects import SendDown  # isort: skip


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
    options = set(inspect.signature(method).parameters) | ({"window_count", "piece_bytes"} & set(dir(stage.bounds)))
    given, named = [], {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if equals and key in options:
            named[key] = convert(value)
        else:
            given.append(convert(word) if words[0] not in ("write", "view") else word)
    method(*given, **named)


def convert(word: str) -> int | str:
    return int(word) if word.lstrip("-").isdigit() else word


def _send_down(node: Node, effect: SendDown) -> None:
    if isinstance(node, Actor):
        node.stage.hear(node.name, effect)
    Node._send_down(node, effect)


_PERFORM[SendDown] = _send_down
