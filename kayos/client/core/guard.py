"""A client belongs to the process that made it: its threads and connections do not survive a fork or a pickle.

The guard speaks when a forked child uses its copy. It cannot help a child that gRPC itself breaks: with a live
asyncio channel and gRPC's default fork handlers some children die before any Python runs in them. So close the
client before a fork, or start workers with 'spawn'.
"""

import os
from typing import NoReturn

from kayos.errors import FailedPrecondition


def closed_client() -> FailedPrecondition:
    return FailedPrecondition("this client is closed: connect again")


class Unpicklable:
    def __reduce__(self) -> NoReturn:
        raise TypeError("a Kayos client cannot be pickled: connect again in the other process")


class Guarded(Unpicklable):
    """Base of both drivers, through which all work goes. gRPC channels that cross a fork can hang without a word, so
    use is refused."""

    def __init__(self) -> None:
        self._owner_pid = os.getpid()
        self.is_closed = False

    @property
    def is_foreign(self) -> bool:
        """Whether this is a copy that a fork made."""
        return os.getpid() != self._owner_pid

    def check_usable(self) -> None:
        if self.is_foreign:
            raise FailedPrecondition(
                f"this client belongs to process {self._owner_pid}, this is {os.getpid()}: "
                "connect again after a fork (or start workers with 'spawn')"
            )
        if self.is_closed:
            raise closed_client()
