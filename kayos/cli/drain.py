"""From a consumer to stdout: write, flush, and only then commit."""

import os
import select
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kayos.cli.failure import Failure, exit_code_of
from kayos.cli.messages import MessageWriter
from kayos.cli.output import STDOUT, PipeClosed, flush_out, is_terminal, say, write_out
from kayos.cli.progress import Advance
from kayos.errors import KayosError, MarkBackwards, ResetRequired, RollbackRequired, SnapshotExpired

if TYPE_CHECKING:
    from kayos.client.blocking.consumer import Consumer
    from kayos.client.blocking.messages import MessageConsumer
    from kayos.client.blocking.snapshot import Snapshot
    from kayos.client.core.message import Message


class Drain:
    """`on_progress` hears how many messages were written, unless they go to a terminal and speak for themselves."""

    def __init__(self, writer: MessageWriter, *, as_table: bool, commits: bool, on_progress: Advance) -> None:
        self._writer = writer
        self._as_table = as_table
        self._commits = commits
        self._on_progress = on_progress

    def by_snapshot(self, consumer: "Consumer") -> None:
        """Whole snapshots, committed at their boundaries."""
        self._begin()
        with consumer, translated_errors(ReaderWatch(consumer.close)):
            while True:
                try:
                    snapshot = next(consumer, None)
                    if snapshot is None:
                        return
                    self._write_snapshot(snapshot)
                except SnapshotExpired as error:
                    say(f"{error.message}; it follows again, some messages come twice")

    def by_message(self, consumer: "MessageConsumer", count: int) -> None:
        """Up to `count` messages; the mark is committed behind the last one of each batch."""
        self._begin()
        left = count
        with consumer, translated_errors(ReaderWatch(consumer.close)):
            for batch in consumer.batches():
                wanted = batch[:left]
                self._write(wanted)
                if self._commits:
                    consumer.commit(wanted[-1])
                left -= len(wanted)
                if not left:
                    return

    def _begin(self) -> None:
        if self._as_table:
            write_out(self._writer.table_head())
            flush_out()

    def _write_snapshot(self, snapshot: "Snapshot") -> None:
        for batch in snapshot.batches():
            self._write(batch)
        if self._commits:
            snapshot.commit()

    def _write(self, messages: "list[Message]") -> None:
        write_out(self._writer.table_lines(messages) if self._as_table else self._writer.lines(messages))
        flush_out()
        if not is_terminal():
            self._on_progress(len(messages))


class ReaderWatch:
    """Notices that the other end of our stdout is gone while there is nothing to write, so that `consume | head -1`
    ends when head does and not with the next message."""

    def __init__(self, on_gone: Callable[[], None]) -> None:
        self._on_gone = on_gone
        self.is_gone = False
        mode = os.fstat(STDOUT).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            threading.Thread(target=self._watch, name="kayos-reader-watch", daemon=True).start()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(STDOUT, 0)
        poll.poll()
        self.is_gone = True
        self._on_gone()


@contextmanager
def translated_errors(watch: ReaderWatch) -> Iterator[None]:
    """A reader that went away is no failure; marks that the log refuses get the command that helps."""
    try:
        yield
    except (MarkBackwards, RollbackRequired, ResetRequired) as error:
        raise Failure(
            f"{error.message}; 'kayos mark reset' moves a consumer's mark, --no-commit leaves it", exit_code_of(error)
        ) from error
    except KayosError:
        if watch.is_gone:
            raise PipeClosed from None
        raise
    if watch.is_gone:
        raise PipeClosed
