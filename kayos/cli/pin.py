"""`kayos pin`: snapshots that stay, for readers in parallel."""

from typing import TYPE_CHECKING, Any

import click

from kayos.cli.failure import Failure
from kayos.cli.options import Connection, connection_options, output_option, topic_argument
from kayos.cli.output import show_one, show_rows

if TYPE_CHECKING:
    from kayos.client.core.pins import ShardPin

_COLUMNS = ("pin_id", "shard", "seq", "created_ms", "lease_until_ms", "ended")
_lease_option = click.option(
    "--lease-ms", type=click.IntRange(1, 2**63 - 1), default=None, help="How long it lives.  [default: the server's]"
)
_shard_option = click.option("--shard", type=click.IntRange(0), help="One shard only.  [default: all]")


@click.group()
def pin() -> None:
    """Create, list, renew and release pinned snapshots."""


@pin.command(epilog="\b\nExample:\n  kayos pin create orders --id nightly --lease-ms 600000")
@topic_argument
@click.option("--id", "pin_id", help="Its name.  [default: a random one]")
@_lease_option
@_shard_option
@output_option
@connection_options
def create(
    connection: Connection, topic: str, pin_id: str | None, lease_ms: int | None, shard: int | None, output: str | None
) -> None:
    """Pin the topic as it is now. It stays readable until the lease ends or it is released."""
    with connection.open() as client:
        held = client.pins.create(topic, pin_id=pin_id, lease_ms=lease_ms or 0, shard=shard)
    show_rows([pin_row(entry) for entry in held], output, _COLUMNS)


@pin.command("list", epilog="\b\nExample:\n  kayos pin list orders")
@topic_argument
@output_option
@connection_options
def list_pins(connection: Connection, topic: str, output: str | None) -> None:
    """List the pins of a topic; the ones that ended lately say why."""
    with connection.open() as client:
        rows = [pin_row(entry) for entry in client.pins.list(topic)]
    show_rows(rows, output, _COLUMNS)


@pin.command(epilog="\b\nExample:\n  kayos pin renew orders nightly --lease-ms 600000")
@topic_argument
@click.argument("pin_id")
@_lease_option
@output_option
@connection_options
def renew(connection: Connection, topic: str, pin_id: str, lease_ms: int | None, output: str | None) -> None:
    """Let a pin live longer, in every shard where it lives."""
    with connection.open() as client:
        held = [entry for entry in client.pins.list(topic) if entry.pin_id == pin_id and entry.pin.is_alive]
        if not held:
            raise Failure(f"pin {pin_id!r} does not live in topic {topic!r}: see 'kayos pin list {topic}'", 3)
        renewed = client.pins.renew(held, lease_ms=lease_ms or 0)
    show_rows([pin_row(entry) for entry in renewed], output, _COLUMNS)


@pin.command(epilog="\b\nExample:\n  kayos pin release orders nightly")
@topic_argument
@click.argument("pin_id")
@_shard_option
@output_option
@connection_options
def release(connection: Connection, topic: str, pin_id: str, shard: int | None, output: str | None) -> None:
    """End a pin; whoever still reads it is told to start again."""
    with connection.open() as client:
        client.pins.release(topic, pin_id, shard=shard)
    show_one({"topic": topic, "pin_id": pin_id, "released": True}, output)


def pin_row(entry: "ShardPin") -> dict[str, Any]:
    return {
        "topic": entry.topic,
        "pin_id": entry.pin_id,
        "shard": entry.shard,
        "seq": entry.seq,
        "created_ms": entry.pin.created_ms,
        "lease_until_ms": entry.pin.lease_until_ms,
        "ended": entry.pin.ended or None,
    }
