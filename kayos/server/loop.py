"""The one door to uvloop: run a coroutine on the node's event loop."""

from collections.abc import Coroutine
from typing import TypeVar

import uvloop

T = TypeVar("T")


def run_on_loop(main: Coroutine[object, object, T]) -> T:
    result: T = uvloop.run(main)
    return result
