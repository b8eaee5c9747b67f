"""A copy taken back to where two histories part, and brought to the other one: told case by case, on both stores."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kayos.errors import DamagedRecord, FailedPrecondition, Gap, KayosError, OutOfRange, ResetRequired, Unavailable
from kayos.model.catch_up import Rollback
from kayos.model.control import CommitMark, Control, CreatePin, EndPin, Expire, Purge, Trim
from kayos.model.mark import Mark
from kayos.model.producer import ProducerStamp
from kayos.model.record import encode_record
from kayos.model.sync import SyncPhase, SyncState
from kayos.model.takeover import TakeoverRow, TakeoverTable
from kayos.model.write import WriteRequest
from kayos.storage.check import ContentCheck, check_store
from kayos.storage.interface import Identity, Store
from kayos.storage.lmdb_store import LmdbStore, StoreOptions
from kayos.storage.memory import MemoryStore

from .helpers import (
    COMPACT,
    EVERYTHING,
    HISTORY,
    LOG,
    NEXT_HISTORY,
    brief,
    catch_up,
    delete,
    find_rollback,
    log_of,
    new_memory,
    put,
    retained_of,
    wrap,
    write,
)

RIVAL_HISTORY = b"history-rival-03"
Requests = list[WriteRequest | Control]
Make = Callable[[Identity], Store]


@pytest.fixture(params=["lmdb", "memory"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes the store under test; one on disk must pass the check whenever it was closed."""
    made: list[LmdbStore] = []

    def make(identity: Identity = COMPACT) -> Store:
        if request.param == "memory":
            return MemoryStore(identity)
        made.append(LmdbStore.open(tmp_path / str(len(made)), identity, StoreOptions(map_bytes=1 << 28)))
        return made[-1]

    yield make
    for store in made:
        store.close()
        assert check_store(store.directory).problems == ()


def check(store: Store) -> None:
    if isinstance(store, LmdbStore):
        with store.env.reading() as txn:
            assert list(ContentCheck(store.env, txn).find_problems()) == []


def diverged(
    make: Make, identity: Identity, shared: Requests, own: Requests, other: Requests
) -> tuple[Store, MemoryStore, int]:
    """(a replica that wrote `own` after `shared`, an upstream that wrote `other`, where they part)."""
    upstream, replica = new_memory(identity), make(identity)
    replica.adopt_takeover(upstream.state.takeover, 1)
    if shared:
        replica.apply([upstream.commit([wrap(each) for each in shared], now_ms=1000).batch])
    shared_seq = replica.state.high_seq
    replica.take_over(TakeoverRow(RIVAL_HISTORY, shared_seq, 2))
    for each in own:
        write(replica, each, now_ms=5000)
    upstream.take_over(TakeoverRow(NEXT_HISTORY, shared_seq, 3))
    for each in other:
        write(upstream, each, now_ms=2000)
    return replica, upstream, shared_seq


P = ProducerStamp(b"producer", 1, 1)
AB = [put(("a", "1"), ("b", "1"))]
PINNED: Requests = [put(("a", "1"), ("b", "1")), CreatePin("p", 99)]

# name, shared, own, the upstream's, what the replica's log is right after the rollback
CASES: list[tuple[str, Requests, Requests, Requests, list[str]]] = [
    ("a key overwritten here", AB, [put(("a", "x"))], [put(("c", "1"))], ["1 a=1", "2 b=1"]),
    ("a key overwritten on both", AB, [put(("a", "x"))], [put(("a", "2"))], ["2 b=1"]),
    ("a key overwritten there", AB, [put(("c", "x"))], [put(("a", "2"))], ["1 a=1", "2 b=1"]),
    ("a key deleted here", AB, [delete("a")], [put(("c", "1"))], ["1 a=1", "2 b=1"]),
    ("a key deleted there", AB, [put(("a", "x"))], [delete("a")], ["2 b=1"]),
    ("a key deleted on both", AB, [delete("a")], [delete("a")], ["2 b=1"]),
    ("a key that only this branch has", AB, [put(("n", "x"))], [put(("m", "1"))], ["1 a=1", "2 b=1"]),
    ("a key new on both", AB, [put(("n", "x"))], [put(("n", "1"))], ["1 a=1", "2 b=1"]),
    ("many revisions here", AB, [put(("a", "x")), put(("a", "y")), delete("a")], [AB[0]], ["2 b=1"]),
    (
        "the other branch is shorter",
        AB,
        [put(("a", "x"), ("b", "x"), ("n", "x"))],
        [put(("m", "1"))],
        ["1 a=1", "2 b=1"],
    ),
    ("nothing there yet", AB, [put(("a", "x"))], [], ["1 a=1", "2 b=1"]),
    ("a shared tombstone overwritten", [delete("a")], [put(("a", "x"))], [put(("c", "1"))], ["1 -a"]),
    ("unkeyed messages", [put(("", "u"))], [put(("", "x"), ("", "y"))], [put(("", "v"))], ["1 =u"]),
    ("nothing shared", [], [put(("a", "x"), ("", "y"))], [put(("a", "1"))], []),
    ("only controls here", AB, [CommitMark("c", Mark(HISTORY, 1))], [put(("c", "1"))], ["1 a=1", "2 b=1"]),
    ("marks", [*AB, CommitMark("c", Mark(HISTORY, 1))], [CommitMark("c", Mark(HISTORY, 2))], [], ["1 a=1", "2 b=1"]),
    ("producers", AB, [put(("a", "x"), producer=P)], [put(("c", "1"), producer=P)], ["1 a=1", "2 b=1"]),
    (
        "what expires",
        [put(("a", "1"), ("", "u"), ttl_ms={0: 5000, 1: 9000})],
        [put(("a", "x"), ("n", "x"), ttl_ms={0: 50, 1: 60})],
        [put(("c", "1"))],
        ["1 a=1", "2 =u"],
    ),
    ("a pin's rows were replaced here", PINNED, [put(("a", "x"))], [put(("c", "1"))], ["1 a=1", "2 b=1"]),
    ("a pin's rows were replaced there", PINNED, [put(("c", "x"))], [put(("a", "2"))], ["1 a=1", "2 b=1"]),
    ("a pin's rows were replaced on both", PINNED, [put(("a", "x"))], [delete("a")], ["2 b=1"]),
    ("a pin ended here", [*PINNED, put(("a", "2"))], [EndPin("p", "x"), put(("b", "x"))], [], ["2 b=1", "4 a=2"]),
    ("a pin ended there", [*PINNED, put(("a", "2"))], [put(("b", "x"))], [EndPin("p", "x")], ["2 b=1", "4 a=2"]),
    (
        "a pin of this branch",
        AB,
        [CreatePin("q", 9), put(("a", "x"))],
        [CreatePin("r", 9), put(("b", "2"))],
        ["1 a=1", "2 b=1"],
    ),
    (
        "long keys",
        [put(("k" * 600, "1"), ("k" * 601, "1"))],
        [put(("k" * 600, "x"))],
        [put(("c", "1"))],
        ["1 long", "2 long"],
    ),
    ("purged there, below", [delete("z"), *AB], [put(("a", "x"))], [Purge(1)], ["1 -z", "2 a=1", "3 b=1"]),
]


@pytest.mark.parametrize(("shared", "own", "other", "left"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
@pytest.mark.parametrize("way", ["in place", "in a clone"])
def test_rollback_and_catch_up(
    make: Make, way: str, shared: Requests, own: Requests, other: Requests, left: list[str]
) -> None:
    # Given two logs that part
    replica, upstream, shared_seq = diverged(make, COMPACT, shared, own, other)
    if way == "in a clone":
        replica.begin_copy(is_clone=True)
    # When the replica is rolled back
    rollback = find_rollback(replica, upstream, shared_seq)
    replica.roll_back(rollback)
    # Then only what they share is left, and the copy is closed until it has caught up
    rows = brief(row for table, row in replica.dump() if table == "log")
    assert [row.replace("k" * 601 + "=1", "long").replace("k" * 600 + "=1", "long") for row in rows] == left
    state = replica.state
    assert state.sync == SyncState(
        SyncPhase.CATCHING_UP, shared_seq, shared_seq, rollback.end_seq, rollback.end_seq, rollback.history_id
    )
    assert (state.high_seq, state.message_seq) == (shared_seq, int(left[-1].split()[0]) if left else 0)
    assert [row.history_id for row in state.takeover.rows] == ([HISTORY] if shared_seq else [])
    with pytest.raises(Unavailable):
        replica.get(b"a")
    check(replica)
    # And once it has, it is what its upstream is.
    catch_up(replica, upstream, all_retained=replica.state.lacks_retained)
    assert list(replica.dump()) == list(upstream.dump())
    assert retained_of(replica) == retained_of(upstream)
    assert replica.state.sync.is_ready and not replica.state.lacks_retained
    check(replica)


def test_mode_log_asks_for_nothing(make: Make) -> None:
    shared: Requests = [put(("a", "1"), ("a", "2"))]
    replica, upstream, shared_seq = diverged(make, LOG, shared, [put(("a", "x"))], [put(("a", "3")), Trim(1)])
    assert replica.find_diverged(shared_seq, rows_max=0) == ()
    rollback = find_rollback(replica, upstream, shared_seq)
    assert rollback == Rollback(2, (), NEXT_HISTORY, 4)
    replica.roll_back(rollback)
    assert brief(row for table, row in replica.dump() if table == "log") == ["1 a=1", "2 a=2"]
    catch_up(replica, upstream, all_retained=True)
    assert log_of(replica) == ["2 a=2", "3 a=3"]
    assert list(replica.dump()) == list(upstream.dump())


def test_what_diverged_and_what_can_be_restored(make: Make) -> None:
    store = make(COMPACT)
    store.take_over(TakeoverRow(HISTORY, 0, 1))
    write(store, put(("a", "1"), ("b", "1"), ("", "u"), ("c", "1")), delete("b"), put(("a", "2")))
    assert log_of(store) == ["3 =u", "4 c=1", "5 -b", "6 a=2"]
    assert store.find_diverged(0, rows_max=4) == (b"c", b"b", b"a")
    assert store.find_diverged(4, rows_max=2) == (b"b", b"a")
    assert store.find_diverged(0, rows_max=3) is None
    assert store.find_diverged(6, rows_max=0) == ()
    keys = (b"none", b"b", b"c", b"a")
    found = store.find_restorable(keys, 5, bytes_max=EVERYTHING)
    assert (found.history_id, found.end_seq, found.answered) == (HISTORY, 6, 4)
    assert brief(found.records) == ["5 -b", "4 c=1"]
    few = store.find_restorable(keys, 5, bytes_max=1)
    assert (few.answered, few.records) == (1, ())
    rest = store.find_restorable(keys[1:], 5, bytes_max=1)
    assert (rest.answered, brief(rest.records)) == (1, ["5 -b"])


def refusals() -> dict[str, tuple[Callable[[Rollback], Rollback], type[KayosError]]]:
    def with_records(*records: bytes) -> Callable[[Rollback], Rollback]:
        return lambda rollback: replace(rollback, records=(*rollback.records, *records))

    sound = encode_record(1, 1, 0, b"new", b"v")
    return {
        "nothing to undo": (lambda rollback: replace(rollback, to_seq=4), FailedPrecondition),
        "below the commit point": (lambda rollback: replace(rollback, to_seq=1, records=()), FailedPrecondition),
        "a record twice": (lambda rollback: replace(rollback, records=rollback.records * 2), FailedPrecondition),
        "a damaged record": (with_records(sound[:-1] + b"?"), DamagedRecord),
        "a short record": (with_records(b"?"), DamagedRecord),
        "a control": (with_records(encode_record(1, 3, 0, b"", b"")), DamagedRecord),
        "a record without a key": (with_records(encode_record(1, 1, 0, b"", b"v")), FailedPrecondition),
        "a record above": (with_records(encode_record(3, 1, 0, b"new", b"v")), FailedPrecondition),
        "a record at 0": (with_records(encode_record(0, 1, 0, b"new", b"v")), FailedPrecondition),
        "a key that lives": (with_records(encode_record(1, 1, 0, b"b", b"v")), FailedPrecondition),
        "a sequence that is taken": (with_records(encode_record(2, 1, 0, b"new", b"v")), FailedPrecondition),
    }


@pytest.mark.parametrize(("change", "error"), refusals().values(), ids=refusals())
def test_a_refused_rollback_changes_nothing(
    make: Make, change: Callable[[Rollback], Rollback], error: type[KayosError]
) -> None:
    replica, upstream, shared_seq = diverged(make, COMPACT, AB, [put(("a", "x"), ("n", "x"))], [put(("c", "1"))])
    replica.save_commit_point(2)
    before, state = list(replica.dump()), replica.state
    with pytest.raises(error):
        replica.roll_back(change(find_rollback(replica, upstream, shared_seq)))
    assert (list(replica.dump()), replica.state) == (before, state)


@pytest.mark.parametrize("removal", [Purge(0), Expire(0, 0, 0)], ids=["purge", "expiry"])
def test_what_was_removed_cannot_be_undone(make: Make, removal: Control) -> None:
    replica, upstream, shared_seq = diverged(make, COMPACT, AB, [put(("a", "x")), removal], [])
    with pytest.raises(FailedPrecondition):
        replica.roll_back(find_rollback(replica, upstream, shared_seq))
    assert replica.state.sync.is_ready


def test_a_rolled_back_copy_takes_no_half_of_the_retained_rows(make: Make) -> None:
    """They were all dropped; only the pieces of a neighbour that sends all of them make the copy whole."""
    shared: Requests = [*PINNED, put(("a", "2"))]
    replica, upstream, shared_seq = diverged(make, COMPACT, shared, [put(("b", "x"))], [put(("b", "2"))])
    replica.roll_back(find_rollback(replica, upstream, shared_seq))
    assert replica.state.lacks_retained and not replica.usage().retained
    if isinstance(replica, LmdbStore):
        replica.reopen()
        assert replica.state.lacks_retained
    with pytest.raises(FailedPrecondition):
        catch_up(replica, upstream, bytes_max=EVERYTHING)
    catch_up(replica, upstream, all_retained=True)
    assert retained_of(replica) == retained_of(upstream) == [(1, 4), (2, 5)]


def test_all_retained_rows_replace_those_that_were_there(make: Make) -> None:
    """The pin had ended, and its rows were not freed yet."""
    upstream, replica = new_memory(), make(COMPACT)
    groups: list[Requests] = [[*PINNED], [put(("a", "2"))], [EndPin("p", "released")]]
    replica.apply([upstream.commit([wrap(each) for each in group], now_ms=1).batch for group in groups])
    write(upstream, CreatePin("q", 9), put(("b", "2")))
    catch_up(replica, upstream, all_retained=True)
    assert retained_of(replica) == retained_of(upstream) == [(2, 7)]
    assert replica.usage().retained == 1


def test_a_purge_above_the_divergence_point_needs_a_copy(make: Make) -> None:
    other: Requests = [delete("a"), Purge(3)]
    replica, upstream, shared_seq = diverged(make, COMPACT, AB, [put(("b", "x"))], other)
    replica.roll_back(find_rollback(replica, upstream, shared_seq))
    before = list(replica.dump())
    with pytest.raises(ResetRequired):
        catch_up(replica, upstream, bytes_max=EVERYTHING, all_retained=True)
    assert list(replica.dump()) == before
    replica.begin_copy()
    catch_up(replica, upstream)
    assert list(replica.dump()) == list(upstream.dump())


# The pieces themselves


def test_pieces_that_do_not_fit_change_nothing(make: Make) -> None:
    upstream, replica = new_memory(), make(COMPACT)
    write(upstream, *AB, CreatePin("p", 9))
    write(upstream, put(("a", "2")))
    whole = upstream.read_catch_up(0, start_seq=0, bytes_max=EVERYTHING)
    assert whole.tables is not None and whole.tables.retained
    torn = replace(whole.tables.retained[0], record=b"x" * 40)
    control = encode_record(4, 3, 0, b"", b"")
    table = TakeoverTable((TakeoverRow(HISTORY, 9, 1),))
    cases = [
        (replace(whole, slice=replace(whole.slice, after_seq=1)), Gap),
        (replace(whole, tables=replace(whole.tables, end_seq=9)), FailedPrecondition),
        (replace(whole, slice=replace(whole.slice, through_seq=9)), FailedPrecondition),
        (replace(whole, tables=replace(whole.tables, retained_from_seq=1)), FailedPrecondition),
        (replace(whole, tables=replace(whole.tables, takeover=table)), FailedPrecondition),
        (replace(whole, tables=replace(whole.tables, retained=(torn,))), DamagedRecord),
        (replace(whole, slice=replace(whole.slice, records=whole.slice.records[::-1])), DamagedRecord),
        (replace(whole, slice=replace(whole.slice, records=(control,))), DamagedRecord),
    ]
    before, state = list(replica.dump()), replica.state
    for piece, error in cases:
        with pytest.raises(error):
            replica.apply_catch_up(piece)
        assert (list(replica.dump()), replica.state) == (before, state)
    with pytest.raises(OutOfRange):
        upstream.read_catch_up(5, start_seq=5, bytes_max=1)
    replica.apply_catch_up(whole)
    assert list(replica.dump()) == list(upstream.dump())


def test_a_piece_says_what_it_is_of(make: Make) -> None:
    store = make(COMPACT)
    assert store.read_catch_up(0, start_seq=0, bytes_max=1).history_id == b""
    store.take_over(TakeoverRow(HISTORY, 0, 1))
    write(store, *AB, CreatePin("p", 9))
    write(store, put(("a", "2")))
    store.take_over(TakeoverRow(NEXT_HISTORY, 4, 2))
    first = store.read_catch_up(0, start_seq=0, bytes_max=1)
    assert (first.history_id, first.slice.through_seq, first.slice.end_seq, first.tables) == (HISTORY, 2, 4, None)
    last = store.read_catch_up(4, start_seq=4, bytes_max=1)
    assert last.tables is not None
    assert (last.tables.retained_from_seq, last.tables.retained) == (4, ())
    every = store.read_catch_up(4, start_seq=4, bytes_max=1, all_retained=True)
    assert every.tables is not None
    assert (every.tables.retained_from_seq, len(every.tables.retained)) == (0, 1)
