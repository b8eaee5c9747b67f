"""How an upstream answers Hello: the one place where it is decided what becomes of a copy.

the same log, a prefix          → Continue, or CatchUp when memory does not reach back that far
another log above a point D     → RollBack to D
rows cannot tell (purges)       → Reset
D below what was committed      → Wedge: an empty or shortened upstream must never make a good copy disappear
"""

from typing import NamedTuple

from kayos.model.takeover import TakeoverTable, find_divergence
from kayos.stream.messages import CatchUp, Continue, Hello, Reset, RollBack, Verdict, Wedge
from kayos.stream.window import Window


class Upstream(NamedTuple):
    """What the answering side holds; `high_seq` counts what it has accepted, fsynced or not."""

    takeover: TakeoverTable
    high_seq: int
    purge_seq: int
    is_head: bool
    window: Window


def answer_hello(hello: Hello, own: Upstream) -> Verdict:
    session, epoch = hello.session, hello.epoch
    if not hello.sync.is_ready:
        return _answer_unfinished(hello, own)
    if is_merely_ahead(hello, own):
        return Continue(session, epoch, own.takeover)
    point = find_divergence(own.takeover, hello.takeover, up_high=own.high_seq, down_high=hello.high_seq)
    if goes_below_commit(hello, point):
        return Wedge(session, epoch, _describe(hello, point))
    if point is None:
        return Reset(session, epoch, "there is no common history")
    if point == hello.high_seq:
        return _answer_prefix(hello, own)
    if own.purge_seq > point or hello.removal_seq > point:
        return Reset(session, epoch, f"messages were removed above the divergence point {point}")
    return RollBack(session, epoch, point)


def goes_below_commit(hello: Hello, point: int | None) -> bool:
    """The commit floor: what this replica has seen committed is in every rightful upstream."""
    return hello.commit_point > (0 if point is None else point)


def is_merely_ahead(hello: Hello, own: Upstream) -> bool:
    """One history has one writer, so two logs that end in the same one are prefixes of each other; a replica behind its
    downstream will get the rest from its own upstream. Only the history's head has nobody to get it from."""
    same = hello.takeover.current_history_id == own.takeover.current_history_id
    return same and not own.is_head and hello.high_seq > own.high_seq


def misses_deletes(hello: Hello, own: Upstream) -> bool:
    """Tombstones that the copy never saw were purged. A copy that holds nothing cannot have missed one."""
    if hello.sync.is_ready:
        return 0 < hello.high_seq < own.purge_seq
    return hello.sync.end_seq > 0 and hello.sync.misses_deletes(own.purge_seq)


def _answer_prefix(hello: Hello, own: Upstream) -> Verdict:
    rows = own.takeover.rows
    # A table that runs ahead of the log cannot be taken over yet; it comes at the end of a catch-up.
    table_fits = not rows or rows[-1].start_seq <= hello.high_seq
    if table_fits and own.window.reaches(hello.high_seq):
        return Continue(hello.session, hello.epoch, own.takeover)
    if misses_deletes(hello, own):
        return Reset(hello.session, hello.epoch, f"tombstones were purged up to {own.purge_seq}")
    return CatchUp(hello.session, hello.epoch)


def _answer_unfinished(hello: Hello, own: Upstream) -> Verdict:
    """A copy in the middle of a catch-up goes on only with a source that holds the state it was taken from, and all
    that the replica has seen committed: what is copied will replace what it held."""
    sync = hello.sync
    point = find_divergence(own.takeover, hello.takeover, up_high=own.high_seq, down_high=hello.high_seq)
    if goes_below_commit(hello, point) and not is_merely_ahead(hello, own):
        return Wedge(hello.session, hello.epoch, _describe(hello, point))
    if not holds_source(hello, own):
        return Reset(hello.session, hello.epoch, f"what was copied up to {sync.end_seq} comes from another history")
    if misses_deletes(hello, own):
        return Reset(hello.session, hello.epoch, f"tombstones were purged up to {own.purge_seq} meanwhile")
    return CatchUp(hello.session, hello.epoch)


def holds_source(hello: Hello, own: Upstream) -> bool:
    sync = hello.sync
    if not sync.end_seq:
        return True
    end = own.takeover.find_end(sync.source_history, high_seq=own.high_seq)
    return end is not None and end >= sync.end_seq


def _describe(hello: Hello, point: int | None) -> str:
    shared = "no history in common" if point is None else f"a common log up to {point}"
    return f"{hello.node} has seen {hello.commit_point} committed, but there is {shared}"
