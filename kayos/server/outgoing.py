"""Words on their way out of one stream, in order. A sign of life that still waits gives way to a newer one, so that a
reader that is slow finds one of them and not a thousand; everything else is bounded by the machine's windows."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

from kayos.stream.messages import Ack, Downward, Progress, Upward

Word = TypeVar("Word", Upward, Downward)


class Outgoing(Generic[Word]):
    """For one taker."""

    def __init__(self) -> None:
        self._words: deque[Word] = deque()
        self._is_closed = False
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._words)

    def put(self, word: Word) -> None:
        words = self._words
        if words and isinstance(word, Progress | Ack) and type(words[-1]) is type(word):
            words[-1] = word
        else:
            words.append(word)
        self._changed.set()

    def close(self) -> None:
        self._is_closed = True
        self._changed.set()

    async def take(self) -> Word | None:
        """The next word; None when the stream is to end."""
        while not self._words and not self._is_closed:
            self._changed.clear()
            await self._changed.wait()
        return None if self._is_closed else self._words.popleft()
