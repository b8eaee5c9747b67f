"""The public face: what `import kayos` gives, what it needs, and that both clients are the same but for `await`."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import kayos
import kayos.aio
from tests.client.shells import PAIRS

SERVER_ONLY = ("lmdb", "uvloop", "structlog", "msgspec", "click", "rich", "kazoo", "pyspark")


def modules_after(code: str) -> set[str]:
    found = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    return set(found.stdout.split())


def test_the_whole_client_needs_nothing_of_the_server_s() -> None:
    # gRPC itself looks for grpc_health and grpc_reflection and does without, so they are made impossible to import.
    barred = f"import sys; sys.modules.update(dict.fromkeys({(*SERVER_ONLY, 'grpc_health', 'grpc_reflection')}))"
    everything = f"{barred}; import kayos; [getattr(kayos, name) for name in kayos.__all__]; kayos.aio.connect"
    loaded = modules_after(everything)
    assert not [
        name for name in loaded if name.startswith(("kayos.server", "kayos.storage", "kayos.cluster", "kayos.cli."))
    ]
    assert {"kayos.client.aio.client", "kayos.client.blocking.client"} <= loaded


def test_importing_kayos_alone_loads_no_grpc() -> None:
    assert not {"grpc", "kayos.client"} & modules_after("import kayos, kayos.errors, kayos.model.record")


def test_every_public_name_is_there_and_nothing_else() -> None:
    assert set(kayos.__all__) <= set(dir(kayos))
    for name in kayos.__all__:
        assert getattr(kayos, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        _ = kayos.conect
    assert (Path(kayos.__file__).parent / "py.typed").exists()


def public_members(owner: type) -> dict[str, object]:
    return {name: member for name, member in inspect.getmembers(owner) if not name.startswith("_")}


@pytest.mark.parametrize("owner", PAIRS, ids=lambda owner: owner.__name__)
def test_both_clients_have_the_same_names_and_parameters(owner: type) -> None:
    blocking, awaited = public_members(owner), public_members(PAIRS[owner])
    assert blocking.keys() == awaited.keys()
    for name, member in blocking.items():
        if inspect.isfunction(member):
            twin = awaited[name]
            assert callable(twin)
            here, there = inspect.signature(member), inspect.signature(twin)
            assert here.parameters == there.parameters, name


def test_connect_is_the_same_too() -> None:
    assert inspect.signature(kayos.connect).parameters == inspect.signature(kayos.aio.connect).parameters
