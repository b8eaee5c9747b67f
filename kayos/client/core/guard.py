"""A client belongs to the process that made it: its threads and connections do not survive a fork or a pickle."""

import os
from typing import NoReturn

from kayos.errors import FailedPrecondition


class Guarded:
    """Base of both clients. gRPC channels that cross a fork can hang without a word, so use is refused."""

    _owner_pid: int
    _closed: bool

    def _take_ownership(self) -> None:
        self._owner_pid = os.getpid()
        self._closed = False

    def _check_usable(self) -> None:
        if os.getpid() != self._owner_pid:
            raise FailedPrecondition(
                f"this client belongs to process {self._owner_pid}, this is {os.getpid()}: "
                "connect again after a fork (or start workers with 'spawn')"
            )
        if self._closed:
            raise FailedPrecondition("this client is closed: connect again")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Kayos client cannot be pickled: connect again in the other process")
