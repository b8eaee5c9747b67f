"""`kayos completion`: the script that makes a shell's Tab key know Kayos."""

import click
from click.shell_completion import get_completion_class

from kayos.cli.output import write_out

SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog="""\b
Example:
  eval "$(kayos completion bash)"                                  in ~/.bashrc
  eval "$(kayos completion zsh)"                                   in ~/.zshrc
  kayos completion fish > ~/.config/fish/completions/kayos.fish"""
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell: commands, options, and the names of topics."""
    found = get_completion_class(shell)
    assert found is not None, f"click knows no completion for {shell}"
    # Only the script itself: `source()` of bash would first run a bash to ask for its version.
    script = found(click.get_current_context().find_root().command, {}, "kayos", "_KAYOS_COMPLETE")
    write_out((script.source_template % script.source_vars()).encode())
