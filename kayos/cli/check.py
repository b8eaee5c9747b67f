"""`kayos check`: the proof that a node's data, or one store, is sound, or that two are equal. Offline: no node runs.

A store that is written to while it is read page by page would look damaged, so the lock of the data directory is taken
for as long as the check lasts; that also keeps a node from starting in the middle of it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from kayos.cli.extra import server_extra
from kayos.cli.failure import Failure
from kayos.cli.options import output_option
from kayos.cli.output import choose_format, printable, show_rows, write_out
from kayos.cli.progress import progress


@click.command(
    epilog="\b\nExample:\n  kayos check /var/lib/kayos\n  kayos check /var/lib/kayos/shards/1f2e3d-0\n"
    "  kayos check --compare node-1/data node-2/data"
)
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--compare", is_flag=True, help="Prove that the stores of two directories are equal replicas.")
@output_option
def check(directories: tuple[Path, ...], compare: bool, output: str | None) -> None:
    """Check every store of a node's data directory, or one store's directory: pages, checksums, and that all tables
    agree. With --compare, give two: they are checked, and their stores compared row by row. Exit code 1 if anything is
    damaged or differs, 6 if a node runs on a directory.
    """
    with server_extra():
        import kayos.server.data_directory
        import kayos.storage.check  # noqa: F401

    wanted = 2 if compare else 1
    if len({directory.resolve() for directory in directories}) != wanted or len(directories) != wanted:
        what = "two different directories to compare" if compare else "one directory"
        raise Failure(f"give {what}: a node's data directory or a store's", Failure.USAGE)
    if compare:
        check_equal(*directories, output=output)
    else:
        check_sound(directories[0], output)


def check_sound(directory: Path, output: str | None) -> None:
    root = find_root(directory)
    with locked(root):
        rows = check_node(root) if root == directory else [check_one(directory, None)]
    show_rows(rows, output, ("store", "directory", "messages", "high_seq", "sound"))
    damaged = [row for row in rows if not row["sound"]]
    if choose_format(output) == "table":
        for row in damaged:
            for problem in row["problems"]:
                write_out(f"{row['directory']}: {printable(problem)}\n".encode())
    if damaged:
        first = damaged[0]
        raise Failure(
            f"{len(damaged)} of {len(rows)} are damaged, the first is {first['directory']}: {first['problems'][0]}"
        )


def check_equal(one: Path, other: Path, *, output: str | None) -> None:
    roots = find_root(one), find_root(other)
    with ExitStack() as stack:
        for root in {root.resolve() for root in roots}:
            stack.enter_context(locked(root))
        rows = [compare_one(*pair) for pair in find_pairs(one, other, roots)]
    show_rows(rows, output, ("store", "directory", "other", "high_seq", "other_high_seq", "equal"))
    unequal = [row for row in rows if not row["equal"]]
    if choose_format(output) == "table":
        for row in unequal:
            for difference in row["differences"]:
                write_out(f"{printable(difference)}\n".encode())
    if unequal:
        raise Failure(f"{len(unequal)} of {len(rows)} are not proven equal: {unequal[0]['differences'][0]}")


def find_pairs(one: Path, other: Path, roots: tuple[Path, Path]) -> list[tuple[str | None, Path, Path]]:
    """The stores to compare, with the topic and shard where a list of topics names them."""
    from kayos.server.shard_directories import ShardDirectories

    if (one == roots[0]) != (other == roots[1]):
        raise Failure("give two data directories of nodes, or two stores", Failure.USAGE)
    if one != roots[0]:
        return [(None, one, other)]
    shared = sorted(set(ShardDirectories(one).names()) & set(ShardDirectories(other).names()))
    if not shared:
        raise Failure(f"{one} and {other} have no shard in common: nothing can be compared")
    expected, _ = check_files(one)
    return [(expected.get(name), one / "shards" / name, other / "shards" / name) for name in shared]


def compare_one(store: str | None, one: Path, other: Path) -> dict[str, Any]:
    from kayos.storage.compare import compare_stores

    found = compare_stores(one, other)
    return {
        "store": store,
        "directory": str(one),
        "other": str(other),
        "high_seq": found.high_seqs[0],
        "other_high_seq": found.high_seqs[1],
        "equal": found.is_equal,
        "prefix": found.is_prefix,
        "differences": list(found.differences),
    }


def find_root(directory: Path) -> Path:
    """The data directory of the node: this one, or the one that the store lies in; a store copied out is its own."""
    from kayos.server.data_directory import NODE_FILE
    from kayos.storage.generation import CURRENT

    if (directory / NODE_FILE).exists() or (directory / "shards").is_dir():
        return directory
    if not (directory / CURRENT).exists() and not any(directory.glob("env.*")):
        raise Failure(f"{directory} holds no data of Kayos: give a node's data directory or a store's", Failure.USAGE)
    above = directory.resolve().parent.parent
    return above if (above / NODE_FILE).exists() else directory.parent


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the node's lock; a directory without one was never a node's, or is a copy."""
    from kayos.server.data_directory import LOCK_FILE

    try:
        descriptor = os.open(root / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Failure(
            f"a node runs on {root}: stop it first, or check a copy of the directory", Failure.CONFLICT
        ) from None
    finally:
        os.close(descriptor)


def check_node(root: Path) -> list[dict[str, Any]]:
    """The files of the node itself, then every shard that its topics name, then what else lies there."""
    from kayos.server.shard_directories import ShardDirectories

    expected, rows = check_files(root)
    names = sorted(expected.keys() | ShardDirectories(root).names())
    with progress(f"checking {root}", total=len(names), unit="stores") as advance:
        for name in names:
            rows.append(check_one(root / "shards" / name, expected.get(name)))
            advance(1)
    return rows


def check_files(root: Path) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The directories of shards that should be there with their names, and a row for each file that is damaged."""
    from kayos.cluster.static import TOPICS_FILE, read_topics
    from kayos.errors import KayosError
    from kayos.server.data_directory import NODE_FILE, find_or_create_node_id
    from kayos.server.shard_directories import ShardDirectories, name_of

    rows = []
    expected: dict[str, str] = {}
    directories = ShardDirectories(root)
    try:
        if (root / NODE_FILE).exists():
            find_or_create_node_id(root / NODE_FILE)
    except KayosError as error:
        rows.append(report_row(None, root / NODE_FILE, (error.message,)))
    try:
        for topic in read_topics(root / TOPICS_FILE).values():
            for shard in range(topic.shards):
                # One that was never made, because the node ended in the middle of that, is made at its next start.
                if directories.was_made(topic, shard) or directories.path_of(topic, shard).exists():
                    expected[name_of(topic, shard)] = f"{topic.name}/{shard}"
    except KayosError as error:
        rows.append(report_row(None, root / TOPICS_FILE, (error.message,)))
    return expected, rows


def check_one(directory: Path, store: str | None) -> dict[str, Any]:
    """`store` is the topic and shard, None where no topic claims the directory."""
    from kayos.storage.check import check_store

    if not directory.exists():
        problem = "it is missing: restore it from a copy, or delete the topic"
        return report_row(store, directory, (problem,))
    report = check_store(directory)
    return report_row(store, directory, report.problems, messages=report.messages, high_seq=report.high_seq)


def report_row(
    store: str | None, directory: Path, problems: tuple[str, ...], *, messages: int = 0, high_seq: int = 0
) -> dict[str, Any]:
    return {
        "store": store,
        "directory": str(directory),
        "messages": messages,
        "high_seq": high_seq,
        "sound": not problems,
        "problems": list(problems),
    }
