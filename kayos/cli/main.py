"""The entry point: which commands there are, and how every run ends.

Whatever happens, a run ends with an exit code of `failure.py` and one line `kayos: ...` on stderr if it failed; a
traceback is shown only with KAYOS_DEBUG=1.
"""

import os
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

import click

import kayos
from kayos.cli.failure import exit_code_of, explain
from kayos.cli.lazy import LazyGroup
from kayos.cli.output import PipeClosed, flush_out, say, silence_out

# Name: (module, object, one line for `kayos --help`). A module is imported when its command is used.
COMMANDS = {
    "dev": ("kayos.cli.dev", "dev", "Run one node for development; Ctrl-C ends it."),
    "node": ("kayos.cli.node", "node", "Run a node."),
    "topic": ("kayos.cli.topic", "topic", "Create, list, describe, alter and delete topics."),
    "produce": ("kayos.cli.produce", "produce", "Write messages: one, or lines of stdin."),
    "consume": ("kayos.cli.consume", "consume", "Read messages, snapshot by snapshot."),
    "get": ("kayos.cli.get", "get", "Show the newest message of a key."),
    "mark": ("kayos.cli.mark", "mark", "List, get, set and reset the marks of consumers."),
    "pin": ("kayos.cli.pin", "pin", "Create, list, renew and release pinned snapshots."),
    "chain": ("kayos.cli.chain", "chain", "Show the chain of a shard, member by member."),
    "cluster": ("kayos.cli.cluster", "cluster", "Show the state of the servers."),
    "check": ("kayos.cli.check", "check", "Prove that a data directory is sound, offline."),
    "compact": ("kayos.cli.compact", "compact", "Give the free space of a topic's files back to the disk."),
    "config": ("kayos.cli.config", "config", "Check and show a node's settings."),
    "bench": ("kayos.cli.bench", "bench", "Measure a node and this machine."),
    "completion": ("kayos.cli.completion", "completion", "Print the completion script of a shell."),
}


@click.group(
    cls=LazyGroup,
    commands_by_name=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="""\b
Example:
  kayos dev                                  in one terminal; then in another:
  kayos topic create orders
  kayos produce orders -k 1001 -v '{"total": 9}'
  kayos consume orders --consumer billing -e

\b
Exit codes: 0 ok, 1 failure, 2 bad usage or input, 3 not found, 4 not allowed, 5 unavailable or timeout,
6 conflict, 70 a bug in Kayos, 130 ended by Ctrl-C.""",
)
@click.option("--servers", metavar="HOST:PORT[,...]", help="As for every command that has --servers.")
@click.version_option(kayos.__version__, prog_name="kayos", message="%(prog)s %(version)s")
def cli(servers: str | None) -> None:
    """Kayos: a durable, ordered, de-duplicating message log."""


def run() -> NoReturn:
    """The program `kayos`. Everything of ours is closed when `main` returns; what is left are gRPC's threads, and the
    interpreter's own end may wait for ever for a lock that one of them held when it was stopped."""
    code = main()
    with suppress(PipeClosed):
        flush_out()
    leave_at_once(code)


def main() -> int:
    """The exit code of `kayos` with the arguments of this process."""
    try:
        result = cli.main(sys.argv[1:], prog_name="kayos", standalone_mode=False)
        flush_out()
        return result if isinstance(result, int) else 0
    except PipeClosed:
        # Whoever read our output has what it wanted (`| head`).
        silence_out()
        return 0
    except (click.Abort, KeyboardInterrupt):
        show_trace()
        leave_at_once(130)
    except click.ClickException as error:
        show_trace()
        return tell_usage(error)
    except Exception as error:
        show_trace()
        say(explain(error))
        return exit_code_of(error)


def tell_usage(error: click.ClickException) -> int:
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return 2
    hint = f" (see '{context.command_path} --help')" if context is not None else ""
    say(f"{error.format_message().rstrip('.')}{hint}")
    return error.exit_code


def show_trace() -> None:
    if os.environ.get("KAYOS_DEBUG", "") not in ("", "0"):
        traceback.print_exc()


def leave_at_once(code: int) -> NoReturn:
    """Without waiting for anything: output that was not written is not committed either, and a blocked reader or a
    lost server must not hold up Ctrl-C."""
    with suppress(OSError):
        if sys.stderr is not None:
            sys.stderr.flush()
    os._exit(code)
