"""`kayos compact`: have a node rewrite a topic's files without their free space."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kayos.cli.options import Connection, connection_options, output_option, topic_argument
from kayos.cli.output import show_rows
from kayos.cli.progress import progress

if TYPE_CHECKING:
    from kayos.client.core.route import View
    from kayos.client.core.steps import Steps

# A copy of 350 MB takes a third of a second; this is enough for a large disk full.
_COMPACT_TIMEOUT_S = 3600.0


@click.command(epilog="\b\nExample:\n  kayos compact orders\n  kayos compact orders --shard 0")
@topic_argument
@click.option("--shard", type=click.IntRange(0, 2**32 - 1), help="One shard only.  [default: all]")
@output_option
@connection_options
def compact(connection: Connection, topic: str, shard: int | None, output: str | None) -> None:
    """Give the free space of a topic's files back to the disk. Reads and writes go on meanwhile.

    A node does this by itself when half of a file is free.
    """
    show_rows(list(compact_shards(connection, topic, shard)), output, ("topic", "shard", "bytes_before", "bytes_after"))


def compact_shards(connection: Connection, topic: str, shard: int | None) -> Iterator[dict[str, Any]]:
    from kayos.client.blocking.driver import Driver
    from kayos.client.core.calls import Directory, get_view

    driver = Driver()
    view = driver.run(get_view(Directory(connection.settings()), topic))
    if shard is not None:
        view.check_shard(shard)
    wanted = range(view.shards) if shard is None else (shard,)
    with progress(f"compacting {topic}", total=len(wanted), unit="shards") as advance:
        for number in wanted:
            response = driver.run(ask_for_compaction(view, number))
            advance(1)
            yield {
                "topic": topic,
                "shard": number,
                "bytes_before": response.bytes_before,
                "bytes_after": response.bytes_after,
            }
    driver.close()


def ask_for_compaction(view: "View", shard: int) -> "Steps[Any]":
    """Once and without a retry: what was cut off half-way should not be done twice without a word."""
    from kayos.client.core.steps import Invoke
    from kayos.wire.methods import CLUSTER_METHODS
    from kayos.wire.v1 import cluster_pb2

    request = cluster_pb2.CompactShardRequest(topic=view.topic.name, shard=shard)
    return (yield Invoke(view.head(shard), CLUSTER_METHODS["CompactShard"], request, _COMPACT_TIMEOUT_S))
