"""What a downstream goes through, event by event: from Hello to a prefix of its upstream's log, then its batches."""

import pytest

from kayos.limits import LINK_SILENT_TICKS_MAX
from kayos.model.chain import ChainView, MemberState, Role
from kayos.model.record import Kind, encode_record
from kayos.model.takeover import TakeoverRow, TakeoverTable
from kayos.model.write import Batch
from kayos.replica.effects import (
    AdoptTable,
    Apply,
    ApplyPiece,
    ApplyRollback,
    BeginCopy,
    CancelCopy,
    FetchView,
    FindDiverged,
    Release,
    TakeOver,
)
from kayos.replica.events import DivergedFound, Done, Failed, LinkLost, LinkReady, Tick, Trouble, ViewChanged
from kayos.storage.memory import MemoryStore
from kayos.stream.messages import (
    Ack,
    AskPiece,
    AskRecords,
    Bye,
    CatchUp,
    Continue,
    Hello,
    Piece,
    Progress,
    Records,
    RefusalCode,
    Refuse,
    Reset,
    RollBack,
    Sent,
    Wedge,
)
from tests.replica.driven import SHARD, Driven, Links, chain, only
from tests.storage.helpers import log_of, put, write

# Later than the epochs in which the stores were written.
EPOCH = 5
HISTORY = b"a" * 16
RIVAL = b"r" * 16
TABLE = TakeoverTable((TakeoverRow(HISTORY, 0, 1),))
AFTER = TakeoverTable((*TABLE.rows, TakeoverRow(b"n" * 16, 2, 2)))


def batch(previous_seq: int, *, epoch: int = EPOCH) -> Batch:
    seq = previous_seq + 1
    return Batch(epoch, previous_seq, seq, 1, (encode_record(seq, Kind.PUT, 1, b"k%d" % seq, b"v"),))


def store_of(*keys: str, table: TakeoverTable = TABLE, commit_point: int = 0) -> MemoryStore:
    """A copy whose histories were written by another node, one message per key."""
    store = MemoryStore(SHARD)
    store.take_over(table.rows[0])
    for key in keys:
        for row in table.rows[1:]:
            if row.start_seq == store.state.high_seq:
                store.take_over(row)
        write(store, put((key, f"{key}-value-that-fills-a-piece-of-its-own-{'x' * 20}")))
    store.save_commit_point(commit_point)
    return store


def follower(store: MemoryStore | None = None, *, view: ChainView | None = None, node: str = "b") -> tuple[Driven, int]:
    """One that has just said Hello to `a`, and the session's number."""
    driven = Driven(node, store)
    driven.do(ViewChanged(view or chain(EPOCH, "ab")))
    return driven, session_of(driven)


def streaming(store: MemoryStore | None = None, **settings: ChainView) -> tuple[Driven, int]:
    driven, session = follower(store or store_of(), **settings)
    driven.hear_up("a", Continue(session, EPOCH, driven.facts.takeover))
    return driven, session


def session_of(driven: Driven) -> int:
    return only(driven.seen, Hello)[-1].session


# Hello


def test_hello_tells_what_is_fsynced() -> None:
    driven, _ = follower(store_of("x", "y", commit_point=1), view=chain(9, "ab"))
    (hello,) = only(driven.seen, Hello)
    assert (hello.node, hello.incarnation, hello.epoch) == ("b", b"life-1", 9)
    assert (hello.takeover, hello.high_seq, hello.commit_point, hello.sync.is_ready) == (TABLE, 2, 1, True)


def test_hello_waits_until_the_writer_has_nothing_to_do() -> None:
    driven, session = streaming()
    driven.hear_up("a", Sent(session, EPOCH, batch(0), {}))
    assert only(driven.feed(LinkLost("a")), Hello) == []
    (hello,) = only(driven.work(), Hello)
    assert (hello.high_seq, hello.session) == (1, session + 1)


def test_a_new_connection_is_a_new_session() -> None:
    driven, session = streaming()
    (hello,) = only(driven.feed(LinkReady("a")), Hello)
    assert hello.session == session + 1
    # What the old one still brings is not heard: neither a verdict, nor a batch when the new one streams.
    assert driven.hear_up("a", Continue(session, EPOCH, TABLE)) == []
    driven.hear_up("a", Continue(hello.session, EPOCH, TABLE))
    assert driven.hear_up("a", Sent(session, EPOCH, batch(0), {})) == []
    assert only(driven.hear_up("a", Sent(hello.session, EPOCH, batch(0), {})), Apply)
    assert driven.feed(LinkReady("x")) == []


@pytest.mark.parametrize(
    ("code", "epoch", "fetches"),
    [
        (RefusalCode.STALE_EPOCH, EPOCH + 1, True),
        (RefusalCode.STALE_EPOCH, EPOCH, False),
        (RefusalCode.NOT_IN_CHAIN, EPOCH + 1, False),
    ],
)
def test_a_refusal_of_a_later_epoch_makes_it_fetch_the_view(code: RefusalCode, epoch: int, fetches: bool) -> None:
    driven, session = follower()
    effects = driven.hear_up("a", Refuse(session, epoch, code, "no"))
    assert effects == ([FetchView(epoch)] if fetches else [])


@pytest.mark.parametrize("is_streaming", [True, False])
def test_silence_begins_another_session(is_streaming: bool) -> None:
    driven, session = streaming() if is_streaming else follower()
    for _ in range(LINK_SILENT_TICKS_MAX):
        assert only(driven.do(Tick()), Hello) == []
    (hello,) = only(driven.do(Tick()), Hello)
    assert hello.session == session + 1


def test_a_sign_of_life_ends_the_silence() -> None:
    driven, session = streaming()
    for _ in range(3 * LINK_SILENT_TICKS_MAX):
        driven.do(Tick())
        driven.hear_up("a", Progress(session, EPOCH, 0, {}))
    assert session_of(driven) == session


# Batches


def test_no_batch_is_taken_before_the_table_is_stored() -> None:
    driven, session = follower(store_of("x", "y"))
    assert driven.hear_up("a", Continue(session, EPOCH, AFTER)) == [AdoptTable(AFTER, EPOCH)]
    assert driven.hear_up("a", Sent(session, EPOCH, batch(2), {})) == []
    # Stored, it says Hello again; the same table then opens the stream.
    (hello,) = only(driven.work(), Hello)
    assert hello.takeover == AFTER
    driven.hear_up("a", Continue(hello.session, EPOCH, AFTER))
    assert only(driven.hear_up("a", Sent(hello.session, EPOCH, batch(2), {})), Apply)


def test_a_batch_is_acknowledged_when_it_is_fsynced() -> None:
    driven, session = streaming()
    assert only(driven.hear_up("a", Sent(session, EPOCH, batch(0), {})), Ack) == []
    (ack,) = only(driven.work(), Ack)
    assert (ack.session, ack.epoch, ack.synced_seq, ack.durable) == (session, EPOCH, 1, {"b": 1})


def test_a_repeat_is_acknowledged_again_and_not_applied() -> None:
    driven, session = streaming()
    driven.hear_up("a", Sent(session, EPOCH, batch(0), {}))
    driven.work()
    effects = driven.hear_up("a", Sent(session, EPOCH, batch(0), {}))
    assert len(only(effects, Ack)) == 1 and only(effects, Apply) == []


def test_a_gap_begins_another_session() -> None:
    driven, session = streaming()
    effects = driven.hear_up("a", Sent(session, EPOCH, batch(3), {}))
    assert only(effects, Apply) == [] and only(effects, Hello)[0].session == session + 1


def test_progress_tells_of_a_batch_that_never_came() -> None:
    driven, session = streaming()
    assert driven.hear_up("a", Progress(session, EPOCH, 0, {})) == []
    assert len(only(driven.hear_up("a", Progress(session, EPOCH, 1, {})), Hello)) == 1


def test_another_epochs_words_are_not_heard() -> None:
    driven, session = streaming()
    assert driven.hear_up("a", Sent(session, EPOCH + 1, batch(0, epoch=EPOCH + 1), {})) == []
    assert driven.hear_up("x", Sent(session, EPOCH, batch(0), {})) == []


def test_a_tail_releases_what_it_knows_to_be_committed() -> None:
    driven, session = streaming(view=chain(EPOCH, "ab"))
    driven.hear_up("a", Sent(session, EPOCH, batch(0), {}))
    assert only(driven.work(), Release) == []
    assert only(driven.hear_up("a", Progress(session, EPOCH, 1, {"a": 1})), Release) == [Release(1)]


def test_a_batch_without_room_is_offered_again_and_those_behind_it_wait_in_their_order() -> None:
    driven, session = streaming()
    for seq in (0, 1):
        driven.hear_up("a", Sent(session, EPOCH, batch(seq), {}))
    first, second = driven.orders
    driven.orders.clear()
    for order in (first, second):
        driven.feed(Failed(order, Trouble.RETRY, "no room", driven.facts))
    assert driven.replica.report().problem == "no room"
    # Nothing else happens meanwhile that would skip them: no Hello, no acknowledgement of them.
    assert only(driven.feed(LinkLost("a")), Hello) == []
    assert only(driven.feed(Tick()), Apply) == [first, second]
    (hello,) = only(driven.work(), Hello)
    assert hello.high_seq == 2


def test_bye_begins_another_session() -> None:
    driven, session = streaming()
    assert len(only(driven.hear_up("a", Bye(session, EPOCH, "the log was changed")), Hello)) == 1


# Catching up


def test_a_member_takes_a_catch_up_of_one_piece_in_place() -> None:
    source = store_of("x")
    driven, session = follower()
    (ask,) = only(driven.hear_up("a", CatchUp(session, EPOCH)), AskPiece)
    assert (ask.after_seq, ask.start_seq) == (0, 0)
    piece = source.read_catch_up(0, start_seq=0, bytes_max=1000)
    effects = driven.hear_up("a", Piece(session, EPOCH, piece))
    assert effects == [ApplyPiece(session, piece)]
    (hello,) = only(driven.work(), Hello)
    assert (hello.high_seq, hello.takeover) == (1, TABLE)


@pytest.mark.parametrize(
    ("view", "is_beside"),
    [(chain(EPOCH, "ab"), True), (chain(EPOCH, "a", learner="b"), False)],
    ids=["member", "newcomer"],
)
def test_a_longer_one_goes_into_a_copy_beside_a_members_store(view: ChainView, is_beside: bool) -> None:
    """What a member has acknowledged stays promotable until the copy is whole; a newcomer has acknowledged nothing."""
    links = Links("ab", {"a": store_of("x", "y", "z", "k", "l"), "b": store_of("x")})
    links.adopt(view)
    done = list(links.said("b"))
    assert bool(only(done, BeginCopy)) == is_beside
    assert all(copy.is_clone for copy in only(done, BeginCopy))
    assert len(only(done, ApplyPiece)) > 1
    assert log_of(links["b"].store) == log_of(links["a"].store)
    assert links["b"].replica.report().phase == "streaming"


def test_a_member_in_the_middle_of_a_copy_becomes_head_with_the_store_it_had() -> None:
    source = store_of("x", "y", "z", "k")
    driven, session = follower(store_of("x"))
    driven.hear_up("a", CatchUp(session, EPOCH))
    driven.hear_up("a", Piece(session, EPOCH, source.read_catch_up(1, start_seq=1, bytes_max=60)))
    driven.work()
    assert driven.facts.is_copying and not driven.facts.sync.is_ready
    effects = driven.do(ViewChanged(chain(EPOCH + 1, "b")))
    assert len(only(effects, CancelCopy)) == 1 and only(effects, TakeOver) == [TakeOver(EPOCH + 1, 1)]
    assert [line.split("=")[0] for line in log_of(driven.store)] == ["1 x"]


def test_every_piece_is_asked_for_once_and_the_next_is_under_way_while_one_is_applied() -> None:
    links = Links("ab", {"a": store_of("x", "y", "z", "k", "l")})
    links.adopt(chain(EPOCH, "a", learner="b"))
    asked = [ask.after_seq for ask in only(list(links.said("b")), AskPiece)]
    assert asked == [0, 1, 2, 3, 4]
    done = [effect for effect in links.said("b") if only([effect], AskPiece) or isinstance(effect, ApplyPiece)]
    assert [type(effect) is ApplyPiece for effect in done[:4]] == [False, True, False, True]


def test_a_cut_catch_up_goes_on_where_it_was() -> None:
    source = store_of("x", "y", "z")
    driven, session = follower(view=chain(EPOCH, "a", learner="b"))
    driven.hear_up("a", CatchUp(session, EPOCH))
    driven.hear_up("a", Piece(session, EPOCH, source.read_catch_up(0, start_seq=0, bytes_max=60)))
    driven.work()
    (hello,) = only(driven.feed(LinkLost("a")), Hello)
    assert (hello.sync.through_seq, hello.sync.source_history) == (1, HISTORY)
    (ask,) = only(driven.hear_up("a", CatchUp(hello.session, EPOCH)), AskPiece)
    assert (ask.after_seq, ask.start_seq) == (1, 0)


def test_a_piece_that_was_not_asked_for_is_not_taken() -> None:
    source = store_of("x", "y")
    driven, session = follower()
    driven.hear_up("a", CatchUp(session, EPOCH))
    assert driven.hear_up("a", Piece(session, EPOCH, source.read_catch_up(1, start_seq=1, bytes_max=1000))) == []


def test_a_piece_that_tells_of_missed_deletes_begins_a_full_copy() -> None:
    source = store_of("x")
    driven, session = follower()
    driven.hear_up("a", CatchUp(session, EPOCH))
    (order,) = driven.hear_up("a", Piece(session, EPOCH, source.read_catch_up(0, start_seq=0, bytes_max=1000)))
    driven.orders.clear()
    effects = driven.feed(Failed(order, Trouble.RESET, "deletes were missed", driven.facts))
    assert effects == [BeginCopy(session, is_clone=False)]


def test_a_reset_fills_an_empty_copy_beside_the_store() -> None:
    driven, session = follower(store_of("old", table=TakeoverTable((TakeoverRow(RIVAL, 0, 1),))))
    assert driven.hear_up("a", Reset(session, EPOCH, "no common history")) == [BeginCopy(session, is_clone=False)]
    (ask,) = only(driven.work(), AskPiece)
    assert (ask.after_seq, ask.start_seq, ask.all_retained) == (0, 0, True)
    # Until the copy is whole the old one is what a crash leaves.
    assert driven.facts.is_copying
    driven.store.cancel_copy()
    assert driven.store.state.high_seq == 1


# Rolling back


def test_a_rollback_asks_for_the_keys_it_must_undo_then_does_everything_in_one_commit() -> None:
    rival = TakeoverTable((*TABLE.rows, TakeoverRow(RIVAL, 2, 2)))
    driven, session = follower(store_of("x", "y", "x", table=rival), view=chain(EPOCH, "a", learner="b"))
    assert driven.hear_up("a", RollBack(session, EPOCH, 2)) == [FindDiverged(session, 2)]
    (ask,) = only(driven.work(), AskRecords)
    assert (ask.keys, ask.through_seq) == ((b"x",), 2)
    upstream = store_of("x", "y")
    found = upstream.find_restorable(ask.keys, 2, bytes_max=1000)
    (order,) = driven.hear_up("a", Records(session, EPOCH, found))
    assert isinstance(order, ApplyRollback) and order.rollback.to_seq == 2 and len(order.rollback.records) == 1
    (ask_piece,) = only(driven.work(), AskPiece)
    assert (ask_piece.after_seq, ask_piece.start_seq, ask_piece.all_retained) == (2, 2, True)


def test_a_member_rolls_back_a_copy_beside_its_store() -> None:
    rival = TakeoverTable((*TABLE.rows, TakeoverRow(RIVAL, 2, 2)))
    links = Links("ab", {"a": store_of("x", "y"), "b": store_of("x", "y", "x", "q", table=rival)})
    links.adopt(chain(EPOCH, "ab"))
    done = list(links.said("b"))
    at = [index for index, effect in enumerate(done) if isinstance(effect, BeginCopy | ApplyRollback)]
    assert [type(done[index]) for index in at] == [BeginCopy, ApplyRollback]
    assert log_of(links["b"].store) == log_of(links["a"].store)
    assert links["b"].store.state.takeover == links["a"].store.state.takeover


def test_too_much_to_undo_is_copied_whole() -> None:
    driven, session = follower(store_of("x", "y"))
    driven.hear_up("a", RollBack(session, EPOCH, 1))
    (read,) = driven.reads
    driven.reads.clear()
    assert driven.feed(DivergedFound(read, None)) == [BeginCopy(session, is_clone=False)]


# Wedged


def test_a_wedged_replica_touches_nothing_says_so_and_waits_for_another_view() -> None:
    driven, session = follower(store_of("x", "y", commit_point=2))
    before = list(driven.store.dump())
    driven.hear_up("a", Wedge(session, EPOCH, "b has seen 2 committed"))
    report = driven.replica.report()
    assert report.phase == "wedged" and "this copy stays as it is" in report.problem
    for _ in range(3 * LINK_SILENT_TICKS_MAX):
        driven.do(Tick())
    driven.do(LinkReady("a"))
    assert session_of(driven) == session
    assert list(driven.store.dump()) == before
    # An operator gives the chain to those who hold it.
    assert only(driven.do(ViewChanged(chain(EPOCH + 1, "b"))), TakeOver) == [TakeOver(EPOCH + 1, 2)]
    assert driven.replica.report().role is Role.ALONE


def test_an_empty_head_never_makes_a_committed_copy_disappear() -> None:
    """The whole way: a head that lost its disk is given its role again."""
    links = Links("abc")
    links.adopt(chain(EPOCH, "abc"))
    links.write("a", put(("k", "1")))
    links.tick()
    links.crash("a")
    links.start("a", MemoryStore(SHARD))
    links.adopt(chain(EPOCH + 1, "abc"))
    assert links["a"].store.state.high_seq == 0
    assert links["b"].replica.report().phase == "wedged"
    assert log_of(links["b"].store) == log_of(links["c"].store) == ["1 k=1"]


# What its own downstreams hear


@pytest.mark.parametrize("how", ["table", "catch-up"])
def test_a_log_that_changed_by_more_than_an_append_makes_downstreams_greet_again(how: str) -> None:
    links = Links("abc")
    links.adopt(chain(EPOCH, "abc"))
    links.write("a", put(("k", "1")))
    middle = links["b"]
    session = session_of(middle)
    if how == "table":
        rows = middle.facts.takeover.rows
        grown = TakeoverTable((*rows, TakeoverRow(b"n" * 16, 1, 1)))
        effects = middle.feed(Done(AdoptTable(grown, 1), middle.facts._replace(takeover=grown)))
    else:
        piece = middle.store.read_catch_up(0, start_seq=0, bytes_max=1000)
        effects = middle.feed(Done(ApplyPiece(session, piece), middle.facts))
    assert len(only(effects, Bye)) == 1


# Becoming a member


def test_a_newcomer_waits_then_syncs_then_serves() -> None:
    links = Links("ab")
    links.adopt(chain(EPOCH, "a"))
    for number in range(5):
        links.write("a", put((f"k{number}", "v" * 40)))
    links.adopt(chain(EPOCH + 1, "a", learner="b"))
    assert links["a"].replica.report().learner_is_close
    links.adopt(chain(EPOCH + 2, "a", learner="b", state=MemberState.SYNCING))
    assert links["a"].replica.report().learner_is_ready
    links.adopt(chain(EPOCH + 3, "ab"))
    assert [links[node].replica.report().role for node in "ab"] == [Role.HEAD, Role.TAIL]
    links.write("a", put(("k", "1")))
    assert links["b"].replica.report().commit_point == 6
    assert list(links["a"].store.dump()) == list(links["b"].store.dump())
    # The same head, the direct successor each time: one history.
    assert len(links["a"].store.state.takeover.rows) == 1


def test_the_next_in_line_takes_over_and_the_old_head_comes_back_at_the_end() -> None:
    links = Links("abc")
    links.adopt(chain(EPOCH, "abc"))
    links.write("a", put(("k", "1")))
    # A write that nobody else has seen.
    links["a"].write(put(("k", "lost")))
    disk = links.crash("a")
    links.adopt(chain(EPOCH + 1, "bc"))
    links.write("b", put(("k", "2")))
    links.start("a", disk)
    for view in (
        chain(EPOCH + 2, "bc", learner="a"),
        chain(EPOCH + 3, "bc", learner="a", state=MemberState.SYNCING),
        chain(EPOCH + 4, "bca"),
    ):
        links.adopt(view)
    assert [log_of(links[node].store) for node in "bca"] == [["2 k=2"]] * 3
    assert links["a"].store.state.takeover == links["b"].store.state.takeover
    assert len(links["b"].store.state.takeover.rows) == 2
