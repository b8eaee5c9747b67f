"""The table of exit codes, each from a real cause, and that an error is one line on stderr and nothing on stdout."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from kayos import errors
from kayos.cli.failure import exit_code_of
from tests.cli.command import Kayos

GOOD_LINE = b'{"key": "a", "value": "1"}\n'


def is_one_line(text: str) -> bool:
    return text.startswith("kayos: ") and text.count("\n") == 1 and "Traceback" not in text


def test_bad_usage_is_2(kayos: Kayos) -> None:
    for arguments in (
        ("no-such-command",),
        ("--no-such-option",),
        ("topic", "no-such-verb"),
        ("topic", "create"),
        ("topic", "list", "extra"),
        ("topic", "list", "-o", "xml"),
        ("topic", "list", "--timeout", "0"),
        ("topic", "list", "--timeout", "soon"),
        ("get", "topic"),
        ("mark", "reset", "topic", "consumer"),
        ("completion", "csh"),
    ):
        result = kayos(*arguments)
        assert result.code == 2 and result.out == b"" and is_one_line(result.err), result
        assert "--help" in result.err


def test_a_node_that_is_not_there_is_5_in_bounded_time(kayos: Kayos) -> None:
    nowhere = ("--servers", "127.0.0.1:1", "--timeout", "0.5")
    for arguments, stdin in (
        (("topic", "list"), b""),
        (("produce", "t", "-v", "1"), b""),
        (("produce", "t"), GOOD_LINE),
        (("consume", "t", "-e"), b""),
        (("compact", "t"), b""),
    ):
        began = time.monotonic()
        result = kayos(*arguments, *nowhere, stdin=stdin)
        assert result.code == 5 and result.out == b"" and is_one_line(result.err), result
        assert "127.0.0.1:1" in result.err and "see that a node runs" in result.err
        assert time.monotonic() - began < 10


def test_a_server_that_never_answers_is_5_in_bounded_time(kayos: Kayos) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        result = kayos("topic", "list", "--servers", address, "--timeout", "1")
    assert result.code == 5 and is_one_line(result.err), result


class Refusing(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A server, or a proxy before one, that answers every call with one status."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def service(self, handler_call_details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda request, call: call.abort(self._code, "no token"))


@pytest.fixture(params=["UNAUTHENTICATED", "PERMISSION_DENIED"])
def refusing_server(request: pytest.FixtureRequest) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Refusing(grpc.StatusCode[request.param]),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait(10)


def test_a_server_that_wants_other_credentials_is_4(kayos: Kayos, refusing_server: str) -> None:
    result = kayos("topic", "list", "--servers", refusing_server, "--timeout", "0.5")
    assert result.code == 4 and is_one_line(result.err) and "no token" in result.err, result


@pytest.mark.parametrize("error_class", sorted(errors.all_error_classes(), key=lambda found: found.__name__))
def test_every_error_has_a_code(error_class: type[errors.KayosError]) -> None:
    by_status = {
        "UNKNOWN": 1,
        "INVALID_ARGUMENT": 2,
        "OUT_OF_RANGE": 2,
        "NOT_FOUND": 3,
        "PERMISSION_DENIED": 4,
        "ALREADY_EXISTS": 6,
        "FAILED_PRECONDITION": 6,
        "ABORTED": 6,
        "UNAVAILABLE": 5,
        "DEADLINE_EXCEEDED": 5,
        "RESOURCE_EXHAUSTED": 1,
        "DATA_LOSS": 1,
        "INTERNAL": 70,
    }
    assert exit_code_of(error_class("what is wrong", error_id="7")) == by_status[error_class.status]


def test_a_bug_is_70_and_shows_its_trace_only_when_asked(kayos: Kayos) -> None:
    # A run with a broken part inside, as a bug of ours would be.
    broken = (
        "import sys; sys.argv = ['kayos', 'topic', 'list'];"
        "import kayos.cli.options; kayos.cli.options.Connection.open = None;"
        "from kayos.cli.main import main; sys.exit(main())"
    )
    for debug in (False, True):
        environment = kayos.environment({"KAYOS_DEBUG": "1"} if debug else None)
        done = subprocess.run([sys.executable, "-c", broken], capture_output=True, env=environment, timeout=30)
        assert done.returncode == 70 and done.stdout == b""
        assert (b"Traceback" in done.stderr) == debug
        last_line = done.stderr.decode().splitlines()[-1]
        assert last_line.startswith("kayos: TypeError") and "KAYOS_DEBUG=1" in last_line


def test_closed_streams_are_told_and_never_a_trace(kayos: Kayos, topic: str) -> None:
    closed_out = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" topic list >&-', command()], stderr=subprocess.PIPE, env=kayos.environment()
    )
    assert closed_out.returncode == 1 and is_one_line(closed_out.stderr.decode())
    closed_in = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" produce {topic} <&-', command()],
        capture_output=True,
        env=kayos.environment(),
        timeout=30,
    )
    assert closed_in.returncode == 2 and is_one_line(closed_in.stderr.decode())


def command() -> str:
    from tests.cli.command import EXECUTABLE

    return str(EXECUTABLE)
