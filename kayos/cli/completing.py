"""What the shell's Tab key offers: names that only a server knows. Never slow, never an error."""

import click


def complete_topics(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from kayos.cli.options import Connection, find_servers

    try:
        with Connection(find_servers(context.params.get("servers"), context), timeout_s=1.0).open() as client:
            return [topic.name for topic in client.topics.list() if topic.name.startswith(incomplete)]
    except Exception:  # whatever is wrong, a completion has nothing to say about it
        return []
