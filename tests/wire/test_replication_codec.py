"""Words of the replication protocol on the wire: what goes out comes back, and nothing else does."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from kayos.errors import DamagedRecord, InvalidArgument, KayosError, LimitReached
from kayos.limits import GRPC_MESSAGE_BYTES_MAX, NUMBER_MAX, PART_BYTES_MAX
from kayos.model.catch_up import CatchUpPiece, CatchUpTables, Restorable, RetainedRow
from kayos.model.floors import Floors
from kayos.model.mark import Mark
from kayos.model.pin import Pin
from kayos.model.producer import ProducerResult, ProducerRow
from kayos.model.record import CHECKSUM, checksum_of, encode_record
from kayos.model.snapshot import LogSlice
from kayos.model.sync import SyncPhase, SyncState
from kayos.model.takeover import TakeoverRow, TakeoverTable
from kayos.model.write import Batch
from kayos.stream.messages import (
    Ack,
    AskPiece,
    AskRecords,
    Bye,
    Continue,
    Downward,
    Piece,
    Progress,
    Records,
    Sent,
    Upward,
)
from kayos.wire import replication_frames
from kayos.wire.methods import REPLICATION_METHODS
from kayos.wire.replication_codec import (
    DownwardAssembler,
    ShardKey,
    UpwardAssembler,
    encode_downward,
    encode_upward,
)
from kayos.wire.replication_frames import cut_frame, seal_frame
from kayos.wire.v1 import replication_pb2 as pb
from tests.seeds import choose_seed
from tests.wire.words import (
    BATCH,
    DOWNWARD,
    DURABLE,
    H1,
    H2,
    HELLO,
    KEY,
    TABLES,
    UPWARD,
    downward_words,
    records_at,
    upward_words,
)

PIECE = CatchUpPiece(H2, LogSlice(45, 50, 50, True, records_at(50)), TABLES)


def send_up(message: Upward, assembler: UpwardAssembler | None = None) -> Upward | None:
    if assembler is None:
        assembler = UpwardAssembler()
        assembler.key = KEY
    answers = [assembler.feed(sent) for sent in encode_upward(message, KEY)]
    assert answers[:-1] == [None] * (len(answers) - 1)
    return answers[-1]


def send_down(message: Downward) -> Downward | None:
    assembler = DownwardAssembler()
    answers = [assembler.feed(sent) for sent in encode_downward(message)]
    assert answers[:-1] == [None] * (len(answers) - 1)
    return answers[-1]


# What goes out comes back


@pytest.mark.parametrize("message", UPWARD, ids=lambda word: type(word).__name__)
def test_every_word_of_a_downstream_arrives(message: Upward) -> None:
    arrived = send_up(message)
    assert arrived == message and type(arrived) is type(message)


@pytest.mark.parametrize("message", DOWNWARD, ids=lambda word: type(word).__name__)
def test_every_word_of_an_upstream_arrives(message: Downward) -> None:
    arrived = send_down(message)
    assert arrived == message and type(arrived) is type(message)


def test_no_word_is_forgotten() -> None:
    assert {type(message) for message in UPWARD} == set(get_args(Upward))
    assert {type(message) for message in DOWNWARD} == set(get_args(Downward))


@seed(choose_seed())
@settings(max_examples=150, deadline=None)
@given(upward_words)
def test_any_word_of_a_downstream_arrives(message: Upward) -> None:
    assert send_up(message) == message


@seed(choose_seed())
@settings(max_examples=200, deadline=None)
@given(downward_words)
def test_any_word_of_an_upstream_arrives(message: Downward) -> None:
    assert send_down(message) == message


def test_the_method_streams_both_ways() -> None:
    follow = REPLICATION_METHODS["Follow"]
    assert follow.path == "/kayos.v1.Replication/Follow" and follow.client_streams and follow.server_streams


# A stream belongs to one shard


def test_a_stream_begins_with_hello_and_stays_with_its_shard() -> None:
    assembler = UpwardAssembler()
    with pytest.raises(InvalidArgument, match="begins with ack: say Hello"):
        assembler.feed(encode_upward(Ack(1, 1, 0, {}), KEY)[0])
    assert assembler.feed(encode_upward(HELLO, KEY)[0]) == HELLO
    assert assembler.key == KEY
    assert assembler.feed(encode_upward(HELLO._replace(session=2), KEY)[0]) == HELLO._replace(session=2)
    with pytest.raises(InvalidArgument, match="another shard"):
        assembler.feed(encode_upward(HELLO, ShardKey(KEY.topic_id, 8))[0])


@pytest.mark.parametrize("key", [ShardKey("", 0), ShardKey("../up", 0), ShardKey("t", 1024)])
def test_a_shard_that_cannot_be_is_refused(key: ShardKey) -> None:
    with pytest.raises(InvalidArgument, match=r"topic_id|shard"):
        UpwardAssembler().feed(encode_upward(HELLO, key)[0])


# Parts


def test_a_long_word_travels_in_parts_that_grpc_carries() -> None:
    records = records_at(*range(41, 58), size=1_000_000)
    message = Sent(1, 3, Batch(3, 40, 57, 1, records), DURABLE)
    sent = encode_downward(message)
    assert len(sent) == 5 and max(map(len, sent)) < GRPC_MESSAGE_BYTES_MAX
    assert send_down(message) == message


def test_a_long_question_travels_in_parts() -> None:
    message = AskRecords(1, 3, tuple(b"%04d" % number + b"k" * 4_000 for number in range(1_100)), 30)
    assert len(encode_upward(message, KEY)) == 2
    assert send_up(message) == message


def test_words_up_to_the_limit_of_a_part_travel_whole() -> None:
    for size, count in ((PART_BYTES_MAX - 40, 1), (PART_BYTES_MAX, 2), (2 * PART_BYTES_MAX, 3)):
        message = Bye(1, 3, "x" * size)
        assert len(encode_downward(message)) == count
        assert send_down(message) == message


def test_what_is_too_long_is_neither_sent_nor_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication_frames, "PART_BYTES_MAX", 1_000)
    sealed = encode_downward(Bye(1, 3, "x" * 10_000))
    whole = seal_frame(pb.FollowResponse(bye=pb.Bye(reason="x" * 10_000)))
    with pytest.raises(LimitReached, match="9000 are the most"):
        cut_frame(whole, lambda part: pb.FollowResponse(part=part), bytes_max=9_000)
    joiner = replication_frames.Joiner(pb.FollowResponse.FromString, bytes_max=5_500)
    with pytest.raises(InvalidArgument, match="5500 are allowed"):
        for index, part in enumerate(sealed):
            assert joiner.feed(part) is None and index < 5


def test_parts_are_not_mixed_with_words_and_hold_no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication_frames, "PART_BYTES_MAX", 1_000)
    parts = encode_downward(Bye(1, 3, "x" * 3_000))
    assembler = DownwardAssembler()
    assert assembler.feed(parts[0]) is None
    with pytest.raises(InvalidArgument, match="bye comes between"):
        assembler.feed(encode_downward(Bye(1, 3, ""))[0])
    inner = seal_frame(pb.FollowResponse(part=pb.Part(data=b"x", last=True)))
    with pytest.raises(InvalidArgument, match="a part again"):
        DownwardAssembler().feed(seal_frame(pb.FollowResponse(part=pb.Part(data=inner, last=True))))
    with pytest.raises(InvalidArgument, match="0 bytes"):
        DownwardAssembler().feed(seal_frame(pb.FollowResponse(part=pb.Part())))


def test_a_part_that_was_lost_shows_although_those_that_came_are_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication_frames, "PART_BYTES_MAX", 1_000)
    first, _, *rest = encode_downward(Bye(1, 3, "x" * 3_000))
    assembler = DownwardAssembler()
    with pytest.raises(DamagedRecord):
        for part in (first, *rest):
            assert assembler.feed(part) is None


# Damage


def test_every_flipped_bit_is_noticed() -> None:
    hello, batch = encode_upward(HELLO, KEY)[0], encode_downward(Sent(1, 3, BATCH, DURABLE))[0]
    for sealed, take in ((hello, UpwardAssembler().feed), (batch, DownwardAssembler().feed)):
        for bit in range(8 * len(sealed)):
            flipped = bytearray(sealed)
            flipped[bit // 8] ^= 1 << bit % 8
            with pytest.raises(DamagedRecord, match="fails its checksum"):
                take(bytes(flipped))


def test_every_cut_is_noticed() -> None:
    sealed = encode_downward(Sent(1, 3, BATCH, DURABLE))[0]
    for length in range(len(sealed)):
        with pytest.raises(DamagedRecord):
            DownwardAssembler().feed(sealed[:length])


@seed(choose_seed())
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_strange_bytes_end_in_an_error_of_ours(strange: bytes, is_sealed: bool) -> None:
    """Also when their checksum holds."""
    received = seal_bytes(strange) if is_sealed else strange
    for take in (UpwardAssembler().feed, DownwardAssembler().feed):
        with pytest.raises(KayosError):
            take(received)


@seed(choose_seed())
@settings(max_examples=300, deadline=None)
@given(st.sampled_from(DOWNWARD + UPWARD), st.data())
def test_a_word_with_changed_bytes_and_a_good_checksum_is_taken_or_refused(
    message: Upward | Downward, data: st.DataObject
) -> None:
    is_up = isinstance(message, Upward)
    sealed = (encode_upward(message, KEY) if is_up else encode_downward(message))[0]  # type: ignore[arg-type]
    changed = bytearray(sealed[:-5])
    for _ in range(data.draw(st.integers(1, 4))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    assembler: UpwardAssembler | DownwardAssembler = UpwardAssembler() if is_up else DownwardAssembler()
    if isinstance(assembler, UpwardAssembler):
        assembler.key = KEY
    try:
        assembler.feed(seal_bytes(bytes(changed)))
    except KayosError:
        return  # Anything else would be a crash of the node.


def seal_bytes(body: bytes) -> bytes:
    """Any bytes as a message with a good checksum."""
    tagged = body + seal_frame(pb.FollowResponse())[:1]
    return tagged + CHECKSUM.pack(checksum_of(tagged))


# What cannot be


def sent(**changes: object) -> Sent:
    return Sent(1, 3, replace(BATCH, **changes), DURABLE)  # type: ignore[arg-type]


def row_of(*results: ProducerResult, producer_id: bytes = b"p") -> tuple[ProducerRow, ...]:
    return (ProducerRow(producer_id, 1, results),)


def piece_with(**changes: object) -> Piece:
    return Piece(1, 3, replace(PIECE, tables=replace(TABLES, **changes)))  # type: ignore[arg-type]


def slice_of(*arguments: object, tables: CatchUpTables | None = None) -> Piece:
    return Piece(1, 3, CatchUpPiece(H1, LogSlice(*arguments), tables))  # type: ignore[arg-type]


BIG = NUMBER_MAX + 1
STRANGE_DOWNWARD = [
    (Progress(BIG, 3, 0, {}), "session"),
    (Progress(1, BIG, 0, {}), "epoch"),
    (Progress(1, 3, BIG, {}), "sent_seq"),
    (Progress(1, 3, 0, {"a": BIG}), "durable"),
    (Progress(1, 3, 0, {f"n{number}": 1 for number in range(11)}), "11 nodes"),
    (Continue(1, 3, TakeoverTable((TakeoverRow(b"short", 0, 1),))), "not sound"),
    (Continue(1, 3, TakeoverTable((TakeoverRow(H1, 5, 1), TakeoverRow(H2, 5, 2)))), "not sound"),
    (Continue(1, 3, TakeoverTable((TakeoverRow(H1, 5, 1), TakeoverRow(H1, 6, 2)))), "not sound"),
    (Continue(1, 3, TakeoverTable((TakeoverRow(H1, BIG, 1),))), "start_seq"),
    (Continue(1, 3, TakeoverTable(tuple(TakeoverRow(b"%016d" % n, n, 1) for n in range(1_025)))), "1025 rows"),
    (sent(epoch=BIG), "epoch"),
    (sent(timestamp_ms=BIG), "timestamp_ms"),
    (sent(last_seq=BIG), "last_seq"),
    (sent(previous_seq=50), "must add"),
    (sent(last_seq=49), "do not ascend"),
    (sent(previous_seq=41), "do not ascend"),
    (sent(records=records_at(45, 41)), "do not ascend"),
    (sent(records=records_at(41, 41)), "do not ascend"),
    (sent(records=(b"x" * 23,)), "shorter"),
    (sent(producers=row_of(ProducerResult(1, 1, 1, 1)) + row_of()), "no result"),
    (sent(producers=row_of(*(ProducerResult(n, 1, 1, 1) for n in range(17)))), "no result"),
    (sent(producers=row_of(ProducerResult(1, 1, 1, 1), producer_id=b"")), "id has no byte"),
    (sent(producers=row_of(ProducerResult(1, 1, 1, 1), producer_id=b"x" * 65)), "id has no byte"),
    (sent(producers=row_of(ProducerResult(2, 1, 1, 1), ProducerResult(2, 1, 1, 1))), "do not ascend"),
    (sent(producers=row_of(ProducerResult(1, 2, 1, 1))), "cannot be"),
    (sent(producers=row_of(ProducerResult(1, 1, 1, BIG))), "cannot be"),
    (Piece(1, 3, replace(PIECE, history_id=b"short")), "history_id"),
    (slice_of(6, 5, 7, False, ()), "covers"),
    (slice_of(5, 7, 6, False, ()), "covers"),
    (slice_of(5, 6, BIG, False, ()), "end_seq"),
    (slice_of(5, 6, 7, True, ()), "only with it"),
    (slice_of(40, 45, 50, True, (), tables=TABLES), "only with it"),
    (slice_of(40, 45, 50, False, (), tables=TABLES), "only with it"),
    (slice_of(40, 45, 50, False, records_at(46)), "do not ascend"),
    (slice_of(40, 60, 60, True, (), tables=TABLES), "those of 50"),
    (piece_with(epoch=BIG), "epoch"),
    (piece_with(floors=Floors(trim_seq=BIG)), "trim_seq"),
    (piece_with(marks=(("No", Mark(H1, 1)),)), "consumer name"),
    (piece_with(marks=(("c", Mark(b"short", 1)),)), "history_id"),
    (piece_with(marks=(("c", Mark(H1, BIG)),)), "seq"),
    (piece_with(pins=(Pin("No", 1, 1, 1),)), "pin name"),
    (piece_with(pins=(Pin("p", 1, -1, 1),)), "created_ms"),
    (piece_with(pins=tuple(Pin(f"p{n}", 1, 1, 1) for n in range(513))), "513 pins"),
    (piece_with(retained=(RetainedRow(encode_record(20, 1, 5, b"k", b""), 20),)), "replaced by 20"),
    (piece_with(retained=(RetainedRow(encode_record(20, 1, 5, b"k", b""), 51),)), "replaced by 51"),
    (piece_with(retained=(RetainedRow(b"x", 20),)), "shorter"),
    (Records(1, 3, Restorable(b"short", 5, 0, ())), "history_id"),
    (Records(1, 3, Restorable(H1, BIG, 0, ())), "end_seq"),
    (Records(1, 3, Restorable(H1, 5, 1, records_at(1, 2))), "answer for 1"),
    (Records(1, 3, Restorable(H1, 5, 10_001, ())), "answer for 10001"),
    (Records(1, 3, Restorable(H1, 5, 1, (b"x",))), "shorter"),
]
STRANGE_UPWARD = [
    (HELLO._replace(node="No Name"), "node name"),
    (HELLO._replace(incarnation=b""), "incarnation"),
    (HELLO._replace(incarnation=b"i" * 65), "incarnation"),
    (HELLO._replace(high_seq=BIG), "high_seq"),
    (HELLO._replace(sync=SyncState(SyncPhase.CATCHING_UP, 5, 4, 6)), "range"),
    (HELLO._replace(sync=SyncState(SyncPhase.CATCHING_UP, 5, 7, 6)), "range"),
    (HELLO._replace(sync=SyncState(SyncPhase.CATCHING_UP, 5, 6, 6, 7)), "range"),
    (HELLO._replace(sync=SyncState(SyncPhase.CATCHING_UP, 5, 6, 6, 6, b"short")), "source_history"),
    (Ack(1, 3, BIG, {}), "synced_seq"),
    (AskPiece(1, 3, 0, 0, BIG, False), "min_end_seq"),
    (AskRecords(1, 3, (), BIG), "through_seq"),
    (AskRecords(1, 3, (b"",), 1), "a key"),
    (AskRecords(1, 3, (b"k" * 4_097,), 1), "a key"),
    (AskRecords(1, 3, (b"k",) * 10_001, 1), "10001 keys"),
]


@pytest.mark.parametrize(("message", "reason"), STRANGE_DOWNWARD, ids=lambda value: str(value)[:40])
def test_an_upstreams_word_that_cannot_be_is_refused(message: Downward, reason: str) -> None:
    with pytest.raises((InvalidArgument, DamagedRecord), match=reason):
        send_down(message)


@pytest.mark.parametrize(("message", "reason"), STRANGE_UPWARD, ids=lambda value: str(value)[:40])
def test_a_downstreams_word_that_cannot_be_is_refused(message: Upward, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        send_up(message)


def test_columns_must_agree_and_codes_be_known() -> None:
    columns = pb.ProducerColumns(
        producer_ids=[b"p"],
        producer_epochs=[1],
        counts=[1],
        numbers=[1],
        first_seqs=[1],
        last_seqs=[1],
        timestamps_ms=[1],
    )
    for name in ("producer_epochs", "counts", "numbers", "first_seqs", "last_seqs", "timestamps_ms"):
        odd = pb.ProducerColumns.FromString(columns.SerializeToString())
        odd.ClearField(name)
        batch = pb.Batch(previous_seq=0, last_seq=1, producers=odd)
        with pytest.raises(InvalidArgument, match=r"agree|length|no result"):
            DownwardAssembler().feed(seal_frame(pb.FollowResponse(sent=pb.Sent(batch=batch))))
    for refusal in (0, 9):
        with pytest.raises(InvalidArgument, match=f"refusal {refusal} is unknown"):
            DownwardAssembler().feed(seal_frame(pb.FollowResponse(refuse=pb.Refuse(code=refusal))))  # type: ignore[arg-type]
    for take in (UpwardAssembler().feed, DownwardAssembler().feed):
        with pytest.raises(InvalidArgument, match="no known kind"):
            take(seal_frame(pb.FollowResponse(session=1)))
    lonely = pb.Piece(complete=True, tables=pb.CatchUpTables(consumers=["c"]))
    with pytest.raises(InvalidArgument, match="1 consumers and 0 marks"):
        DownwardAssembler().feed(seal_frame(pb.FollowResponse(piece=lonely)))
    lonely = pb.Piece(complete=True, tables=pb.CatchUpTables(retained=[b"x" * 30]))
    with pytest.raises(InvalidArgument, match="1 retained records, 0"):
        DownwardAssembler().feed(seal_frame(pb.FollowResponse(piece=lonely)))
