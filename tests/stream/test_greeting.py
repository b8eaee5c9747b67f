"""How an upstream answers Hello: every verdict with its reasons, one case per line."""

import pytest

from kayos.model.record import Kind, encode_record
from kayos.model.sync import READY, SyncPhase, SyncState
from kayos.model.takeover import TakeoverRow, TakeoverTable
from kayos.model.write import Batch
from kayos.stream.greeting import Upstream, answer_hello
from kayos.stream.messages import CatchUp, Continue, Hello, Reset, RollBack, Verdict, Wedge
from kayos.stream.window import Window

SESSION, EPOCH = 7, 3


def table(*rows: tuple[str, int]) -> TakeoverTable:
    return TakeoverTable(
        tuple(TakeoverRow(name.encode() * 16, start, epoch) for epoch, (name, start) in enumerate(rows, 1))
    )


def hello(
    rows: TakeoverTable, high_seq: int, *, commit: int = 0, purge: int = 0, removal: int = 0, sync: SyncState = READY
) -> Hello:
    return Hello(SESSION, EPOCH, "b", b"life", rows, high_seq, commit, purge, removal, sync)


def upstream(
    rows: TakeoverTable, high_seq: int, *, purge: int = 0, is_head: bool = True, kept_from: int | None = None
) -> Upstream:
    """One that keeps batches of one record each, above `kept_from` (all of them unless given)."""
    window = Window(kept_from or 0)
    for seq in range((kept_from or 0) + 1, high_seq + 1):
        window.add(Batch(EPOCH, seq - 1, seq, 1, (encode_record(seq, Kind.PUT, 1, b"", b""),)), durable_seq=high_seq)
    return Upstream(rows, high_seq, purge, is_head, window)


def copying(*, start: int, through: int, end: int, source: str, first_end: int | None = None) -> SyncState:
    first = end if first_end is None else first_end
    return SyncState(SyncPhase.CATCHING_UP, start, through, end, first, source.encode() * 16 if source else b"")


A = table(("a", 0))
A_B5 = table(("a", 0), ("b", 5))
A_C5 = table(("a", 0), ("c", 5))
NONE = table()

CASES: list[tuple[str, Hello, Upstream, type, str]] = [
    # The same log
    ("nothing yet on both sides", hello(NONE, 0), upstream(NONE, 0), Continue, ""),
    ("an empty copy, all still in memory", hello(NONE, 0), upstream(A, 10), Continue, ""),
    ("the same end", hello(A, 10), upstream(A, 10), Continue, ""),
    ("a prefix that memory reaches", hello(A, 7), upstream(A, 10, kept_from=7), Continue, ""),
    ("a prefix before what memory keeps", hello(A, 6), upstream(A, 10, kept_from=7), CatchUp, ""),
    ("a prefix of an older history, its end in memory", hello(A, 5), upstream(A_B5, 10), Continue, ""),
    ("the table runs ahead of the copy's log", hello(A, 3), upstream(A_B5, 10), CatchUp, ""),
    ("an empty copy and a second history", hello(NONE, 0), upstream(A_B5, 10), CatchUp, ""),
    # The same log, and purges
    ("purged, but the batches that tell of it are there", hello(A, 6), upstream(A, 10, purge=8), Continue, ""),
    (
        "purged above a prefix",
        hello(A, 6),
        upstream(A, 10, purge=8, kept_from=7),
        Reset,
        "purged up to 8",
    ),
    ("purged up to a prefix", hello(A, 6), upstream(A, 10, purge=6, kept_from=7), CatchUp, ""),
    (
        "purged, but an empty copy missed nothing",
        hello(NONE, 0),
        upstream(A, 10, purge=8, kept_from=9),
        CatchUp,
        "",
    ),
    # The same history, and the downstream is ahead
    ("merely ahead of a middle", hello(A, 12), upstream(A, 10, is_head=False), Continue, ""),
    ("merely ahead of a middle, committed", hello(A, 12, commit=12), upstream(A, 10, is_head=False), Continue, ""),
    ("ahead of the head that wrote the history", hello(A, 12), upstream(A, 10), RollBack, "10"),
    ("committed ahead of the head", hello(A, 12, commit=11), upstream(A, 10), Wedge, "a common log up to 10"),
    ("ahead of a middle in another history", hello(A, 12), upstream(A_B5, 10, is_head=False), RollBack, "5"),
    # Another log above a point
    ("both went on from 5", hello(A_C5, 9), upstream(A_B5, 9), RollBack, "5"),
    ("the downstream stayed in the old history", hello(A, 9), upstream(A_B5, 9), RollBack, "5"),
    (
        "the downstream left the history first",
        hello(table(("a", 0), ("c", 3)), 9),
        upstream(A, 9),
        RollBack,
        "3",
    ),
    ("committed up to the point", hello(A_C5, 9, commit=5), upstream(A_B5, 9), RollBack, "5"),
    ("committed above the point", hello(A_C5, 9, commit=6), upstream(A_B5, 9), Wedge, "seen 6 committed"),
    ("the upstream removed above the point", hello(A_C5, 9), upstream(A_B5, 9, purge=6), Reset, "above the"),
    ("the upstream removed up to the point", hello(A_C5, 9), upstream(A_B5, 9, purge=5), RollBack, "5"),
    (
        "the downstream removed above the point",
        hello(A_C5, 9, removal=6),
        upstream(A_B5, 9),
        Reset,
        "above the",
    ),
    ("the downstream removed up to the point", hello(A_C5, 9, removal=5), upstream(A_B5, 9), RollBack, "5"),
    # Nothing in common
    ("no common history", hello(table(("x", 0)), 9), upstream(A, 9), Reset, "no common history"),
    (
        "no common history, committed",
        hello(table(("x", 0)), 9, commit=1),
        upstream(A, 9),
        Wedge,
        "no history",
    ),
    ("an empty upstream", hello(A, 9), upstream(NONE, 0), Reset, "no common history"),
    ("an empty upstream, committed", hello(A, 9, commit=9), upstream(NONE, 0), Wedge, "no history"),
    ("an upstream that lost its end", hello(A, 9, commit=9), upstream(A, 4), Wedge, "a common log up to 4"),
    # In the middle of a catch-up
    (
        "the same source, further on",
        hello(NONE, 0, sync=copying(start=0, through=4, end=8, source="a")),
        upstream(A, 10),
        CatchUp,
        "",
    ),
    (
        "another source that holds the same state",
        hello(NONE, 0, sync=copying(start=0, through=4, end=5, source="a")),
        upstream(A_B5, 10),
        CatchUp,
        "",
    ),
    (
        "a source whose history ended before it",
        hello(NONE, 0, sync=copying(start=0, through=4, end=8, source="a")),
        upstream(A_B5, 10),
        Reset,
        "comes from another history",
    ),
    (
        "a source that does not know the history",
        hello(NONE, 0, sync=copying(start=0, through=4, end=8, source="x")),
        upstream(A, 10),
        Reset,
        "comes from another history",
    ),
    (
        "begun, and nothing taken yet",
        hello(NONE, 0, sync=copying(start=0, through=0, end=0, source="")),
        upstream(A, 10, purge=9),
        CatchUp,
        "",
    ),
    (
        "purged after the first slice",
        hello(NONE, 0, sync=copying(start=0, through=4, end=8, first_end=6, source="a")),
        upstream(A, 10, purge=7),
        Reset,
        "purged up to 7 meanwhile",
    ),
    (
        "purged before the first slice",
        hello(NONE, 0, sync=copying(start=0, through=4, end=8, first_end=6, source="a")),
        upstream(A, 10, purge=6),
        CatchUp,
        "",
    ),
    (
        "purged above where the copy began",
        hello(A, 3, sync=copying(start=3, through=4, end=8, source="a")),
        upstream(A, 10, purge=4),
        Reset,
        "purged up to 4 meanwhile",
    ),
    (
        "what the copy would replace was committed",
        hello(A, 9, commit=9, sync=copying(start=0, through=2, end=4, source="a")),
        upstream(A, 4),
        Wedge,
        "seen 9 committed",
    ),
    (
        "committed, and the source is a middle that is behind for now",
        hello(A, 9, commit=9, sync=copying(start=0, through=2, end=4, source="a")),
        upstream(A, 6, is_head=False),
        CatchUp,
        "",
    ),
]


@pytest.mark.parametrize(
    ("said", "own", "kind", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_verdicts(said: Hello, own: Upstream, kind: type[Verdict], words: str) -> None:
    verdict = answer_hello(said, own)
    assert isinstance(verdict, kind), verdict
    assert (verdict.session, verdict.epoch) == (SESSION, EPOCH)
    match verdict:
        case Continue():
            assert verdict.takeover == own.takeover
        case RollBack():
            assert verdict.seq == int(words)
        case Reset() | Wedge():
            assert words in verdict.reason


def test_every_verdict_has_a_case() -> None:
    assert {case[3] for case in CASES} == {Continue, CatchUp, RollBack, Reset, Wedge}


def test_no_verdict_takes_a_copy_below_what_it_saw_committed() -> None:
    """The table above, asked again by a copy that has seen everything committed that it holds."""
    for name, said, own, _, _ in CASES:
        verdict = answer_hello(said._replace(commit_point=said.high_seq), own)
        if isinstance(verdict, RollBack):
            assert verdict.seq >= said.high_seq, name
        elif isinstance(verdict, Reset) and said.sync.is_ready:
            # Rows cannot tell, but the upstream's log holds all of it.
            assert own.high_seq >= said.high_seq and said.high_seq < own.purge_seq, name
