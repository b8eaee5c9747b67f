"""A group whose commands are imported when they are used, so that `kayos --help` starts at once."""

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    def __init__(self, *args: Any, commands_by_name: Mapping[str, tuple[str, str, str]], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._commands_by_name = commands_by_name

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._commands_by_name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._commands_by_name:
            return None
        module, name, _ = self._commands_by_name[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in self._commands_by_name.items()])
