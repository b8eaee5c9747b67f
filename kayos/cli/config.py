"""`kayos config`: what a node would run with, without running it."""

import os
from pathlib import Path
from typing import Any

import click

from kayos.cli.extra import server_extra
from kayos.cli.options import output_option
from kayos.cli.output import show_one, show_rows


@click.group()
def config() -> None:
    """Check and show a node's settings."""


@config.command(epilog="\b\nExample:\n  kayos config check /etc/kayos.toml")
@click.argument("file", type=click.Path(path_type=Path))
@output_option
def check(file: Path, output: str | None) -> None:
    """Say whether a node would accept this file, with the KAYOS_* variables of now; exit code 2 if not."""
    with server_extra():
        from kayos.server.config import load_config

    load_config(file, os.environ, {})
    show_one({"file": str(file), "accepted": True}, output)


@config.command(epilog="\b\nExample:\n  kayos config show --config /etc/kayos.toml --origin")
@click.option("--config", "file", type=click.Path(path_type=Path), help="A TOML file of settings.")
@click.option("--origin", is_flag=True, help="Say where each setting comes from.")
@output_option
def show(file: Path | None, origin: bool, output: str | None) -> None:
    """Show every setting of a node and its value."""
    with server_extra():
        from kayos.server.config import FIELDS, load_config, read_file

    found = load_config(file, os.environ, {})
    in_file = read_file(file) if file is not None else {}
    rows: list[dict[str, Any]] = []
    for name in FIELDS:
        value = getattr(found, name)
        row = {"setting": name, "value": str(value) if isinstance(value, Path) else value}
        if origin:
            row["origin"] = find_origin(name, file if name in in_file else None)
        rows.append(row)
    show_rows(rows, output, ("setting", "value", "origin") if origin else ("setting", "value"))


def find_origin(name: str, file: Path | None) -> str:
    from kayos.server.config import VARIABLE_PREFIX

    variable = VARIABLE_PREFIX + name.upper()
    if variable in os.environ:
        return variable
    return str(file) if file is not None else "default"
