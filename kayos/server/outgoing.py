"""Words on their way out of one stream, in order.

A sign of life that still waits gives way to a newer one, so that a reader that is slow finds one of them and not a
thousand; everything else is bounded by the machine's windows. A word that can wait goes out with the next one that
cannot, or after a moment: each message costs two processes more than its bytes do.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

from kayos.limits import PATIENT_WORD_S
from kayos.stream.messages import Ack, Downward, Progress, Upward

Word = TypeVar("Word", Upward, Downward)


class Outgoing(Generic[Word]):
    """For one taker."""

    def __init__(self) -> None:
        self._words: deque[Word] = deque()
        self._is_closed = False
        self._is_due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._words)

    def put(self, word: Word, *, can_wait: bool = False) -> None:
        words = self._words
        if words and isinstance(word, Progress | Ack) and type(words[-1]) is type(word):
            words[-1] = word
        else:
            words.append(word)
        if not can_wait:
            self._become_due()
        elif self._timer is None and not self._is_due.is_set():
            self._timer = asyncio.get_running_loop().call_later(PATIENT_WORD_S, self._become_due)

    def close(self) -> None:
        self._is_closed = True
        self._become_due()

    async def take(self) -> Word | None:
        """The next word; None when the stream is to end."""
        if not self._words and not self._is_closed:
            self._is_due.clear()
        await self._is_due.wait()
        return None if self._is_closed else self._words.popleft()

    def _become_due(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_due.set()
