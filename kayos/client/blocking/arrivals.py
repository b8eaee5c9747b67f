"""Which shard has a snapshot to read next.

One shard is waited for on the caller's own thread. With several, a thread per shard waits for the next snapshot to
begin and then rests until the caller is through with it; it never reads messages itself, so what a slow caller
leaves unread stays on the server.
"""

import threading
from queue import SimpleQueue

from kayos.client.blocking.driver import Driver
from kayos.client.core.reader import ShardReader
from kayos.errors import FailedPrecondition, KayosError


class Arrivals:
    def __init__(self, driver: Driver, readers: list[ShardReader]) -> None:
        self._driver = driver
        self._readers = readers
        self._queue: SimpleQueue[tuple[ShardReader, bool | KayosError]] = SimpleQueue()
        self._turns: dict[ShardReader, threading.Semaphore] = {}
        self._resting: list[ShardReader] = []
        self._living = len(readers)

    def wait(self) -> ShardReader | None:
        """The reader of the next snapshot, in the order in which they began; None when there will be none."""
        if len(self._readers) == 1:
            return self._readers[0] if self._driver.run(self._readers[0].wait_begin()) else None
        self._wake_threads()
        while self._living:
            reader, outcome = self._queue.get()
            if outcome is False:
                self._living -= 1
                continue
            self._resting.append(reader)
            if isinstance(outcome, KayosError):
                raise outcome
            return reader
        return None

    def close(self) -> None:
        closed = FailedPrecondition("this consumer is closed: begin another one")
        for reader in self._readers:
            reader.closed = True
            stream = reader.stream
            if stream is not None:
                stream.cancel()
            self._queue.put((reader, closed))
        for turn in self._turns.values():
            turn.release()

    def _wake_threads(self) -> None:
        """The caller is through with the snapshots it was given, so their shards may wait for the next."""
        if not self._turns:
            for reader in self._readers:
                self._turns[reader] = threading.Semaphore(1)
            for reader in self._readers:
                name = f"kayos-consume-{reader.shard}"
                threading.Thread(target=self._follow, args=(reader,), name=name, daemon=True).start()
        while self._resting:
            self._turns[self._resting.pop()].release()

    def _follow(self, reader: ShardReader) -> None:
        has_more: bool | KayosError = True
        while has_more is not False:
            self._turns[reader].acquire()
            if reader.closed:
                return
            try:
                has_more = self._driver.run(reader.wait_begin())
            except KayosError as error:
                has_more = error
            self._queue.put((reader, has_more))
