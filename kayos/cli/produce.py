"""`kayos produce`: one message from the command line, or a stream of them from stdin."""

import os
import stat
import sys

import click

from kayos.cli.encoding import from_text
from kayos.cli.feed import Feed
from kayos.cli.lines import Line, LineParser
from kayos.cli.options import (
    Connection,
    connection_options,
    key_encoding_option,
    output_option,
    topic_argument,
    value_encoding_option,
)
from kayos.cli.output import say, show_one
from kayos.errors import InvalidArgument


def parse_durability(text: str) -> int | str:
    if text == "all":
        return text
    if text.isascii() and text.isdecimal() and 0 < int(text[:9]) < 100:
        return int(text)
    raise click.BadParameter(f"{text!r} is neither 'all' nor a number of copies")


def parse_header(text: str) -> tuple[str, bytes]:
    name, found, value = os.fsencode(text).partition(b"=")
    try:
        decoded = name.decode()
    except UnicodeDecodeError:
        decoded = ""
    if not found or not decoded:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return decoded, value


@click.command(
    epilog="""\b
Example:
  kayos produce orders -k 1001 -v '{"total": 9}'
  kayos produce orders -k 1001 --delete
  echo '{"key": "1001", "value": "new", "headers": {"by": "me"}, "ttl_ms": 60000}' | kayos produce orders
  kayos produce orders -K : < lines-of-key:value
  kayos consume orders | kayos produce copy"""
)
@topic_argument
@click.option("-k", "--key", help="The key; without it the message is unkeyed.")
@click.option("-v", "--value", help="The value; without it, messages are read from stdin.")
@click.option("--delete", is_flag=True, help="Write a tombstone for the key.")
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Lines of stdin are KEY, this, VALUE; \\t is a tab.")
@click.option("--lines", is_flag=True, help="Lines of stdin are values without keys.")
@click.option(
    "--header", "headers", type=parse_header, multiple=True, metavar="NAME=VALUE", help="May be given several times."
)
@click.option("--ttl-ms", type=click.IntRange(1, 2**63 - 1), help="Remove it after this time.")
@click.option(
    "--expected-seq",
    type=click.IntRange(0, 2**63 - 1),
    help="Write only if the key stands at this sequence; 0: only if it does not exist. Else exit code 6.",
)
@click.option(
    "--durability",
    type=parse_durability,
    metavar="all|COPIES",
    default="all",
    show_default=True,
    help="Copies to wait for.",
)
@click.option("--route", help="Choose the shard by this in place of the key.")
@key_encoding_option
@value_encoding_option
@output_option
@connection_options
def produce(
    connection: Connection,
    topic: str,
    key: str | None,
    value: str | None,
    delete: bool,
    key_delimiter: str | None,
    lines: bool,
    headers: tuple[tuple[str, bytes], ...],
    ttl_ms: int | None,
    expected_seq: int | None,
    durability: int | str,
    route: str | None,
    key_encoding: str,
    value_encoding: str,
    output: str | None,
) -> None:
    """Write one message, or with neither -v nor --delete the messages of stdin: an object of JSON a line, with "value"
    (null: delete) and, if you like, "key", "headers", "ttl_ms", "expected_seq", "route", "key_encoding",
    "value_encoding". What the options say holds for every line that does not say otherwise.

    From stdin, a summary is written at the end, or with -o jsonl a line for each message. A line that is no message
    ends the run with exit code 2; the messages before it are delivered. Exit code 1 if any message was not delivered.
    """
    check_usage(key, value, delete=delete, delimiter=key_delimiter, lines=lines)
    route_bytes = None if route is None else os.fsencode(route)
    defaults = Line(None, None, headers, ttl_ms, expected_seq, route_bytes)
    if value is None and not delete:
        delimiter = None if key_delimiter is None else os.fsencode(key_delimiter.replace("\\t", "\t"))
        parser = LineParser(key_encoding=key_encoding, value_encoding=value_encoding, delimiter=delimiter, plain=lines)
        produce_stdin(connection, topic, parser, defaults, durability, output)
        return
    key_bytes = None if key is None else from_text("the key", os.fsencode(key), key_encoding)
    value_bytes = None if value is None else from_text("the value", os.fsencode(value), value_encoding)
    produce_one(connection, topic, defaults._replace(key=key_bytes, value=value_bytes), durability, output)


def produce_one(connection: Connection, topic: str, line: Line, durability: int | str, output: str | None) -> None:
    with connection.open() as client:
        delivery = client.produce(
            topic,
            line.value,
            key=line.key,
            headers=line.headers,
            ttl_ms=line.ttl_ms,
            expected_seq=line.expected_seq,
            route=line.route,
            durability=durability,
        )
    show_one({**delivery._asdict(), "history_id": delivery.history_id.hex()}, output)


def check_usage(key: str | None, value: str | None, *, delete: bool, delimiter: str | None, lines: bool) -> None:
    problem = None
    if value is not None and delete:
        problem = "--delete writes no value: leave out -v"
    elif delete and key is None:
        problem = "--delete needs the key to delete: give -k"
    elif key is not None and value is None and not delete:
        problem = "-k needs -v, or --delete"
    elif (value is not None or delete) and (delimiter is not None or lines):
        problem = "-K and --lines are for stdin: leave out -k, -v and --delete"
    elif delimiter is not None and (lines or not delimiter):
        problem = "-K needs some text, and no --lines beside it"
    if problem:
        raise click.UsageError(problem, click.get_current_context())


def produce_stdin(
    connection: Connection, topic: str, parser: LineParser, defaults: Line, durability: int | str, output: str | None
) -> None:
    if sys.stdin is None:
        raise InvalidArgument("stdin is closed: give -v, or messages on stdin")
    if sys.stdin.isatty() and sys.stderr.isatty():
        say("reading messages from the terminal, one a line; end with Ctrl-D")
    with connection.open() as client:
        feed = Feed(client, topic, defaults, durability, per_message=output == "jsonl")
        feed.run(parser, sys.stdin.buffer, total_bytes=size_of_stdin())
    if output != "jsonl":
        show_one({"topic": topic, "delivered": feed.delivered, "failed": feed.failed}, output)
    feed.check()


def size_of_stdin() -> int | None:
    """For the progress bar: the bytes to come, where that is known."""
    status = os.fstat(0)
    return status.st_size if stat.S_ISREG(status.st_mode) else None
