"""Words of the replication protocol for tests: one of each kind, and strategies that draw any."""

from hypothesis import strategies as st

from kayos.limits import NUMBER_MAX
from kayos.model.catch_up import CatchUpPiece, CatchUpTables, Restorable, RetainedRow
from kayos.model.floors import Floors
from kayos.model.mark import BEGINNING, Mark
from kayos.model.pin import Pin
from kayos.model.producer import ProducerResult, ProducerRow
from kayos.model.record import encode_record
from kayos.model.snapshot import LogSlice
from kayos.model.sync import READY, SyncPhase, SyncState
from kayos.model.takeover import TakeoverRow, TakeoverTable
from kayos.model.write import Batch
from kayos.stream.messages import (
    Ack,
    AskPiece,
    AskRecords,
    Bye,
    CatchUp,
    Continue,
    Downward,
    Hello,
    Piece,
    Progress,
    Records,
    RefusalCode,
    Refuse,
    Reset,
    RollBack,
    Sent,
    Upward,
    Wedge,
)
from kayos.wire.replication_codec import ShardKey

KEY = ShardKey("0123456789abcdef", 7)
H1, H2 = b"1" * 16, b"2" * 16
TABLE = TakeoverTable((TakeoverRow(H1, 0, 1), TakeoverRow(H2, 40, 3)))
DURABLE = {"a": 50, "b": 48}
PRODUCERS = (
    ProducerRow(b"p", 7, (ProducerResult(1, 41, 42, 1_000), ProducerResult(2, 43, 43, 1_001))),
    ProducerRow(b"\xff" * 64, 2**32 - 1, (ProducerResult(9, 44, 50, 1_002),)),
)
TABLES = CatchUpTables(
    retained_from_seq=0,
    end_seq=50,
    message_seq=49,
    last_timestamp_ms=1_002,
    epoch=3,
    floors=Floors(1, 2, 3, 4, 5, 6),
    takeover=TABLE,
    marks=(("billing", Mark(H1, 30, 20, 40)), ("fresh", BEGINNING)),
    producers=PRODUCERS,
    pins=(Pin("p1", 30, 900, 2_000), Pin("p2", 31, 901, 902, "released", 35)),
    retained=(RetainedRow(encode_record(20, 1, 5, b"k", b"old"), 44),),
)


def records_at(*seqs: int, size: int = 3) -> tuple[bytes, ...]:
    return tuple(encode_record(seq, 1, 1_000, b"key", b"v" * size) for seq in seqs)


BATCH = Batch(3, 40, 50, 1_002, records_at(41, 45, 50), PRODUCERS)
HELLO = Hello(1, 3, "b", b"i" * 16, TABLE, 40, 39, 2, 1, READY)
COPYING = SyncState(SyncPhase.CATCHING_UP, 10, 20, 30, 25, H1)

UPWARD: tuple[Upward, ...] = (
    HELLO,
    HELLO._replace(takeover=TakeoverTable(), high_seq=0, sync=SyncState(SyncPhase.CATCHING_UP)),
    HELLO._replace(sync=COPYING),
    Ack(1, 3, 48, DURABLE),
    Ack(0, 0, 0, {}),
    AskPiece(1, 3, 20, 10, 30, True),
    AskPiece(0, 0, 0, 0, 0, False),
    AskRecords(1, 3, (b"k", b"K" * 4_096), 30),
    AskRecords(1, 3, (), 0),
)
DOWNWARD: tuple[Downward, ...] = (
    Continue(1, 3, TABLE),
    Continue(1, 3, TakeoverTable()),
    CatchUp(1, 3),
    RollBack(1, 3, 40),
    RollBack(1, 3, 0),
    Reset(1, 3, "no common history"),
    Wedge(1, 3, "wedged: é"),
    Refuse(1, 4, RefusalCode.STALE_EPOCH, "over"),
    Refuse(1, 4, RefusalCode.NOT_IN_CHAIN, ""),
    Sent(1, 3, BATCH, DURABLE),
    Sent(1, 3, Batch(1, 0, 1, 0, ()), {}),
    Progress(1, 3, 50, DURABLE),
    Progress(0, 0, 0, {}),
    Piece(1, 3, CatchUpPiece(H2, LogSlice(40, 45, 50, False, records_at(41, 45)))),
    Piece(1, 3, CatchUpPiece(H2, LogSlice(45, 50, 50, True, records_at(50)), TABLES)),
    Records(1, 3, Restorable(H2, 50, 3, records_at(12, 7))),
    Records(1, 3, Restorable(b"", 0, 0, ())),
    Bye(1, 3, "say Hello again"),
    Bye(1, 3, ""),
)

# Strategies

numbers = st.integers(0, NUMBER_MAX)
names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}", fullmatch=True)
histories = st.binary(min_size=16, max_size=16)
durables = st.dictionaries(names, numbers, max_size=5)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
heads = {"session": numbers, "epoch": numbers}


@st.composite
def takeovers(draw: st.DrawFn) -> TakeoverTable:
    ids = draw(st.lists(histories, max_size=5, unique=True))
    starts = sorted(draw(st.lists(numbers, min_size=len(ids), max_size=len(ids), unique=True)))
    return TakeoverTable(tuple(TakeoverRow(*row, draw(numbers)) for row in zip(ids, starts, strict=True)))


@st.composite
def producer_rows(draw: st.DrawFn) -> ProducerRow:
    given = sorted(draw(st.sets(numbers, min_size=1, max_size=16)))
    results = tuple(ProducerResult(number, *sorted(draw(st.tuples(numbers, numbers))), 5) for number in given)
    return ProducerRow(draw(st.binary(min_size=1, max_size=64)), draw(st.integers(0, 2**32 - 1)), results)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    seqs = sorted(draw(st.sets(st.integers(1, NUMBER_MAX), min_size=1, max_size=20)))
    records = tuple(encode_record(seq, 1, 2, draw(st.binary(max_size=9)), b"v") for seq in seqs)
    previous = draw(st.integers(0, seqs[0] - 1))
    rows = tuple(draw(st.lists(producer_rows(), max_size=3)))
    return Batch(draw(numbers), previous, draw(st.integers(seqs[-1], NUMBER_MAX)), draw(numbers), records, rows)


@st.composite
def pieces(draw: st.DrawFn) -> CatchUpPiece:
    batch = draw(batches())
    complete = draw(st.booleans())
    end = batch.last_seq if complete else draw(st.integers(batch.last_seq, NUMBER_MAX))
    rows = LogSlice(batch.previous_seq, batch.last_seq, end, complete, batch.records)
    return CatchUpPiece(draw(histories), rows, draw(tables(end)) if complete else None)


@st.composite
def tables(draw: st.DrawFn, end_seq: int) -> CatchUpTables:
    replaced = sorted(draw(st.sets(st.integers(1, end_seq), max_size=2)))
    retained = tuple(RetainedRow(encode_record(seq - 1, 1, 2, b"k", b"v"), seq) for seq in replaced)
    marks = st.builds(Mark, histories, numbers, numbers, numbers)
    pins = st.builds(Pin, names, numbers, numbers, numbers, texts, numbers)
    return CatchUpTables(
        retained_from_seq=draw(numbers),
        end_seq=end_seq,
        message_seq=draw(numbers),
        last_timestamp_ms=draw(numbers),
        epoch=draw(numbers),
        floors=Floors(*draw(st.tuples(*[numbers] * 6))),
        takeover=draw(takeovers()),
        marks=tuple(draw(st.lists(st.tuples(names, marks), max_size=2))),
        producers=tuple(draw(st.lists(producer_rows(), max_size=2))),
        pins=tuple(draw(st.lists(pins, max_size=2))),
        retained=retained,
    )


@st.composite
def syncs(draw: st.DrawFn) -> SyncState:
    start, through, end = sorted(draw(st.tuples(numbers, numbers, numbers)))
    first_end = draw(st.integers(0, end))
    return SyncState(SyncPhase.CATCHING_UP, start, through, end, first_end, draw(histories | st.just(b"")))


upward_words = st.one_of(
    st.builds(
        Hello,
        **heads,
        node=names,
        incarnation=st.binary(min_size=1, max_size=64),
        takeover=takeovers(),
        high_seq=numbers,
        commit_point=numbers,
        purge_seq=numbers,
        removal_seq=numbers,
        sync=st.just(READY) | syncs(),
    ),
    st.builds(Ack, **heads, synced_seq=numbers, durable=durables),
    st.builds(AskPiece, **heads, after_seq=numbers, start_seq=numbers, min_end_seq=numbers, all_retained=st.booleans()),
    st.builds(
        AskRecords,
        **heads,
        keys=st.lists(st.binary(min_size=1, max_size=20), max_size=5).map(tuple),
        through_seq=numbers,
    ),
)
downward_words = st.one_of(
    st.builds(Continue, **heads, takeover=takeovers()),
    st.builds(CatchUp, **heads),
    st.builds(RollBack, **heads, seq=numbers),
    st.builds(Reset, **heads, reason=texts),
    st.builds(Wedge, **heads, reason=texts),
    st.builds(Refuse, **heads, code=st.sampled_from(RefusalCode), reason=texts),
    st.builds(Sent, **heads, batch=batches(), durable=durables),
    st.builds(Progress, **heads, sent_seq=numbers, durable=durables),
    st.builds(Piece, **heads, piece=pieces()),
    st.builds(
        Records,
        **heads,
        restorable=st.builds(
            Restorable,
            history_id=histories | st.just(b""),
            end_seq=numbers,
            answered=st.integers(3, 10_000),
            records=st.sampled_from([(), records_at(5), records_at(9, 8, 7)]),
        ),
    ),
    st.builds(Bye, **heads, reason=texts),
)
