"""`kayos topic`: create, list, describe, alter, delete."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kayos.cli.options import Connection, connection_options, output_option, topic_argument, yes_option
from kayos.cli.output import choose_format, show_one, show_rows, write_out
from kayos.cli.question import ask
from kayos.cli.shards import SHARD_COLUMNS, shard_row

if TYPE_CHECKING:
    from kayos.model.topic import Topic

Command = TypeVar("Command", bound=Callable[..., Any])

_RETENTION = (
    ("--tombstone-ms", "Forget deletes that are older; mode compact."),
    ("--max-messages", "Keep at most so many messages in a shard; mode log."),
    ("--max-bytes", "Keep at most so many bytes in a shard; mode log."),
    ("--max-age-ms", "Remove messages that are older."),
)
_COUNTS = (
    ("--min-replicas", "Replicas that a chain needs to take writes."),
    ("--min-durable", "Copies before a consumer sees a message."),
    ("--tails", "Replicas that serve consumers."),
    ("--replicas", "Copies of each shard."),
    ("--shards", "Independent sequence spaces."),
)


def retention_options(function: Command) -> Command:
    for name, text in _RETENTION:
        function = click.option(name, type=click.IntRange(0, 2**63 - 1), help=f"{text}  [0: never]")(function)
    return function


def count_options(function: Command) -> Command:
    for name, text in _COUNTS:
        help_text = f"{text}  [default: the server's]"
        function = click.option(name, type=click.IntRange(1, 2**32 - 1), default=None, help=help_text)(function)
    return function


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command(epilog="\b\nExample:\n  kayos topic create orders --shards 4\n  kayos topic create audit --mode log")
@click.argument("name")
@click.option("--mode", type=click.Choice(("compact", "log")), default="compact", show_default=True)
@count_options
@retention_options
@output_option
@connection_options
def create(connection: Connection, name: str, output: str | None, mode: str, **numbers: int | None) -> None:
    """Make a topic. In mode compact the newest message of each key is kept; in mode log all are.

    Making one again with the same settings succeeds; with other settings it is a conflict (exit code 6).
    """
    given: dict[str, Any] = {field: number for field, number in numbers.items() if number is not None}
    with connection.open() as client:
        show_one(topic_row(client.topics.create(name, mode=mode, **given)), output)


@topic.command("list", epilog="\b\nExample:\n  kayos topic list -o jsonl")
@output_option
@connection_options
def list_topics(connection: Connection, output: str | None) -> None:
    """List all topics."""
    with connection.open() as client:
        rows = [topic_row(found) for found in client.topics.list()]
    show_rows(rows, output, ("name", "mode", "shards", "replicas", "tails", "max_age_ms", "created_ms"))


@topic.command(epilog="\b\nExample:\n  kayos topic describe orders")
@topic_argument
@output_option
@connection_options
def describe(connection: Connection, topic: str, output: str | None) -> None:
    """Show a topic's settings and the state of its shards."""
    with connection.open() as client:
        found = client.topics.describe(topic)
    rows = [shard_row(status) for status in found.shards]
    if choose_format(output) != "table":
        show_one({**topic_row(found.topic), "shard_status": rows}, output)
        return
    show_one(topic_row(found.topic), output)
    write_out(b"\n")
    show_rows(rows, output, SHARD_COLUMNS[1:])


@topic.command(epilog="\b\nExample:\n  kayos topic alter orders --max-age-ms 86400000")
@topic_argument
@retention_options
@output_option
@connection_options
def alter(connection: Connection, topic: str, output: str | None, **numbers: int | None) -> None:
    """Change what is removed and when; what is not given stays as it is."""
    if all(number is None for number in numbers.values()):
        known = ", ".join(name for name, _ in reversed(_RETENTION))
        raise click.UsageError(f"Nothing to alter: give one of {known}", click.get_current_context())
    with connection.open() as client:
        show_one(topic_row(client.topics.alter(topic, **numbers)), output)


@topic.command(epilog="\b\nExample:\n  kayos topic delete orders --yes")
@topic_argument
@yes_option
@output_option
@connection_options
def delete(connection: Connection, topic: str, yes: bool, output: str | None) -> None:
    """Delete a topic with all its messages, marks and pins."""
    ask(f"Delete topic {topic!r} with all that is in it?", yes=yes)
    with connection.open() as client:
        client.topics.delete(topic)
    show_one({"name": topic, "deleted": True}, output)


def topic_row(topic: "Topic") -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "mode": str(topic.mode),
        "shards": topic.shards,
        "replicas": topic.replicas,
        "tails": topic.tails,
        "min_durable": topic.min_durable,
        "min_replicas": topic.min_replicas,
        "max_age_ms": topic.retention.max_age_ms,
        "max_bytes": topic.retention.max_bytes,
        "max_messages": topic.retention.max_messages,
        "tombstone_ms": topic.retention.tombstone_ms,
        "created_ms": topic.created_ms,
    }
