"""The question before a destructive command."""

import select
import signal
import socket
import sys

import click

from kayos.cli.output import can_ask


def ask(question: str, *, yes: bool) -> None:
    """Go on only with --yes or a `y` typed on the terminal."""
    if yes:
        return
    if not can_ask():
        raise click.UsageError(f"{question} There is no terminal to ask on: say --yes", click.get_current_context())
    sys.stderr.write(f"{question} [y/N]: ")
    sys.stderr.flush()
    if read_line().strip().lower() not in ("y", "yes"):
        raise click.ClickException("nothing was changed")


def read_line() -> str:
    """What is typed, empty at the end of the input.

    Python looks at signals only between two of its own steps: a Ctrl-C that comes just before a blocking read would
    wait for the next key. The wake-up descriptor is written to at once, and the wait for both ends.
    """
    awake, waker = socket.socketpair()
    waker.setblocking(False)
    before = signal.set_wakeup_fd(waker.fileno())
    try:
        select.select([sys.stdin, awake], [], [])
        return sys.stdin.readline()
    finally:
        signal.set_wakeup_fd(before)
        awake.close()
        waker.close()
