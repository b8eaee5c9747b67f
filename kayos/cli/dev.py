"""`kayos dev`: a node to try things on, gone without a trace when it ends."""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from kayos.cli.extra import server_extra
from kayos.cli.options import SERVERS_DEFAULT
from kayos.cli.output import PipeClosed, flush_out, write_out


@click.command(epilog="\b\nExample:\n  kayos dev\n  kayos dev --listen 127.0.0.1:0 --data ./data")
@click.option("--listen", metavar="HOST:PORT", default=SERVERS_DEFAULT, show_default=True, help="Port 0: any free one.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the data here.  [default: a temporary directory, removed at the end]",
)
@click.option("--log-level", default="warning", show_default=True, help="debug, info, warning or error.")
def dev(listen: str, data: Path | None, log_level: str) -> int:
    """Run one node for development. Says `ready` when it is, with commands to try; Ctrl-C ends it with exit code 0."""
    with server_extra():
        from kayos.server.config import load_config
        from kayos.server.node import run_node

    kept = data or Path(tempfile.mkdtemp(prefix="kayos-dev-"))
    flags: dict[str, Any] = {"listen": listen, "data": kept, "standalone": True, "log_level": log_level}
    try:
        return run_node(load_config(None, {}, flags), on_ready=lambda address: tell_ready(address, kept, data))
    finally:
        if data is None:
            shutil.rmtree(kept, ignore_errors=True)


def tell_ready(address: str, directory: Path, given: Path | None) -> None:
    at = "" if address == SERVERS_DEFAULT else f" --servers {address}"
    fate = "kept" if given else "removed at the end"
    lines = (
        f"ready {address} (data in {directory}, {fate}; Ctrl-C stops)",
        f"  kayos topic create demo{at}",
        f"  kayos produce demo -k greeting -v hello{at}",
        f"  kayos consume demo -e{at}",
    )
    with suppress(PipeClosed):  # whoever started it may not care to read; the node runs all the same
        write_out("".join(f"{line}\n" for line in lines).encode())
        flush_out()
