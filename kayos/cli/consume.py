"""`kayos consume`: a topic's messages on stdout, snapshot by snapshot.

The mark of a consumer moves only when the output of a whole snapshot has left this process: what was not written is
read again the next time.
"""

from typing import TYPE_CHECKING

import click

from kayos.cli.drain import Drain
from kayos.cli.messages import MessageWriter
from kayos.cli.options import (
    Connection,
    connection_options,
    key_encoding_option,
    topic_argument,
    value_encoding_option,
)
from kayos.cli.output import FORMATS
from kayos.cli.position import Place, Position, position_metavar, position_type
from kayos.cli.progress import progress

if TYPE_CHECKING:
    from kayos.client.core.start import Start

_STARTS = (Place.BEGINNING, Place.MARK, Place.LATEST)


@click.command(
    epilog="""\b
Example:
  kayos consume orders --consumer billing -e
  kayos consume orders --from time:2026-01-31T12:00:00Z -o table
  kayos consume images --value-encoding base64 -c 1"""
)
@topic_argument
@click.option("--consumer", help="Whose mark to read from and to commit. Without it: the beginning, no commit.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the end of the topic instead of waiting for more.")
@click.option("--no-commit", is_flag=True, help="Leave the consumer's mark where it is.")
@click.option(
    "-c", "--count", type=click.IntRange(1), help="Stop after so many messages; the mark then stands behind the last."
)
@click.option(
    "--from",
    "start",
    type=position_type(*_STARTS),
    metavar=position_metavar(*_STARTS),
    help="0: the beginning; latest: what comes from now on; seq:N: from N on; time:T: from T on (ISO 8601, or ms since "
    "1970).  [default: mark with --consumer, else 0]",
)
@click.option("--shard", "shards", type=click.IntRange(0), multiple=True, help="May be given several times.")
@key_encoding_option
@value_encoding_option
@click.option(
    "-o", "--output", type=click.Choice(FORMATS), default="jsonl", show_default=True, help="json is the same as jsonl."
)
@connection_options
def consume(
    connection: Connection,
    topic: str,
    consumer: str | None,
    exit_at_end: bool,
    no_commit: bool,
    count: int | None,
    start: Position | None,
    shards: tuple[int, ...],
    key_encoding: str,
    value_encoding: str,
    output: str,
) -> None:
    """Write the messages of a topic, one JSON object a line: topic, shard, seq, key, value, timestamp (ms since 1970),
    and headers if there are any. The value of a tombstone is null, as is the key of an unkeyed message.

    Bytes that are not UTF-8 are written as base64, and a field key_encoding, value_encoding or headers_encoding says
    so; it also names the encoding that you ask for.

    With --consumer the mark is committed at each boundary, once all of the snapshot was written; so after a crash some
    messages may be written twice, and none is lost. When the reader of the output goes away, the command ends with exit
    code 0 and commits nothing that was not written.
    """
    if no_commit and consumer is None:
        raise click.UsageError("--no-commit is about a consumer's mark: give --consumer", click.get_current_context())
    writer = MessageWriter(key_encoding, value_encoding)
    with connection.open() as client, progress(f"consuming {topic}") as advance:
        commits = consumer is not None and not no_commit
        drain = Drain(writer, as_table=output == "table", commits=commits, on_progress=advance)
        begin = start_from(start)
        chosen = shards or None
        if count is None:
            drain.by_snapshot(client.consume(topic, consumer, start=begin, stop_at_end=exit_at_end, shards=chosen))
        else:
            messages = client.messages(topic, consumer, start=begin, stop_at_end=exit_at_end, shards=chosen)
            drain.by_message(messages, count)


def start_from(position: Position | None) -> "Start | None":
    from kayos.client.core.start import Start

    if position is None:
        return None
    match position.place:
        case Place.MARK:
            return Start.consumer_mark()
        case Place.LATEST:
            return Start.latest()
        case Place.SEQ:
            return Start.after(max(0, position.number - 1))
        case Place.TIME:
            return Start.time(position.number)
        case _:
            return Start.beginning()
