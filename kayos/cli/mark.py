"""`kayos mark`: where consumers stand, and moving them."""

from typing import TYPE_CHECKING, Any

import click

from kayos.cli.failure import Failure
from kayos.cli.options import Connection, connection_options, output_option, topic_argument, yes_option
from kayos.cli.output import say, show_rows
from kayos.cli.position import Place, Position, position_metavar, position_type
from kayos.cli.question import ask

if TYPE_CHECKING:
    from kayos.client.blocking.client import Client
    from kayos.client.core.marks import MarkInfo
    from kayos.model.mark import Mark

_TARGETS = (Place.BEGINNING, Place.LATEST, Place.DROP)
_COLUMNS = ("consumer", "shard", "seq", "high_seq", "lag", "history_id")


@click.group()
def mark() -> None:
    """List, get, set and reset the marks of consumers: up to where each has committed."""


@mark.command("list", epilog="\b\nExample:\n  kayos mark list orders")
@topic_argument
@output_option
@connection_options
def list_marks(connection: Connection, topic: str, output: str | None) -> None:
    """List every consumer's marks and how far behind they are."""
    with connection.open() as client:
        rows = [mark_row(info) for info in client.marks.list(topic)]
    show_rows(rows, output, _COLUMNS)


@mark.command(epilog="\b\nExample:\n  kayos mark get orders billing")
@topic_argument
@click.argument("consumer")
@output_option
@connection_options
def get(connection: Connection, topic: str, consumer: str, output: str | None) -> None:
    """Show one consumer's marks; exit code 3 if it has none."""
    with connection.open() as client:
        found = client.marks.get(topic, consumer)
    show_rows([mark_row(found[shard]) for shard in sorted(found)], output, _COLUMNS)


@mark.command("set", epilog="\b\nExample:\n  kayos mark set orders billing 1042 --shard 0")
@topic_argument
@click.argument("consumer")
@click.argument("seq", type=click.IntRange(0, 2**63 - 1))
@click.option("--shard", type=click.IntRange(0), default=0, show_default=True)
@click.option("--history", metavar="HEX", help="The history that SEQ belongs to.  [default: the one that wrote it]")
@output_option
@connection_options
def set_mark(
    connection: Connection,
    topic: str,
    consumer: str,
    seq: int,
    shard: int,
    history: str | None,
    output: str | None,
) -> None:
    """Commit a mark for a consumer: it has everything up to SEQ. Only forward; to go back, reset."""
    from kayos.model.mark import Mark

    with connection.open() as client:
        history_id = parse_history(history) if history is not None else find_history(client, topic, shard, seq)
        client.marks.set(topic, consumer, {shard: Mark(history_id, seq, seq, seq)})
        info = client.marks.get(topic, consumer)[shard]
    show_rows([mark_row(info)], output, _COLUMNS)


@mark.command(
    epilog="\b\nExample:\n  kayos mark reset orders billing --to 0 --dry-run\n"
    "  kayos mark reset orders billing --to time:2026-01-31T12:00:00Z --yes"
)
@topic_argument
@click.argument("consumer")
@click.option(
    "--to",
    "target",
    type=position_type(*_TARGETS),
    metavar=position_metavar(*_TARGETS),
    required=True,
    help="Where to: 0 is the beginning; seq:N has it read on above N; time:T (ISO 8601, or ms since 1970) has it read "
    "on from T; drop forgets the consumer.",
)
@click.option("--shard", type=click.IntRange(0), help="One shard only.  [default: all]")
@click.option("--dry-run", is_flag=True, help="Show what would change, change nothing.")
@yes_option
@output_option
@connection_options
def reset(
    connection: Connection,
    topic: str,
    consumer: str,
    target: Position,
    shard: int | None,
    dry_run: bool,
    yes: bool,
    output: str | None,
) -> None:
    """Move a consumer's marks anywhere, back too. It then reads again, or skips, what lies between."""
    if not dry_run:
        ask(f"Reset the marks of consumer {consumer!r} of topic {topic!r}?", yes=yes)
    with connection.open() as client:
        changes = client.marks.reset(topic, consumer, shard=shard, dry_run=dry_run, **reset_target(target))
    rows = [
        {"topic": topic, "consumer": consumer, "shard": change.shard, "before": change.before.seq}
        | {"after": None if target.place is Place.DROP else change.after.seq, "dry_run": dry_run}
        for change in changes
    ]
    show_rows(rows, output, ("consumer", "shard", "before", "after"))
    if dry_run:
        say("nothing was changed: this was a dry run")


def reset_target(target: Position) -> dict[str, Any]:
    match target.place:
        case Place.LATEST:
            return {"latest": True}
        case Place.DROP:
            return {"drop": True}
        case Place.TIME:
            return {"time_ms": target.number}
        case _:
            return {"seq": target.number}


def parse_history(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise click.UsageError(
            f"--history {text!r} is not hexadecimal: copy it from 'kayos topic describe'", click.get_current_context()
        ) from None


def find_history(client: "Client", topic: str, shard: int, seq: int) -> bytes:
    """Who wrote a sequence, by the takeover table of its shard."""
    from kayos.model.takeover import TakeoverTable

    shards = client.topics.describe(topic).shards
    if shard >= len(shards):
        raise Failure(f"topic {topic!r} has no shard {shard}: give 0 to {len(shards) - 1}", Failure.USAGE)
    return TakeoverTable(shards[shard].takeover).find_history_at(seq)


def mark_row(info: "MarkInfo") -> dict[str, Any]:
    return {
        "topic": info.topic,
        "consumer": info.consumer,
        "shard": info.shard,
        **mark_fields(info.mark),
        "high_seq": info.high_seq,
        "lag": info.lag,
    }


def mark_fields(mark: "Mark") -> dict[str, Any]:
    return {
        "seq": mark.seq,
        "history_id": mark.history_id.hex(),
        "snapshot_start_seq": mark.snapshot_start_seq,
        "snapshot_end_seq": mark.snapshot_end_seq,
    }
