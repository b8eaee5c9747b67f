"""The in-memory twin by hand: since it is the oracle of the LMDB store, each of its rules is told here once."""

import pytest

from kayos.errors import (
    ConditionFailed,
    DamagedRecord,
    FailedPrecondition,
    Gap,
    InvalidArgument,
    LimitReached,
    MarkAhead,
    MarkBackwards,
    MarkNotFound,
    OutOfRange,
    PinNotFound,
    ProducerFenced,
    ProducerGap,
    ProducerUnknown,
    ResetRequired,
    RollbackRequired,
    SnapshotExpired,
    StaleEpoch,
    Unavailable,
    WrongMode,
)
from kayos.limits import ENDED_PINS_KEPT, PINS_MAX, PRODUCER_RESULTS_KEPT
from kayos.model.control import (
    CommitMark,
    CreatePin,
    DropMark,
    EndPin,
    Expire,
    ForgetProducers,
    Purge,
    RenewPin,
    Trim,
)
from kayos.model.floors import Floors
from kayos.model.mark import BEGINNING, Mark
from kayos.model.pin import Pin
from kayos.model.producer import ProducerStamp
from kayos.model.record import encode_record
from kayos.model.sync import SyncPhase
from kayos.model.takeover import TakeoverRow
from kayos.model.write import Batch, WriteRequest, WriteResult
from kayos.storage.control_codec import NAMES, decode_control, encode_control
from kayos.storage.memory import MemoryStore

from .helpers import (
    COMPACT,
    EVERYTHING,
    HISTORY,
    LOG,
    NEXT_HISTORY,
    brief,
    catch_up,
    commit,
    decoded,
    delete,
    log_of,
    new_memory,
    pin_rows,
    put,
    refuse,
    retained_of,
    with_headers,
    wrap,
    write,
)

AB = put(("a", "1"), ("b", "1"))

# Which rows a group leaves in mode compact, and which records its batch carries.
GROUPS = [
    ("sequences go up by one", [AB], ["1 a=1", "2 b=1"], ["1 a=1", "2 b=1"]),
    ("a key repeated in a request", [put(("a", "1"), ("b", "1"), ("a", "2"))], ["2 b=1", "3 a=2"], ["2 b=1", "3 a=2"]),
    ("a key repeated across requests", [AB, put(("a", "2"))], ["2 b=1", "3 a=2"], ["2 b=1", "3 a=2"]),
    ("a delete replaces", [AB, delete("a")], ["2 b=1", "3 -a"], ["2 b=1", "3 -a"]),
    ("a delete of nothing is written", [delete("x")], ["1 -x"], ["1 -x"]),
    ("unkeyed messages all stay", [put(("", "1"), ("", "1"))], ["1 =1", "2 =1"], ["1 =1", "2 =1"]),
    (
        "a control ends the run: both revisions travel, the older one is replaced",
        [put(("a", "1")), CommitMark("c", BEGINNING), put(("a", "2"))],
        ["3 a=2"],
        ["1 a=1", "2 control", "3 a=2"],
    ),
    (
        "a refused control does not end the run",
        [put(("a", "1")), DropMark("nobody"), put(("a", "2"))],
        ["2 a=2"],
        ["2 a=2"],
    ),
]


@pytest.mark.parametrize(("requests", "log", "batch"), [case[1:] for case in GROUPS], ids=[case[0] for case in GROUPS])
def test_groups_in_mode_compact(requests: list[object], log: list[str], batch: list[str]) -> None:
    store, forwarded = new_memory(), []
    wrapped = [wrap(request) for request in requests]
    result = store.commit(wrapped, now_ms=1000, forward=forwarded.append)
    assert log_of(store) == log
    assert forwarded == [result.batch]
    assert brief(result.batch.records) == batch


def test_mode_log_replaces_nothing() -> None:
    store = new_memory(LOG)
    write(store, put(("a", "1"), ("a", "2")), delete("a"))
    assert log_of(store) == ["1 a=1", "2 a=2", "3 -a"]
    with pytest.raises(WrongMode):
        store.get(b"a")
    assert isinstance(refuse(store, put(("a", "1"), expected={0: 0})), WrongMode)


def test_answers_and_state() -> None:
    store = new_memory()
    assert write(store, AB, put(("a", "2")), now_ms=1000) == [
        WriteResult(HISTORY, 1, 2, 1000),
        WriteResult(HISTORY, 3, 3, 1000),
    ]
    # The clock of a head may be behind its predecessor's: timestamps never fall.
    (late,) = write(store, CommitMark("c", BEGINNING), now_ms=400)
    assert (late.first_seq, late.last_seq, late.timestamp_ms) == (4, 4, 1000)
    assert (store.state.high_seq, store.state.message_seq, store.state.last_timestamp_ms) == (4, 3, 1000)


def test_a_group_that_writes_nothing_changes_nothing() -> None:
    store, forwarded = new_memory(), []
    before = list(store.dump())
    result = store.commit([WriteRequest([], [])], now_ms=5, forward=forwarded.append)
    assert isinstance(result.answers[0], InvalidArgument)
    assert (result.batch, forwarded, list(store.dump())) == (None, [], before)


def test_no_write_before_a_takeover() -> None:
    for request in (AB, CommitMark("c", BEGINNING)):
        assert isinstance(refuse(MemoryStore(COMPACT), request), FailedPrecondition)


def test_a_refused_request_leaves_its_neighbours_alone() -> None:
    store = new_memory()
    first, refused, last = commit(store, AB, put(("c", "1"), ("a", "2"), expected={1: 7}), put(("c", "2")))
    assert isinstance(refused, ConditionFailed)
    assert refused.fields == {"index": 1, "expected_seq": 7, "current_seq": 1}
    assert (first.last_seq, last.first_seq) == (2, 3)


# (what, expected of messages a and b, the condition that fails or None), over a at 1, b deleted at 3, nothing else.
CONDITIONS = [
    ({0: 1}, None),
    ({0: 0}, (0, 1)),
    ({1: 0}, None),
    ({1: 3}, (1, 0)),
    ({0: 1, 1: 0}, None),
    ({1: 9, 0: 9}, (0, 1)),
    ({2: 0}, None),
    ({2: 4}, (2, 0)),
]


@pytest.mark.parametrize(("expected", "failure"), CONDITIONS)
def test_conditions(expected: dict[int, int], failure: tuple[int, int] | None) -> None:
    store = new_memory()
    write(store, AB)
    write(store, delete("b"))
    request = put(("a", "x"), ("b", "x"), ("new", "x"), expected=expected)
    if failure is None:
        write(store, request)
    else:
        error = refuse(store, request)
        assert isinstance(error, ConditionFailed)
        assert (error.fields["index"], error.current_seq) == failure


def test_conditions_see_earlier_requests_but_not_their_own() -> None:
    store = new_memory()
    taken, refused, again = commit(
        store,
        put(("a", "1"), ("a", "2"), expected={0: 0, 1: 0}),
        put(("a", "3"), expected={0: 1}),
        put(("a", "3"), expected={0: 2}),
    )
    assert isinstance(refused, ConditionFailed)
    assert (taken.last_seq, refused.current_seq, again.first_seq) == (2, 2, 3)


# Producers

P = b"producer"
PRODUCER_STORY = [
    (ProducerStamp(P, 1, 2), ProducerUnknown),
    (ProducerStamp(P, 1, 1), 1),
    (ProducerStamp(P, 1, 1), "duplicate of 1"),
    (ProducerStamp(P, 1, 3), ProducerGap),
    (ProducerStamp(P, 1, 2), 2),
    (ProducerStamp(P, 0, 3), ProducerFenced),
    (ProducerStamp(P, 2, 3), ProducerGap),
    (ProducerStamp(P, 2, 1), 3),
    (ProducerStamp(P, 1, 3), ProducerFenced),
    (ProducerStamp(P, 2, 0), InvalidArgument),
    (ProducerStamp(P, 2, 1), "duplicate of 3"),
]


def test_producer_story() -> None:
    store = new_memory()
    for stamp, expected in PRODUCER_STORY:
        (answer,) = commit(store, put(("", "v"), producer=stamp))
        match expected:
            case int():
                assert (answer.first_seq, answer.duplicate) == (expected, False)
            case str():
                assert (f"duplicate of {answer.first_seq}", answer.duplicate) == (expected, True)
            case _:
                assert type(answer) is expected
    assert log_of(store) == ["1 =v", "2 =v", "3 =v"]


def test_producer_results_are_kept_for_a_while() -> None:
    store = new_memory()
    for number in range(1, PRODUCER_RESULTS_KEPT + 2):
        write(store, put(("a", "v"), producer=ProducerStamp(P, 1, number)))
    assert isinstance(refuse(store, put(("a", "v"), producer=ProducerStamp(P, 1, 1))), InvalidArgument)
    (oldest,) = write(store, put(("a", "v"), producer=ProducerStamp(P, 1, 2)))
    assert (oldest.duplicate, oldest.first_seq) == (True, 2)


def test_a_refused_condition_leaves_the_producer_number_free() -> None:
    store = new_memory()
    assert isinstance(refuse(store, put(("a", "v"), producer=ProducerStamp(P, 1, 1), expected={0: 5})), ConditionFailed)
    assert store.find_producer(P) is None
    write(store, put(("a", "v"), producer=ProducerStamp(P, 1, 1)))
    # A repeat is answered before its condition is looked at: it was true when the first send was stored.
    (again,) = write(store, put(("a", "v"), producer=ProducerStamp(P, 1, 1), expected={0: 5}))
    assert again.duplicate


def test_a_duplicate_answers_with_the_history_that_stored_it() -> None:
    store = new_memory()
    write(store, put(("a", "v"), producer=ProducerStamp(P, 1, 1)))
    store.take_over(TakeoverRow(NEXT_HISTORY, 1, 2))
    duplicate, fresh = write(
        store,
        put(("a", "v"), producer=ProducerStamp(P, 1, 1)),
        put(("a", "v"), producer=ProducerStamp(P, 1, 2)),
    )
    assert (duplicate.history_id, fresh.history_id) == (HISTORY, NEXT_HISTORY)


def test_forgotten_producers() -> None:
    store, replica = new_memory(), new_memory()
    group = [
        put(("", "v"), producer=ProducerStamp(b"old", 1, 1)),
        put(("", "v"), producer=ProducerStamp(b"new", 1, 1)),
        ForgetProducers(1),
    ]
    replica.apply([store.commit([wrap(request) for request in group], now_ms=1000).batch])
    assert (store.find_producer(b"old"), store.find_producer(b"new").last.last_seq) == (None, 2)
    assert list(store.dump()) == list(replica.dump())
    assert isinstance(refuse(store, ForgetProducers(9)), OutOfRange)


def test_producers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kayos.storage.memory_group.PRODUCERS_MAX", 1)
    store = new_memory()
    write(store, put(("", "v"), producer=ProducerStamp(b"one", 1, 1)))
    assert isinstance(refuse(store, put(("", "v"), producer=ProducerStamp(b"two", 1, 1))), LimitReached)
    write(store, put(("", "v"), producer=ProducerStamp(b"one", 1, 2)))


# Marks

MARKS = [
    ("forward", CommitMark("c", Mark(HISTORY, 2)), None),
    ("the same again", CommitMark("c", Mark(HISTORY, 1)), None),
    ("backwards", CommitMark("c", BEGINNING), MarkBackwards),
    ("backwards by force", CommitMark("c", BEGINNING, forced=True), None),
    ("ahead of the log", CommitMark("c", Mark(HISTORY, 4)), MarkAhead),
    ("ahead by force", CommitMark("c", Mark(HISTORY, 4), forced=True), MarkAhead),
    ("unknown history", CommitMark("c", Mark(b"x" * 16, 2)), ResetRequired),
    ("drop", DropMark("c"), None),
    ("drop an unknown one", DropMark("d"), MarkNotFound),
]


@pytest.mark.parametrize(("control", "error"), [case[1:] for case in MARKS], ids=[case[0] for case in MARKS])
def test_marks(control: CommitMark | DropMark, error: type[Exception] | None) -> None:
    store = new_memory()
    write(store, AB, CommitMark("c", Mark(HISTORY, 1)))
    if error is not None:
        assert type(refuse(store, control)) is error
        assert store.list_marks() == [("c", Mark(HISTORY, 1))]
        return
    write(store, control)
    assert store.find_mark("c") == (None if isinstance(control, DropMark) else control.mark)


def test_a_mark_of_an_ended_history_rolls_back() -> None:
    store = new_memory()
    write(store, AB)
    store.take_over(TakeoverRow(NEXT_HISTORY, 2, 2))
    write(store, AB)
    error = refuse(store, CommitMark("c", Mark(HISTORY, 3)))
    assert isinstance(error, RollbackRequired)
    assert error.seq == 2


def test_marks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kayos.storage.memory_group.MARKS_MAX", 1)
    store = new_memory()
    write(store, CommitMark("c", BEGINNING))
    assert isinstance(refuse(store, CommitMark("d", BEGINNING)), LimitReached)
    write(store, CommitMark("c", Mark(HISTORY, 1)))


# Pins


def test_a_pin_keeps_its_snapshot() -> None:
    store = new_memory()
    write(store, put(("a", "1"), ("b", "1"), ("", "u")), delete("d"))
    write(store, CreatePin("p", 500), now_ms=2000)
    assert store.find_pin("p") == Pin("p", 5, 2000, 2500)
    snapshot = ["1 a=1", "2 b=1", "3 =u", "4 -d"]
    write(store, put(("a", "2"), ("a", "3"), ("c", "1")), delete("b"), Purge(9), Expire(0, 0, 9))
    assert log_of(store) == ["11 -a", "12 -c"]
    assert pin_rows(store, "p") == snapshot
    # a was replaced by the revision that was written; b by its tombstone, which the purge then took.
    assert retained_of(store) == [(1, 7), (2, 9), (3, 13), (4, 10)]
    write(store, EndPin("p", "released"))
    assert (retained_of(store), store.usage().retained) == ([], 0)
    with pytest.raises(SnapshotExpired):
        store.read_pin("p", 0, bytes_max=1)
    with pytest.raises(PinNotFound):
        store.read_pin("q", 0, bytes_max=1)


def test_what_a_pin_does_not_show_is_not_retained() -> None:
    store = new_memory()
    write(store, CreatePin("p", 1))
    write(store, put(("a", "1")))
    write(store, put(("a", "2")))
    assert retained_of(store) == []


def test_two_pins_need_different_rows() -> None:
    store = new_memory()
    for pin_id in "pq":
        write(store, put(("a", pin_id)))
        write(store, CreatePin(pin_id, 1))
    write(store, delete("a"))
    assert (pin_rows(store, "p"), pin_rows(store, "q")) == (["1 a=p"], ["3 a=q"])
    write(store, EndPin("q", "released"))
    assert (retained_of(store), pin_rows(store, "p")) == ([(1, 3)], ["1 a=p"])


@pytest.mark.parametrize(
    ("control", "error"),
    [
        (CreatePin("living", 1), FailedPrecondition),
        (CreatePin("ended", 1), FailedPrecondition),
        (RenewPin("none", 1), PinNotFound),
        (RenewPin("ended", 1), SnapshotExpired),
        (EndPin("none", "x"), PinNotFound),
        (EndPin("ended", "x"), SnapshotExpired),
    ],
)
def test_pins_refused(control: CreatePin | RenewPin | EndPin, error: type[Exception]) -> None:
    store = new_memory()
    write(store, CreatePin("living", 10), CreatePin("ended", 10), EndPin("ended", "why"))
    assert type(refuse(store, control)) is error


def test_a_pin_is_renewed() -> None:
    store = new_memory()
    write(store, CreatePin("p", 10), now_ms=1000)
    write(store, RenewPin("p", 50), now_ms=1005)
    assert store.find_pin("p") == Pin("p", 1, 1000, 1055)


def test_pins_are_bounded_and_ended_ones_forgotten() -> None:
    store = new_memory()
    write(store, *(CreatePin(f"p{n}", 1) for n in range(PINS_MAX)))
    assert isinstance(refuse(store, CreatePin("more", 1)), LimitReached)
    # The first to end is the first to be forgotten.
    write(store, EndPin("p7", "x"), CreatePin("more", 1))
    for n in range(ENDED_PINS_KEPT):
        write(store, EndPin("more" if n == 7 else f"p{n}", "x"))
    assert store.find_pin("p7") is None
    assert (len(store.list_pins()), store.usage().pins) == (ENDED_PINS_KEPT, 0)


# Removal


def test_purge() -> None:
    store = new_memory()
    write(store, AB)
    write(store, delete("a", "c"))
    assert store.find_purgeable(4, 10) == 4
    assert (store.find_purgeable(4, 1), store.find_purgeable(3, 9), store.find_purgeable(2, 9)) == (3, 3, 0)
    write(store, Purge(3))
    assert (log_of(store), store.get(b"a"), store.get(b"c").seq) == (["2 b=1", "4 -c"], None, 4)
    assert store.state.floors == Floors(purge_seq=3, removal_seq=5)
    write(store, Purge(1))
    assert store.state.floors == Floors(purge_seq=3, removal_seq=6)
    assert isinstance(refuse(store, Purge(7)), OutOfRange)
    assert isinstance(refuse(store, Trim(1)), WrongMode)


def test_trim() -> None:
    store = new_memory(LOG)
    write(store, AB, delete("a"), CreatePin("p", 1))
    write(store, Trim(2))
    assert (log_of(store), pin_rows(store, "p")) == (["3 -a"], ["1 a=1", "2 b=1", "3 -a"])
    assert store.state.floors == Floors(trim_seq=2, removal_seq=5)
    assert isinstance(refuse(store, Trim(6)), OutOfRange)
    assert isinstance(refuse(store, Purge(1)), WrongMode)


def test_expiry_by_ttl() -> None:
    store = new_memory()
    write(store, put(("a", "1"), ("b", "1"), ("", "1"), ("", "2"), ttl_ms={0: 10, 1: 20, 2: 10, 3: 20}))
    assert [record.expires_at_ms for record in decoded(store.read_log(0, bytes_max=EVERYTHING).records)] == [
        1010,
        1020,
        1010,
        1020,
    ]
    assert (store.find_expired(1009, 9), store.find_expired(1010, 1), store.find_expired(1010, 9)) == (
        None,
        (1010, 1),
        (1010, 3),
    )
    assert store.find_expired(5000, 9) == (1020, 4)
    (result,) = write(store, Expire(1010, 3, 0), now_ms=1010)
    assert (result.first_seq, result.last_seq) == (5, 6)
    assert log_of(store) == ["2 b=1", "4 =2", "5 -a"]
    assert store.state.floors == Floors(expired_ms=1010, expired_seq=3, removal_seq=6)
    assert isinstance(refuse(store, Expire(1011, 0, 0), now_ms=1000), OutOfRange)
    assert isinstance(refuse(store, Expire(0, 0, 7)), OutOfRange)


def test_expiry_by_age_covers_its_own_group() -> None:
    store = new_memory()
    write(store, put(("a", "1"), ("b", "1"), ("", "1")))
    write(store, put(("a", "2"), ("", "2")), Expire(0, 0, 5))
    # b's tombstone comes first, since b was older.
    assert log_of(store) == ["6 -b", "7 -a"]
    assert store.state.floors == Floors(aged_seq=5, removal_seq=8)
    assert (store.state.message_seq, store.state.high_seq) == (7, 8)


def test_expiry_in_mode_log_removes_all_puts() -> None:
    store = new_memory(LOG)
    write(store, put(("a", "1"), ("a", "2"), ttl_ms={1: 5}), delete("a"))
    write(store, Expire(1005, 2, 1), now_ms=1005)
    assert log_of(store) == ["3 -a"]


# Reading


def test_reading_in_pieces() -> None:
    store = new_memory()
    write(store, AB, delete("c"), put(("d", "1")), CommitMark("c", BEGINNING))
    size = len(store.read_log(0, bytes_max=1).records[0])
    cases = [
        # after, bytes, end, tombstones → through, end, complete, rows
        ((0, 1, None, True), (1, 5, False, ["1 a=1"])),
        ((0, 2 * size, None, True), (2, 5, False, ["1 a=1", "2 b=1"])),
        ((2, EVERYTHING, None, True), (5, 5, True, ["3 -c", "4 d=1"])),
        ((2, EVERYTHING, None, False), (5, 5, True, ["4 d=1"])),
        ((2, 1, None, False), (3, 5, False, [])),  # a tombstone that is left out was looked at all the same
        ((1, 2 * size, 3, False), (3, 3, True, ["2 b=1"])),
        ((1, 1, 3, True), (2, 3, False, ["2 b=1"])),
        ((5, 1, 99, True), (5, 5, True, [])),
    ]
    for (after, size_max, end, tombstones), (through, end_seq, complete, rows) in cases:
        piece = store.read_log(after, bytes_max=size_max, end_seq=end, tombstones=tombstones)
        assert (piece.after_seq, piece.through_seq, piece.end_seq, piece.complete) == (
            after,
            through,
            end_seq,
            complete,
        )
        assert brief(piece.records) == rows


def test_reading_by_time() -> None:
    store = new_memory()
    write(store, AB, now_ms=100)
    write(store, put(("b", "2")), now_ms=200)
    cases = [(0, 0), (100, 0), (101, 2), (200, 2), (201, 3)]
    assert [(at, store.find_seq_before_time(at)) for at, _ in cases] == cases


def test_headers_come_back() -> None:
    store = new_memory()
    write(store, with_headers(put(("a", "1")), trace="x"))
    assert store.get(b"a").headers == (("trace", b"x"),)


# Replicas


def test_apply_takes_repeats_and_refuses_holes() -> None:
    head, replica = new_memory(), new_memory()
    batches = [head.commit([AB], now_ms=now_ms).batch for now_ms in (1, 2, 3)]
    replica.apply([batches[0]])
    replica.apply([batches[0]])
    with pytest.raises(Gap) as gap:
        replica.apply([batches[2]])
    assert gap.value.fields == {"high_seq": 2, "previous_seq": 4}
    replica.save_epoch(2)
    with pytest.raises(StaleEpoch):
        replica.apply([batches[1]])
    assert replica.state.high_seq == 2


GOOD = encode_record(1, 1, 0, b"a", b"v")
DAMAGED_BATCHES = {
    "flipped": (GOOD[:-6] + bytes([GOOD[-6] ^ 1]) + GOOD[-5:],),
    "short": (b"abc",),
    "empty": (b"",),
    "repeated sequence": (GOOD, GOOD),
    "above the last": (encode_record(3, 1, 0, b"a", b"v"),),
    "not above the previous": (encode_record(0, 1, 0, b"a", b"v"),),
    "a control of another world": (encode_record(1, 3, 0, b"", b"\x92\xa1x\x80"),),
}


@pytest.mark.parametrize("records", DAMAGED_BATCHES.values(), ids=DAMAGED_BATCHES)
def test_a_damaged_batch_changes_nothing(records: tuple[bytes, ...]) -> None:
    replica = new_memory()
    before = list(replica.dump())
    with pytest.raises(DamagedRecord):
        replica.apply([Batch(1, 0, 2, 0, records)])
    assert list(replica.dump()) == before


def test_takeover_starts_where_the_log_ends() -> None:
    store = new_memory()
    with pytest.raises(FailedPrecondition):
        store.take_over(TakeoverRow(NEXT_HISTORY, 1, 2))
    store.take_over(TakeoverRow(NEXT_HISTORY, 0, 2))
    assert (store.state.takeover.current_history_id, store.state.epoch) == (NEXT_HISTORY, 2)


def test_epoch_and_commit_point_never_fall() -> None:
    store = new_memory()
    for value in (5, 3):
        store.save_epoch(value)
        store.save_commit_point(value)
    assert (store.state.epoch, store.state.commit_point) == (5, 5)


# Catching up


def eventful_upstream() -> tuple[MemoryStore, MemoryStore]:
    """An upstream, and a replica that stopped listening half way."""
    upstream, replica = new_memory(), new_memory()
    early = [put(("a", "1"), ("b", "1"), ("", "u"), ttl_ms={2: 5}), delete("d"), CreatePin("p", 9)]
    replica.apply([upstream.commit([wrap(request) for request in early], now_ms=1000).batch])
    write(
        upstream,
        put(("a", "2"), ("c", "1"), producer=ProducerStamp(P, 1, 1)),
        Expire(1005, 3, 0),
        CreatePin("q", 9),
        delete("c"),
        CommitMark("c", Mark(HISTORY, 3)),
        now_ms=1005,
    )
    return upstream, replica


def test_catch_up_from_the_middle_and_from_nothing() -> None:
    upstream, replica = eventful_upstream()
    for store in (replica, MemoryStore(COMPACT)):
        catch_up(store, upstream)
        assert list(store.dump()) == list(upstream.dump())
        assert (pin_rows(store, "p"), pin_rows(store, "q")) == (pin_rows(upstream, "p"), pin_rows(upstream, "q"))


def test_a_purge_in_between_needs_a_reset() -> None:
    upstream, replica = eventful_upstream()
    write(upstream, Purge(upstream.state.high_seq))
    with pytest.raises(ResetRequired):
        catch_up(replica, upstream)
    fresh = MemoryStore(COMPACT)
    catch_up(fresh, upstream)
    assert list(fresh.dump()) == list(upstream.dump())


def test_a_store_that_catches_up_is_closed_to_others() -> None:
    upstream, replica = eventful_upstream()
    start_seq = replica.state.high_seq
    replica.apply_catch_up(upstream.read_catch_up(start_seq, start_seq=start_seq, bytes_max=1))
    assert (replica.state.sync.phase, replica.state.sync.start_seq) == (SyncPhase.CATCHING_UP, start_seq)
    for read in (
        lambda: replica.get(b"a"),
        lambda: replica.read_log(0, bytes_max=1),
        lambda: replica.read_pin("p", 0, bytes_max=1),
        lambda: replica.read_catch_up(0, start_seq=0, bytes_max=1),
        lambda: replica.find_diverged(0, rows_max=1),
        lambda: replica.find_restorable([], 1, bytes_max=1),
    ):
        with pytest.raises(Unavailable):
            read()
    with pytest.raises(FailedPrecondition):
        replica.commit([AB], now_ms=1)
    with pytest.raises(FailedPrecondition):
        replica.apply([Batch(1, start_seq, 99, 0, ())])
    with pytest.raises(Gap):
        replica.apply_catch_up(upstream.read_catch_up(0, start_seq=0, bytes_max=1))


def test_the_trimmed_front_goes_in_mode_log_too() -> None:
    upstream, replica = new_memory(LOG), new_memory(LOG)
    replica.apply([upstream.commit([AB], now_ms=1).batch])
    write(upstream, AB, Trim(3))
    catch_up(replica, upstream)
    assert log_of(replica) == ["4 b=1"]
    assert list(replica.dump()) == list(upstream.dump())


def test_a_copy_is_independent() -> None:
    store = new_memory()
    write(store, AB, CreatePin("p", 1))
    copy = store.copy()
    before = list(copy.dump())
    write(store, put(("a", "2")), CommitMark("c", BEGINNING), EndPin("p", "x"), put(("", "v")))
    assert list(copy.dump()) == before
    assert write(copy, put(("a", "9")))[0].first_seq == 4


@pytest.mark.parametrize("control_class", NAMES, ids=lambda control_class: control_class.__name__)
def test_controls_travel(control_class: type) -> None:
    samples = [
        CommitMark("c", Mark(HISTORY, 7, 3, 9), forced=True),
        DropMark("c"),
        CreatePin("p", 5),
        RenewPin("p", 6),
        EndPin("p", "why"),
        Purge(2**64 - 1),
        Trim(1),
        Expire(1, 2, 3),
        ForgetProducers(4),
    ]
    (sample,) = [sample for sample in samples if type(sample) is control_class]
    encoded = encode_control(sample)
    assert decode_control(encoded) == sample
    for at in range(len(encoded)):
        with pytest.raises(DamagedRecord):
            decode_control(encoded[:at])
    with pytest.raises(DamagedRecord):
        decode_control(encoded + b"\x00")
