"""`kayos get`: the newest message of a key."""

import os

import click

from kayos.cli.encoding import from_text
from kayos.cli.failure import Failure
from kayos.cli.messages import MessageWriter
from kayos.cli.options import (
    Connection,
    connection_options,
    key_encoding_option,
    output_option,
    topic_argument,
    value_encoding_option,
)
from kayos.cli.output import show_one, write_out


@click.command(epilog="\b\nExample:\n  kayos get orders 1001\n  kayos get images logo.png --raw > logo.png")
@topic_argument
@click.argument("key")
@click.option("--min-seq", type=click.IntRange(0, 2**63 - 1), default=0, help="Wait until the log has reached this.")
@click.option("--route", help="What chose the shard in place of the key.")
@click.option("--raw", is_flag=True, help="Write the value's bytes and nothing else.")
@key_encoding_option
@value_encoding_option
@output_option
@connection_options
def get(
    connection: Connection,
    topic: str,
    key: str,
    min_seq: int,
    route: str | None,
    raw: bool,
    key_encoding: str,
    value_encoding: str,
    output: str | None,
) -> None:
    """Show the newest message of a key; exit code 3 if there is none, or it was deleted."""
    wanted = from_text("the key", os.fsencode(key), key_encoding)
    routed_by = None if route is None else os.fsencode(route)
    with connection.open() as client:
        found = client.get(topic, wanted, min_seq=min_seq, route=routed_by)
    if found is None or found.value is None:
        raise Failure(f"key {key!r} is not in topic {topic!r}: it was never written, or it was deleted", 3)
    if raw:
        write_out(found.value)
    else:
        show_one(MessageWriter(key_encoding, value_encoding).row(found), output)
