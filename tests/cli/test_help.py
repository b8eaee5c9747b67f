"""Help with examples everywhere, completion for the shells, and a start without the slow imports."""

import subprocess
import sys
from importlib.util import find_spec

import click
import pytest

import kayos as package
from kayos.cli.main import COMMANDS, cli
from tests.cli.command import Kayos


def all_commands(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            if name in COMMANDS and command is cli and find_spec(COMMANDS[name][0]) is None:
                continue
            child = command.get_command(context, name)
            assert child is not None
            found += all_commands(child, f"{path} {name}")
    return found


def test_every_command_explains_itself_with_an_example() -> None:
    commands = all_commands(cli, "kayos")
    assert len(commands) > 25
    for path, command in commands:
        text = command.get_help(click.Context(command, info_name=path))
        assert command.help, path
        if not isinstance(command, click.Group) or command is cli:
            assert "Example:" in text and f"  {path.split()[0]} " in text, path
        assert all(len(line) <= 110 for line in text.splitlines()), path


def test_help_and_version_by_the_executable(kayos: Kayos) -> None:
    assert kayos.ok("--version").out.decode() == f"kayos {package.__version__}\n"
    shown = kayos.ok("--help").out.decode()
    assert all(name in shown for name in COMMANDS) and "Exit codes" in shown
    assert kayos.ok("topic", "create", "-h").out == kayos.ok("topic", "create", "--help").out
    nothing = kayos()
    assert nothing.code == 2 and "Usage" in nothing.err and nothing.out == b""


def test_help_starts_without_the_slow_imports() -> None:
    """gRPC, protobuf, rich and the server cost more than all the rest; each is loaded by the command that needs it."""
    slow = ("grpc", "google.protobuf", "rich", "asyncio", "lmdb", "kayos.client", "kayos.server", "kayos.storage")
    program = (
        "import sys; sys.argv = ['kayos', '--help'];"
        "from kayos.cli.main import main; code = main();"
        f"loaded = [name for name in {slow!r} if name in sys.modules];"
        "sys.exit(f'loaded {loaded}' if loaded or code else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_of_a_shell(kayos: Kayos, shell: str) -> None:
    script = kayos.ok("completion", shell).out.decode()
    assert "_KAYOS_COMPLETE" in script and f"{shell}_complete" in script


def test_completion_knows_commands_options_and_topics(kayos: Kayos, topic: str) -> None:
    def complete(words: str, position: int) -> list[str]:
        asked = {"_KAYOS_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(position)}
        result = kayos(env=asked)
        assert result.code == 0, result
        return [line.partition(",")[2] for line in result.out.decode().splitlines() if line]

    assert set(complete("kayos co", 1)) >= {"compact", "completion", "config", "consume"}
    assert set(complete("kayos topic ", 2)) >= {"alter", "create", "delete", "describe", "list"}
    assert complete("kayos consume t --exit", 3) == ["--exit-at-end"]
    assert topic in complete("kayos consume topic", 2)
    assert complete(f"kayos get --servers 127.0.0.1:1 {topic[:4]}", 4) == []  # nobody there: no offer, no error


def test_bash_takes_the_script(kayos: Kayos) -> None:
    script = kayos.ok("completion", "bash").out
    done = subprocess.run(["bash", "-c", 'eval "$(cat)" && complete -p kayos'], input=script, capture_output=True)
    assert done.returncode == 0 and b"kayos" in done.stdout, done
