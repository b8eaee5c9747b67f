"""Options that many commands share."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kayos.cli.completing import complete_topics
from kayos.cli.encoding import ENCODINGS
from kayos.cli.output import FORMATS, PipeClosed

if TYPE_CHECKING:
    from kayos.client.blocking.client import Client
    from kayos.client.core.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])

SERVERS_DEFAULT = "127.0.0.1:7400"


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the servers are; `timeout_s` None means the client's own patience."""

    servers: str
    timeout_s: float | None = None

    def settings(self) -> "Settings":
        from kayos.client.core.settings import make_settings

        if self.timeout_s is None:
            return make_settings(self.servers)
        return make_settings(self.servers, timeout_s=self.timeout_s, delivery_timeout_s=self.timeout_s)

    @contextmanager
    def open(self) -> Iterator["Client"]:
        """A client for a `with` block. After Ctrl-C, or when nobody reads on, it is left as it is: closing waits for
        what is under way, and the process ends anyway."""
        from kayos.client.blocking.client import Client

        client = Client(self.settings())
        try:
            yield client
        except (KeyboardInterrupt, PipeClosed):
            raise
        except BaseException:
            with_error_kept(client.close)
            raise
        client.close()


def with_error_kept(close: Callable[[], None]) -> None:
    """Close while another error is on its way out: that one is the reason, not what closing has to say."""
    from kayos.errors import KayosError

    try:
        close()
    except KayosError:
        return


def find_servers(given: str | None, context: click.Context) -> str:
    """The flag, then the flag before the command (`kayos --servers ... get`), then the environment."""
    before: str | None = context.find_root().params.get("servers")
    return given or before or os.environ.get("KAYOS_SERVERS") or SERVERS_DEFAULT


def connection_options(function: Command) -> Command:
    """--servers and --timeout, handed to the command as `connection`."""

    @click.option(
        "--servers",
        metavar="HOST:PORT[,...]",
        help=f"Nodes to ask first.  [env: KAYOS_SERVERS; default: {SERVERS_DEFAULT}]",
    )
    @click.option(
        "--timeout",
        metavar="SECONDS",
        type=click.FloatRange(0, 86_400, min_open=True),
        help="How long to look for a server and wait for an answer.  [default: 10, for deliveries 60]",
    )
    @functools.wraps(function)
    def with_connection(*args: Any, servers: str | None, timeout: float | None, **given: Any) -> Any:
        found = find_servers(servers, click.get_current_context())
        return function(*args, connection=Connection(found, timeout), **given)

    return with_connection  # type: ignore[return-value]


topic_argument = click.argument("topic", shell_complete=complete_topics)

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(FORMATS),
    help="table; json: one document; jsonl: one object a line.  [default: table on a terminal, else json]",
)

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")

key_encoding_option = click.option(
    "--key-encoding", type=click.Choice(ENCODINGS), default="utf8", show_default=True, help="How keys are written."
)
value_encoding_option = click.option(
    "--value-encoding", type=click.Choice(ENCODINGS), default="utf8", show_default=True, help="How values are written."
)
