"""`kayos cluster`: what the servers say of themselves."""

import click

from kayos.cli.options import Connection, connection_options, output_option
from kayos.cli.output import choose_format, show_one, show_rows, write_out
from kayos.cli.shards import SHARD_COLUMNS, shard_row


@click.group()
def cluster() -> None:
    """Show the state of the servers."""


@cluster.command(epilog="\b\nExample:\n  kayos cluster status\n  kayos cluster status -o json | jq .shards")
@output_option
@connection_options
def status(connection: Connection, output: str | None) -> None:
    """Show the node that answers first, and its shards. Exit code 1 if a shard has a problem."""
    with connection.open() as client:
        found = client.status()
    node = {
        "node_id": found.node_id,
        "address": found.address,
        "version": found.version,
        "started_ms": found.started_ms,
        "resident_bytes": found.resident_bytes,
    }
    rows = [shard_row(shard) for shard in found.shards]
    if choose_format(output) == "table":
        show_one(node, output)
        write_out(b"\n")
        show_rows(rows, output, SHARD_COLUMNS)
    else:
        show_one({**node, "shards": rows}, output)
    troubled = [row for row in rows if row["problem"]]
    if troubled:
        first = troubled[0]
        raise click.ClickException(
            f"{len(troubled)} of {len(rows)} shards have a problem, the first is "
            f"{first['topic']}/{first['shard']}: {first['problem']}"
        )
