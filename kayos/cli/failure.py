"""How a command fails: its exit code, and the one line that says what to do.

0 ok · 1 failure · 2 bad usage or input · 3 not found · 4 not allowed · 5 unavailable or timeout · 6 conflict ·
70 a bug in Kayos · 130 Ctrl-C
"""

from typing import ClassVar

from kayos import errors


class Failure(Exception):
    """A command's own reason to fail, with its exit code."""

    FAILED: ClassVar[int] = 1
    USAGE: ClassVar[int] = 2
    NOT_FOUND: ClassVar[int] = 3
    NOT_ALLOWED: ClassVar[int] = 4
    UNAVAILABLE: ClassVar[int] = 5
    CONFLICT: ClassVar[int] = 6
    BUG: ClassVar[int] = 70

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


# The first class that fits decides.
_EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (errors.InvalidArgument, Failure.USAGE),
    (errors.NotFound, Failure.NOT_FOUND),
    (errors.NotInChain, Failure.NOT_ALLOWED),
    (errors.TopicExists, Failure.CONFLICT),
    (errors.FailedPrecondition, Failure.CONFLICT),
    (errors.Aborted, Failure.CONFLICT),
    (errors.Unavailable, Failure.UNAVAILABLE),
    (errors.DeadlineExceeded, Failure.UNAVAILABLE),
    (errors.KayosError, Failure.FAILED),
    (OSError, Failure.FAILED),
)
_REFUSALS = ("UNAUTHENTICATED", "PERMISSION_DENIED")


def exit_code_of(error: BaseException) -> int:
    if isinstance(error, Failure):
        return error.exit_code
    if is_refusal(error):
        return Failure.NOT_ALLOWED
    if isinstance(error, errors.InternalError):
        # With an id a node of ours met a bug; without one gRPC itself broke the call.
        return Failure.BUG if error.fields else Failure.UNAVAILABLE
    for error_class, code in _EXIT_CODES:
        if isinstance(error, error_class):
            return code
    return Failure.BUG


def is_refusal(error: BaseException) -> bool:
    """Whether a server or a proxy before it asked for other credentials; gRPC's own status says so."""
    return type(error) is errors.KayosError and error.message.startswith(_REFUSALS)


def explain(error: BaseException) -> str:
    """The line for stderr, without the `kayos:`."""
    if is_refusal(error):
        return f"the server refuses: {error}; ask its operator for access"
    if isinstance(error, errors.InternalError) and error.fields:
        return f"{error.message}; this is a bug: look for {error.fields.get('error_id')} in the node's log"
    if isinstance(error, errors.KayosError | Failure):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    return f"{type(error).__name__}: {error}; this is a bug: run again with KAYOS_DEBUG=1 and report it"
