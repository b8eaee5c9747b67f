"""What the examples of the three consistency levels share: their arguments and their topic."""

import argparse
import os

import kayos
from kayos.errors import TopicNotFound


def parse(story: str, *, topic: str, writes: int) -> argparse.Namespace:
    """`story` is the example's own docstring: its first line is the description, all of it the help's end."""
    parser = argparse.ArgumentParser(
        description=story.splitlines()[0], epilog=story, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    servers = os.environ.get("KAYOS_SERVERS", "127.0.0.1:7400")
    parser.add_argument("--servers", default=servers, help="HOST:PORT, several with commas  [default: %(default)s]")
    parser.add_argument("--topic", default=topic, help="made if it is not there  [default: %(default)s]")
    parser.add_argument("--writes", type=int, default=writes, help="how many  [default: %(default)s]")
    options = parser.parse_args()
    if options.writes < 1:
        parser.error(f"--writes is {options.writes}: give 1 or more")
    return options


def find_or_create_topic(client: kayos.Client, name: str) -> kayos.Topic:
    """In a static cluster topics are named in its file, so look before making one."""
    try:
        return client.topics.describe(name).topic
    except TopicNotFound:
        return client.topics.create(name)
