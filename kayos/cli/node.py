"""`kayos node`: run a node in the foreground."""

import os
from pathlib import Path
from typing import Any

import click

from kayos.cli.extra import server_extra


def settings_options(function: Any) -> Any:
    """The settings that most operators touch, as flags; --set takes the others by name."""
    path = click.Path(path_type=Path)
    options = (
        click.option("--config", type=path, help="A TOML file of settings; flags and KAYOS_* variables win over it."),
        click.option("--standalone", is_flag=True, default=None, help="Run alone, without ZooKeeper."),
        click.option(
            "--cluster-file", type=path, metavar="FILE", help="Be a node of the static cluster that this file names."
        ),
        click.option("--name", metavar="NODE", help="This node's name in the cluster file."),
        click.option(
            "--listen",
            metavar="HOST:PORT",
            help="Port 0: any free one.  [default: as the cluster file says, else 127.0.0.1:7400]",
        ),
        click.option("--data", type=path, metavar="DIR", help="The data directory.  [default: data]"),
        click.option("--advertise", metavar="HOST:PORT", help="What clients are told.  [default: as --listen]"),
        click.option(
            "--insecure-listen", is_flag=True, default=None, help="Let other machines connect, though without TLS."
        ),
        click.option("--reflection/--no-reflection", default=None, help="gRPC reflection.  [default: on]"),
        click.option("--verify/--no-verify", default=None, help="Check every store at the start.  [default: on]"),
        click.option("--log-level", help="debug, info, warning or error.  [default: info]"),
        click.option("--log-format", help="json, console or auto.  [default: auto]"),
        click.option("--map-bytes", help="The most that one shard's file can hold."),
        click.option(
            "--set", "others", metavar="NAME=VALUE", multiple=True, help="Any other setting; see 'kayos config show'."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.group()
def node() -> None:
    """Run a node."""


@node.command(
    epilog="""\b
Example:
  kayos node run --standalone --listen 127.0.0.1:7400 --data /var/lib/kayos
  kayos node run --cluster-file cluster.toml --name a --data /var/lib/kayos
  kayos node run --config /etc/kayos.toml --set drain_grace_s=30"""
)
@settings_options
def run(config: Path | None, others: tuple[str, ...], **flags: Any) -> int:
    """Run a node until SIGTERM or Ctrl-C: it then drains and exits with 0; a second signal ends it at once.

    Settings come from the file, then from KAYOS_* variables (KAYOS_LISTEN), then from flags; the later wins. The log
    goes to stderr, one event a line.
    """
    with server_extra():
        from kayos.server.config import load_config
        from kayos.server.node import run_node

    settings = load_config(config, os.environ, given_flags(flags, others))
    settings.check_runnable()
    return run_node(settings)


def given_flags(flags: dict[str, Any], others: tuple[str, ...]) -> dict[str, Any]:
    """What the command line says, and nothing else."""
    given = {name: value for name, value in flags.items() if value is not None}
    for entry in others:
        name, found, value = entry.partition("=")
        if not found or not name:
            raise click.UsageError(f"--set {entry!r} is not NAME=VALUE", click.get_current_context())
        given[name] = value
    return given
