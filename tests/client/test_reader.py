"""The consumer's core: a boundary is given only for a whole snapshot, and a broken stream loses and repeats nothing."""

import pytest

from kayos.client.core.consumer import MessageMarks
from kayos.client.core.message import Message, messages_from_columns
from kayos.client.core.reader import PREFETCH_BYTES, ShardReader
from kayos.client.core.snapshot import Assembly, SnapshotHead
from kayos.client.core.start import Start, choose_start
from kayos.client.core.steps import ReadStream
from kayos.errors import (
    DataLoss,
    FailedPrecondition,
    InvalidArgument,
    ResetRequired,
    SnapshotExpired,
    Unavailable,
)
from kayos.model.mark import Mark
from kayos.model.takeover import TakeoverRow, TakeoverTable
from kayos.wire.v1 import log_pb2, types_pb2
from tests.client.script import HISTORY, Script, at_end, begin, columns, encoded_columns, end, snapshot

RESET = Unavailable("connection reset")
LARGE = columns(1, 2, size=PREFETCH_BYTES)


def new_reader(
    script: Script, *, start: Start | None = None, stop_at_end: bool = False, by_message: bool = False
) -> ShardReader:
    return ShardReader(
        script.directory,
        "t",
        0,
        start=start or Start.beginning(),
        consumer="c",
        stop_at_end=stop_at_end,
        by_message=by_message,
    )


def read_snapshot(script: Script, reader: ShardReader) -> list[int]:
    """The sequences of one snapshot, read to its end."""
    assert script.run(reader.wait_begin())
    assert script.run(reader.prefetch()) is not None
    return read_rest(script, reader)


def read_rest(script: Script, reader: ShardReader) -> list[int]:
    seqs: list[int] = []
    while (batch := script.run(reader.read_batch())) is not None:
        seqs += [message.seq for message in batch]
    return seqs


# Columns


def test_columns_become_messages() -> None:
    encoded = types_pb2.MessageColumns(
        seqs=[4, 6, 9],
        timestamps_ms=[1, 2, 3],
        kinds=b"\x01\x02\x01",
        keys=[b"a", b"b", b""],
        values=[b"1", b"", b""],
        headers=[types_pb2.IndexedHeaders(index=2, headers=[types_pb2.Header(name="h", value=b"x")])],
    ).SerializeToString()
    assert messages_from_columns("t", 5, encoded) == [
        Message("t", 5, 4, b"a", b"1", 1),
        Message("t", 5, 6, b"b", None, 2),
        Message("t", 5, 9, None, b"", 3, (("h", b"x"),)),
    ]


@pytest.mark.parametrize("name", ["seqs", "timestamps_ms", "kinds", "keys", "values"])
def test_columns_of_unequal_length_are_refused(name: str) -> None:
    wire = types_pb2.MessageColumns.FromString(encoded_columns(1, 2))
    setattr(wire, name, wire.kinds[1:]) if name == "kinds" else getattr(wire, name).pop()
    with pytest.raises(DataLoss, match="unequal"):
        messages_from_columns("t", 0, wire.SerializeToString())


def test_headers_of_no_message_are_refused() -> None:
    wire = types_pb2.MessageColumns(headers=[types_pb2.IndexedHeaders(index=0)])
    with pytest.raises(DataLoss, match="headers for no message"):
        messages_from_columns("t", 0, wire.SerializeToString())


# Assembly: what may follow what


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([columns(1)], "sent columns while the reader was between"),
        ([end(1)], "sent end while the reader was between"),
        ([begin(0, 1), begin(1, 2)], "sent begin while the reader was inside"),
        ([begin(0, 1), at_end(1)], "sent at_end while the reader was inside"),
        ([at_end(1), begin(1, 2)], "sent begin while the reader was ended"),
        ([b""], "sent None"),
        ([b"\xff\xff"], "cannot be read"),
        ([begin(3, 3)], "from 3 to 3"),
        ([begin(0, 5), columns(1, 2), end(5, columns(1, 2), count=3)], "announced 3 messages and sent 2"),
        ([begin(0, 5), columns(1, 2), end(5, columns(1, 3))], "fails its checksum"),
        ([begin(0, 5), columns(6), end(5, columns(6))], "ended the snapshot to 5 at 6"),
        ([begin(0, 5), columns(1), end(4, columns(1))], "ended the snapshot to 5"),
        ([begin(0, 5), columns(2), columns(2)], "sent sequence 2 after 2"),
        ([begin(4, 9), columns(4)], "sent sequence 4 after 4"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_boundary_is_never_given_by_mistake(events: list[bytes], says: str) -> None:
    assembly = Assembly("t", 0)
    with pytest.raises(DataLoss, match=says):
        for event in events:
            assembly.take(event)
    assert assembly.mark is None or assembly.mark.seq == 1


# Reading and resuming


def test_snapshots_follow_each_other_on_one_stream() -> None:
    script = Script([*snapshot(0, 3, 1, 3), *snapshot(3, 5, 4)])
    reader = new_reader(script)
    assert read_snapshot(script, reader) == [1, 3]
    assert reader.position == Mark(HISTORY, 3, 0, 3)
    assert read_snapshot(script, reader) == [4]
    assert len(script.requests) == 1


def test_between_snapshots_a_broken_stream_goes_on_from_the_boundary_at_another_tail() -> None:
    script = Script([*snapshot(0, 3, 1), RESET], list(snapshot(3, 5, 4)))
    reader = new_reader(script)
    assert [read_snapshot(script, reader), read_snapshot(script, reader)] == [[1], [4]]
    assert script.requests[1].mark.seq == 3
    assert script.opened_at == ["x:1", "y:1"]


def test_a_snapshot_that_was_not_handed_out_begins_anew() -> None:
    script = Script([begin(0, 3), columns(1), RESET], list(snapshot(0, 7, 1, 5)))
    reader = new_reader(script)
    assert read_snapshot(script, reader) == [1, 5]
    assert reader.position is not None and reader.position.seq == 7


def test_a_snapshot_that_was_handed_out_expires_and_the_next_begins_at_the_same_boundary() -> None:
    script = Script(
        [*snapshot(0, 1, 1), begin(1, 9), columns(2, size=PREFETCH_BYTES), RESET], list(snapshot(1, 9, 2, 3))
    )
    reader = new_reader(script)
    read_snapshot(script, reader)
    assert script.run(reader.wait_begin())
    assert script.run(reader.prefetch()).end_seq == 9
    with pytest.raises(SnapshotExpired, match="drop what you took"):
        read_rest(script, reader)
    assert not reader.is_inside
    assert read_snapshot(script, reader) == [2, 3]
    assert script.requests[1].mark.seq == 1


def test_a_reader_of_single_messages_resumes_above_the_last_one() -> None:
    script = Script([begin(0, 9), LARGE, columns(4), RESET], list(snapshot(4, 9, 7)))
    reader = new_reader(script, by_message=True)
    assert read_snapshot(script, reader) == [1, 2, 4]
    assert reader.position == Mark(HISTORY, 4, 0, 9)
    assert read_snapshot(script, reader) == [7]
    assert script.requests[1].mark.seq == 4


def test_a_server_that_ends_the_stream_is_asked_again() -> None:
    script = Script(list(snapshot(0, 3, 1)), list(snapshot(3, 4, 4)))
    reader = new_reader(script)
    assert [read_snapshot(script, reader), read_snapshot(script, reader)] == [[1], [4]]


def test_the_end_is_the_end_when_asked_for() -> None:
    script = Script([*snapshot(0, 3, 1), at_end(3)])
    reader = new_reader(script, stop_at_end=True)
    assert read_snapshot(script, reader) == [1]
    assert [script.run(reader.wait_begin()), script.run(reader.wait_begin())] == [False, False]
    assert script.requests[0].stop_at_end
    assert script.closed == 1


def test_the_caller_hears_of_a_position_that_cannot_go_on() -> None:
    script = Script([ResetRequired("history is not known here", purge_seq=7)])
    with pytest.raises(ResetRequired) as caught:
        script.run(new_reader(script).wait_begin())
    assert caught.value.number("purge_seq") == 7


def test_a_reader_that_never_worked_gives_up_after_the_timeout_with_advice() -> None:
    script = Script(*([RESET] for _ in range(1000)))
    with pytest.raises(Unavailable, match=r"no server of a:1 answered within 10 s .* see that a node runs"):
        script.run(new_reader(script).wait_begin())
    assert 10.0 < script.now < 15.0


def test_a_reader_that_worked_looks_longer_for_a_lost_server() -> None:
    script = Script([*snapshot(0, 3, 1), RESET], *([RESET] for _ in range(1000)))
    reader = new_reader(script)
    read_snapshot(script, reader)
    with pytest.raises(Unavailable, match="within 60 s"):
        script.run(reader.wait_begin())


def test_latest_becomes_a_position_before_the_first_read() -> None:
    script = Script([RESET], [at_end(8)], [RESET], list(snapshot(8, 9, 9)))
    reader = new_reader(script, start=Start.latest())
    script.run(reader.settle_start())
    assert script.requests[1].latest and script.requests[1].stop_at_end
    assert read_snapshot(script, reader) == [9]
    assert [request.mark.seq for request in script.requests[2:]] == [8, 8]
    assert not script.requests[3].stop_at_end


def test_latest_with_a_message_in_that_very_moment_does_not_skip_it() -> None:
    script = Script([begin(8, 9)], list(snapshot(8, 9, 9)))
    reader = new_reader(script, start=Start.latest())
    script.run(reader.settle_start())
    assert read_snapshot(script, reader) == [9]
    assert script.requests[1].mark == types_pb2.Mark(
        history_id=HISTORY, seq=8, snapshot_start_seq=8, snapshot_end_seq=9
    )


def test_a_prefetch_that_was_interrupted_loses_nothing() -> None:
    script = Script([begin(0, 3), columns(2), end(3, columns(1), columns(2))])
    reader = new_reader(script)
    assert script.run(reader.wait_begin())
    interrupted = reader.prefetch()
    assert isinstance(next(interrupted), ReadStream)
    interrupted.send(columns(1))
    interrupted.close()
    assert read_snapshot(script, reader) == [1, 2]


def test_a_closed_reader_opens_nothing() -> None:
    script = Script([])
    reader = new_reader(script)
    reader.closed = True
    with pytest.raises(FailedPrecondition, match="closed"):
        script.run(reader.wait_begin())
    assert not script.opened_at


# Where to begin


@pytest.mark.parametrize(
    ("start", "field", "value"),
    [
        (Start.beginning(), "after_seq", 0),
        (Start.after(7), "after_seq", 7),
        (Start.time(1_700_000_000_000), "from_time_ms", 1_700_000_000_000),
        (Start.latest(), "latest", True),
        (Start.consumer_mark(), "consumer", "c"),
        (Start.mark({3: Mark(HISTORY, 5)}), "mark", types_pb2.Mark(history_id=HISTORY, seq=5)),
        (Start.mark({1: Mark(HISTORY, 5)}), "mark", types_pb2.Mark()),
    ],
    ids=["beginning", "after", "time", "latest", "consumer", "own mark", "own mark of another shard"],
)
def test_every_start_on_the_wire(start: Start, field: str, value: object) -> None:
    request = log_pb2.SubscribeRequest()
    start.fill(request, shard=3, consumer="c")
    assert (request.WhichOneof("start"), getattr(request, field)) == (field, value)


def test_the_default_start_is_the_consumer_s_mark() -> None:
    assert choose_start(None, "c") == Start.consumer_mark()
    assert choose_start(None, None) == Start.beginning()
    assert choose_start(Start.latest(), "c") == Start.latest()
    with pytest.raises(InvalidArgument, match="needs a consumer"):
        choose_start(Start.consumer_mark(), None)


@pytest.mark.parametrize("make", [Start.after, Start.time])
@pytest.mark.parametrize("number", [-1, 2**63])
def test_impossible_numbers_are_refused(make: object, number: int) -> None:
    with pytest.raises(InvalidArgument, match="cannot be"):
        make(number)  # type: ignore[operator]


def test_the_mark_of_one_message_knows_its_history() -> None:
    older = b"history-zero-000"
    table = TakeoverTable((TakeoverRow(older, 0, 1), TakeoverRow(HISTORY, 5, 2)))
    marks = MessageMarks()
    marks.note(SnapshotHead("t", 0, 3, 9, 0, table))
    message = Message("t", 0, 7, b"k", b"v", 0)
    assert marks.mark_of(message) == Mark(HISTORY, 7, 3, 9)
    assert marks.mark_of(message._replace(seq=5)) == Mark(older, 5, 3, 9)
    assert marks.mark_of(message._replace(seq=2)) == Mark(older, 2)
    for stranger in (message._replace(seq=10), message._replace(shard=1), message._replace(topic="u")):
        with pytest.raises(FailedPrecondition, match="was not given by this consumer"):
            marks.mark_of(stranger)
