"""The two doors out: data on stdout, everything else on stderr.

Data is UTF-8 whatever the locale says. A reader that went away is one exception of its own, PipeClosed, so that it is
never taken for a failure. Text that came from messages is made harmless for terminals and line readers.
"""

import errno
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kayos.cli.failure import Failure

if TYPE_CHECKING:
    from rich.table import Table

STDOUT = 1
FORMATS = ("table", "json", "jsonl")
Row = Mapping[str, Any]

# JSON escapes the control characters below space; these would still steer a terminal or end a line for some readers.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029]")
_PIPE_WIDTH = 10_000
_encode = json.JSONEncoder(ensure_ascii=False).encode


class PipeClosed(Exception):
    """Whoever read our stdout is gone."""


def write_out(data: bytes) -> None:
    try:
        stdout().write(data)
    except BrokenPipeError as error:
        raise PipeClosed from error


def flush_out() -> None:
    """After this the data is in the hands of whoever reads it."""
    try:
        if sys.stdout is not None:
            stdout().flush()
    except BrokenPipeError as error:
        raise PipeClosed from error


def stdout() -> Any:
    if sys.stdout is None:
        raise Failure("stdout is closed: give the output somewhere to go, /dev/null for instance")
    return sys.stdout.buffer


def silence_out() -> None:
    """Send what is still buffered nowhere, or the interpreter would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)


def say(message: str) -> None:
    """One line on stderr."""
    try:
        sys.stderr.write(f"kayos: {printable(' '.join(message.split()))}\n")
        sys.stderr.flush()
    except (OSError, AttributeError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.EPIPE, errno.EBADF):
            raise


def printable(text: str) -> str:
    """Text without anything that steers a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def can_ask() -> bool:
    """Whether there is someone to answer a question: they see stderr and type into stdin."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


def to_json(value: Any) -> str:
    """One line that no reader of lines takes for two."""
    text = _encode(value)
    return text if text.isascii() else _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def choose_format(given: str | None) -> str:
    return given or ("table" if is_terminal() else "json")


def show_rows(rows: Sequence[Row], given: str | None, columns: Sequence[str]) -> None:
    """Several things: a table of `columns`, one JSON array, or a line of JSON each."""
    match choose_format(given):
        case "table":
            show_table(rows, columns)
        case "jsonl":
            for row in rows:
                write_out(f"{to_json(row)}\n".encode())
        case _:
            write_out(f"{to_json(rows)}\n".encode())


def show_one(row: Row, given: str | None) -> None:
    """One thing: a table of its fields, or one JSON object."""
    if choose_format(given) != "table":
        write_out(f"{to_json(row)}\n".encode())
        return
    fields = [{"field": name, "value": value} for name, value in row.items()]
    show_table(fields, ("field", "value"), with_header=False)


def show_table(rows: Sequence[Row], columns: Sequence[str], *, with_header: bool = True) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=with_header, header_style="bold", pad_edge=False)
    for column in columns:
        numeric = with_header and bool(rows) and all(isinstance(row.get(column), int) for row in rows)
        table.add_column(column.upper(), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(row.get(column))) for column in columns))
    print_table(table)


def print_table(table: "Table") -> None:
    """Through the same door; without a terminal nothing is folded, so that other programs can cut the columns."""
    from io import StringIO

    from rich.console import Console

    console = Console(
        file=StringIO(), force_terminal=is_terminal(), width=None if is_terminal() else _PIPE_WIDTH, highlight=False
    )
    with console.capture() as captured:
        console.print(table)
    lines = captured.get().split("\n")
    write_out("\n".join(line if is_terminal() else line.rstrip() for line in lines).encode())


def cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(value if isinstance(value, str) else str(value) if isinstance(value, int) else to_json(value))
