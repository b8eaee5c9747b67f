"""Both clients behind one way of calling, so that each story is told once and run twice.

Stories are written for the asyncio client. `Awaited` lets the blocking client play the same part: what is a
coroutine there is called in a thread here. It looks every name up in the asyncio client's class, so a name that only
one of them has fails.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import Any

import kayos
import kayos.aio
from kayos.client import aio, blocking
from kayos.client.aio import marks as aio_marks
from kayos.client.aio import pins as aio_pins
from kayos.client.aio import topics as aio_topics
from kayos.client.blocking import marks, pins, topics

__all__ = ["PAIRS", "SHELLS", "Awaited", "aio", "blocking"]

PAIRS: dict[type, type] = {
    kayos.Client: kayos.aio.Client,
    kayos.Consumer: kayos.aio.Consumer,
    kayos.MessageConsumer: kayos.aio.MessageConsumer,
    kayos.Snapshot: kayos.aio.Snapshot,
    kayos.Transaction: kayos.aio.Transaction,
    topics.Topics: aio_topics.Topics,
    marks.Marks: aio_marks.Marks,
    pins.Pins: aio_pins.Pins,
}
_END = object()


class Awaited:
    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._twin = PAIRS[type(inner)]

    def __getattr__(self, name: str) -> Any:
        twin = getattr(self._twin, name)
        found = getattr(self._inner, name)
        if inspect.iscoroutinefunction(twin):

            async def call(*arguments: Any, **options: Any) -> Any:
                return translate(await asyncio.to_thread(found, *arguments, **options))

            return call
        if inspect.isasyncgenfunction(twin):
            return lambda *arguments, **options: iterate(found(*arguments, **options))
        if inspect.isfunction(twin):
            return lambda *arguments, **options: translate(found(*arguments, **options))
        return translate(found)

    async def __aenter__(self) -> Any:
        return translate(await asyncio.to_thread(self._inner.__enter__))

    async def __aexit__(self, *exception: Any) -> None:
        await asyncio.to_thread(self._inner.__exit__, *exception)

    def __aiter__(self) -> AsyncIterator[Any]:
        return iterate(iter(self._inner))

    async def __anext__(self) -> Any:
        found = await asyncio.to_thread(next, self._inner, _END)
        if found is _END:
            raise StopAsyncIteration
        return translate(found)


def translate(found: Any) -> Any:
    if isinstance(found, Future):
        return asyncio.wrap_future(found)
    return Awaited(found) if type(found) in PAIRS else found


async def iterate(iterator: Iterator[Any]) -> AsyncIterator[Any]:
    while (found := await asyncio.to_thread(next, iterator, _END)) is not _END:
        yield translate(found)


def connect_blocking(servers: str, **settings: Any) -> Any:
    return Awaited(kayos.connect(servers, **settings))


SHELLS: dict[str, Callable[..., Any]] = {"blocking": connect_blocking, "aio": kayos.aio.connect}
