"""`kayos bench`: what a node does on this machine, against what the machine can do at all.

Every benchmark measures its ceiling (bare LMDB, a bare gRPC call) and Kayos in turns within one run and prints
the ratio: machines are noisy, ratios less so. Each starts a node of its own on loopback, in a directory
that is removed at the end, and prints one JSON object.
"""

from pathlib import Path
from typing import Any

import click

from kayos.cli.extra import server_extra

directory_option = click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="Measure on the disk of DIR.  [default: the system's temporary directory]",
)
rounds_option = click.option("--rounds", type=click.IntRange(1, 100), default=3, show_default=True, help="Turns.")


def show(result: dict[str, Any]) -> None:
    import json

    from kayos.cli.output import write_out

    write_out(f"{json.dumps(result, indent=2)}\n".encode())


@click.group()
def bench() -> None:
    """Measure a node of its own against bare LMDB and gRPC; prints JSON with ratios taken in one run."""


@bench.command(
    short_help="Ingest, against a bare LMDB loop that does the same commits.",
    epilog="\b\nExample:\n  kayos bench produce --messages 500000 --batch 1000",
)
@click.option("--messages", type=click.IntRange(1_000), default=300_000, show_default=True, help="Messages a turn.")
@click.option("--batch", type=click.IntRange(1, 65_536), default=1_000, show_default=True, help="Messages a request.")
@click.option("--keys", type=click.IntRange(1), default=10_000, show_default=True, help="Distinct keys.")
@click.option("--value-bytes", type=click.IntRange(0, 1 << 20), default=100, show_default=True)
@rounds_option
@directory_option
def produce(**options: Any) -> None:
    """Ingest over gRPC, every batch fsynced, against a bare LMDB loop that does the same commits."""
    with server_extra():
        from kayos.cli.bench.produce import measure
    show(measure(**options))


@bench.command(
    short_help="Drain a topic, against a bare LMDB scan.",
    epilog="\b\nExample:\n  kayos bench consume --messages 1000000",
)
@click.option("--messages", type=click.IntRange(1_000), default=1_000_000, show_default=True)
@click.option("--value-bytes", type=click.IntRange(0, 1 << 20), default=100, show_default=True)
@rounds_option
@directory_option
def consume(**options: Any) -> None:
    """Drain a topic by one consumer, against a bare LMDB scan of as many records."""
    with server_extra():
        from kayos.cli.bench.consume import measure
    show(measure(**options))


@bench.command(
    short_help="One fsynced write at a time, against bare gRPC and LMDB.",
    epilog="\b\nExample:\n  kayos bench latency --calls 1000",
)
@click.option("--calls", type=click.IntRange(10), default=500, show_default=True, help="Calls a turn.")
@click.option("--value-bytes", type=click.IntRange(0, 1 << 20), default=100, show_default=True)
@rounds_option
@directory_option
def latency(**options: Any) -> None:
    """One fsynced write at a time, against one bare gRPC call plus one bare LMDB commit."""
    with server_extra():
        from kayos.cli.bench.latency import measure
    show(measure(**options))


@bench.command(
    short_help="Few keys overwritten many times: memory and file over time.",
    epilog="\b\nExample:\n  kayos bench dedup --messages 2000000 --keys 10000",
)
@click.option("--messages", type=click.IntRange(10_000), default=1_000_000, show_default=True)
@click.option("--keys", type=click.IntRange(1), default=10_000, show_default=True, help="Distinct keys.")
@click.option("--value-bytes", type=click.IntRange(0, 1 << 20), default=100, show_default=True)
@directory_option
def dedup(**options: Any) -> None:
    """Overwrite few keys many times, alone and beside a consumer that sleeps in its snapshot: memory and file over
    time."""
    with server_extra():
        from kayos.cli.bench.dedup import measure
    show(measure(**options))


@bench.command(
    short_help="A chain of nodes, against a bare LMDB loop and a bare gRPC call.",
    epilog="\b\nExample:\n  kayos bench chain\n  kayos bench chain --keys 0 --value-bytes 1024",
)
@click.option("--messages", type=click.IntRange(1_000), default=300_000, show_default=True, help="Messages a turn.")
@click.option("--batch", type=click.IntRange(1, 65_536), default=1_000, show_default=True, help="Messages a request.")
@click.option("--keys", type=click.IntRange(0), default=10_000, show_default=True, help="Distinct keys; 0: all new.")
@click.option("--value-bytes", type=click.IntRange(0, 1 << 20), default=100, show_default=True)
@click.option("--nodes", type=click.IntRange(1, 9), default=3, show_default=True, help="Processes, one replica each.")
@click.option("--tails", type=click.IntRange(1, 8), default=1, show_default=True, help="How many of them are tails.")
@click.option("--calls", type=click.IntRange(10), default=1_000, show_default=True, help="Awaited writes.")
@rounds_option
@directory_option
def chain(**options: Any) -> None:
    """Write through a chain with durability=all, every replica fsyncing, against a bare LMDB loop in groups of 1,000;
    then one awaited write at a time against one bare gRPC call."""
    with server_extra():
        from kayos.cli.bench.chain import measure
    show(measure(**options))


@bench.command(
    "catch-up",
    short_help="An empty replica joins, against a bare LMDB loop.",
    epilog="\b\nExample:\n  kayos bench catch-up --messages 1000000",
)
@click.option("--messages", type=click.IntRange(1_000), default=500_000, show_default=True)
@click.option("--value-bytes", type=click.IntRange(0, 1 << 20), default=100, show_default=True)
@directory_option
def catch_up(**options: Any) -> None:
    """An empty replica joins a chain of one and copies all of it, against a bare LMDB loop that writes as much."""
    with server_extra():
        from kayos.cli.bench.catch_up import measure
    show(measure(**options))


@bench.command(
    "fan-out",
    short_help="One tail against three.",
    epilog="\b\nExample:\n  kayos bench fan-out --messages 300000",
)
@click.option("--messages", type=click.IntRange(1_000), default=200_000, show_default=True, help="Messages a turn.")
@click.option("--batch", type=click.IntRange(1, 65_536), default=1_000, show_default=True, help="Messages a request.")
@click.option("--keys", type=click.IntRange(0), default=10_000, show_default=True, help="Distinct keys; 0: all new.")
@click.option("--value-bytes", type=click.IntRange(0, 1 << 20), default=100, show_default=True)
@rounds_option
@directory_option
def fan_out(**options: Any) -> None:
    """The same writes into a chain with one tail and into one with three, and what the processors' time explains."""
    with server_extra():
        from kayos.cli.bench.fan_out import measure
    show(measure(**options))


@bench.command(
    short_help="What a message costs at 10^5, 10^6 and 10^7 of them.",
    epilog="\b\nExample:\n  kayos bench growth --messages 10000000",
)
@click.option("--messages", type=click.IntRange(1_000_000), default=10_000_000, show_default=True)
@click.option("--keys", type=click.IntRange(0), default=10_000, show_default=True, help="Distinct keys; 0: all new.")
@click.option("--value-bytes", type=click.IntRange(0, 1 << 20), default=100, show_default=True)
@directory_option
def growth(**options: Any) -> None:
    """The processors' time per message in a chain of three that has taken more and more of them."""
    with server_extra():
        from kayos.cli.bench.growth import measure
    show(measure(**options))
