"""Messages one by one or in lists, whichever the caller likes."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator

from kayos.client.core.message import Message


class Batched(ABC):
    """A loop that was left early goes on where it was, in either way."""

    def __init__(self) -> None:
        self._rest: Iterator[Message] = iter(())

    async def __aiter__(self) -> AsyncIterator[Message]:
        for message in self._rest:
            yield message
        while (batch := await self._next_batch()) is not None:
            self._rest = iter(batch)
            for message in self._rest:
                yield message

    async def batches(self) -> AsyncIterator[list[Message]]:
        """The messages in lists, as they arrive: less work per message."""
        if rest := list(self._rest):
            yield rest
        while (batch := await self._next_batch()) is not None:
            yield batch

    @abstractmethod
    async def _next_batch(self) -> list[Message] | None:
        """None at the end, or when `close` was called meanwhile."""
