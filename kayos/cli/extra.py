"""The base install is the client; what runs or reads a node's data needs the extra `server`."""

from collections.abc import Iterator
from contextlib import contextmanager

from kayos.cli.failure import Failure

# What the extra brings; any other module that is missing is a bug and not a choice of the user.
_BROUGHT = {"grpc_health", "grpc_reflection", "kazoo", "lmdb", "msgspec", "structlog", "uvloop"}


@contextmanager
def server_extra() -> Iterator[None]:
    """For a block of imports from the server's packages."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _BROUGHT:
            raise
        raise Failure(
            f"this command needs {error.name}, which the base install does not bring: install kayos[server]"
        ) from error
