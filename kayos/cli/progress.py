"""A moving line on stderr for long work, only where someone sees it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress(description: str, *, total: int | None = None, unit: str = "messages") -> Iterator[Advance]:
    """Call what it gives with the number of things done since the last call."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        *((BarColumn(),) if total is not None else ()),
        TextColumn("{task.completed:,.0f} " + unit),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda count: bar.advance(task, count)
