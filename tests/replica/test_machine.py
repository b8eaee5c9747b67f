"""The head and the middle of a chain, event by event: roles, fencing, the gate, waits, flow control, a broken store.

What a downstream goes through is in test_follower.py.
"""

import pytest

from kayos.limits import LINK_IN_FLIGHT_BYTES_MAX, WINDOW_BYTES_MAX
from kayos.model.chain import ChainView, MemberState, Role
from kayos.model.sync import READY
from kayos.model.write import Batch
from kayos.replica.effects import (
    Answer,
    Apply,
    Effect,
    FetchView,
    Follow,
    Forsake,
    Release,
    SaveEpoch,
    SendDown,
    SendUp,
    Serve,
    TakeOver,
)
from kayos.replica.events import (
    Failed,
    LinkLost,
    Sequenced,
    StopWaiting,
    Synced,
    Tick,
    Trouble,
    Until,
    ViewChanged,
    Wait,
)
from kayos.storage.memory import MemoryStore
from kayos.stream.messages import (
    Ack,
    AskPiece,
    Bye,
    CatchUp,
    Continue,
    Hello,
    Piece,
    Progress,
    RefusalCode,
    Refuse,
    Sent,
)
from tests.replica.driven import Driven, Links, chain, head, only
from tests.storage.helpers import put

PUT = put(("k", "1"))
# Each record is a piece of its own.
WIDE = put(("a", "x" * 40), ("b", "x" * 40), ("c", "x" * 40))


def greet(
    driven: Driven, node: str, *, session: int = 1, epoch: int = 1, life: bytes = b"life", seq: int = 0
) -> list[Effect]:
    """What a downstream hears that holds the same log up to a sequence."""
    return driven.hear_down(node, Hello(session, epoch, node, life, driven.facts.takeover, seq, 0, 0, 0, READY))


def ack(driven: Driven, node: str, seq: int, *, session: int = 1, epoch: int = 1, **behind: int) -> list[Effect]:
    return driven.hear_down(node, Ack(session, epoch, seq, {node: seq, **behind}))


def history_of(driven: Driven) -> bytes:
    return driven.facts.takeover.current_history_id


# Roles


def test_a_head_stores_the_epoch_then_its_takeover_row_and_only_then_accepts_writes() -> None:
    driven = Driven("a")
    assert driven.feed(ViewChanged(chain(1, "abc"))) == [SaveEpoch(1)]
    assert driven.write_one() == [TakeOver(1, 0)]
    assert driven.write_one() == [Serve(True)]
    report = driven.replica.report()
    assert (report.role, report.phase, report.problem) == (Role.HEAD, "serving", "")


@pytest.mark.parametrize(
    ("node", "view", "role", "upstream"),
    [
        ("b", chain(1, "abc"), Role.MIDDLE, "a"),
        ("c", chain(1, "abc"), Role.TAIL, "b"),
        ("c", chain(1, "abc", tails=2), Role.TAIL, "a"),
        ("d", chain(1, "abc", learner="d"), Role.LEARNER, "c"),
    ],
)
def test_others_store_the_epoch_and_then_follow(node: str, view: ChainView, role: Role, upstream: str) -> None:
    driven = Driven(node)
    assert driven.feed(ViewChanged(view)) == [SaveEpoch(1)]
    follow, hello = driven.write_one()
    assert follow == Follow(upstream)
    assert isinstance(hello, SendUp) and isinstance(hello.message, Hello)
    report = driven.replica.report()
    assert (report.role, report.following, report.phase) == (role, upstream, "greeting")


def test_a_stranger_stores_the_epoch_and_does_nothing() -> None:
    driven = Driven("x")
    assert driven.do(ViewChanged(chain(1, "abc"))) == [SaveEpoch(1)]
    assert driven.replica.report().role is Role.NONE
    assert driven.do(Tick()) == []


def test_a_chain_below_its_least_length_takes_no_writes_and_says_why() -> None:
    driven = Driven("a")
    assert driven.do(ViewChanged(chain(1, "a", min_replicas=2)))[-1] == Serve(False)
    assert "1 of at least 2 replicas" in driven.replica.report().problem


def test_a_replica_in_the_middle_of_a_catch_up_is_no_head() -> None:
    source = head("a")
    source.write(WIDE)
    store = MemoryStore(source.store.state.identity)
    store.apply_catch_up(source.store.read_catch_up(0, start_seq=0, bytes_max=60))
    assert not store.state.sync.is_ready
    driven = Driven("b", store)
    effects = driven.do(ViewChanged(chain(2, "bc")))
    assert only(effects, TakeOver) == [] and only(effects, Serve) == []
    assert "in the middle of a catch-up" in driven.replica.report().problem


# Epochs and lives


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_view_that_is_not_newer_changes_nothing(epoch: int) -> None:
    driven = head("abc", epoch=3)
    assert driven.do(ViewChanged(chain(epoch, "bac"))) == []
    assert driven.replica.report().role is Role.HEAD


def test_an_epoch_below_the_stored_one_is_over_for_the_next_life_too() -> None:
    before = head("abc", epoch=5)
    driven = Driven("a", before.store, life=b"life-2")
    assert driven.do(ViewChanged(chain(4, "abc"))) == []
    assert driven.replica.report().role is Role.NONE


@pytest.mark.parametrize(
    ("view", "role"),
    [
        # The file names no life: the first one to store the epoch has the place, the next one has not.
        (chain(1, "abc"), Role.NONE),
        (chain(1, "bac"), Role.NONE),
        (chain(1, "bc", learner="a", state=MemberState.SYNCING), Role.NONE),
        # A newcomer that waits counts for nothing, and a chain of one is what it is: both resume.
        (chain(1, "bc", learner="a"), Role.LEARNER),
        (chain(1, "a"), Role.ALONE),
        # A higher epoch gives the place again.
        (chain(2, "bca"), Role.TAIL),
        # A view that names lives means these.
        (chain(1, "abc", lives={"a": b"life-2"}), Role.HEAD),
        (chain(2, "abc", lives={"a": b"life-1"}), Role.NONE),
    ],
)
def test_a_place_belongs_to_one_life(view: ChainView, role: Role) -> None:
    before = Driven("a", life=b"life-1")
    before.do(ViewChanged(chain(1, "abc")))
    driven = Driven("a", before.store, life=b"life-2")
    driven.do(ViewChanged(view))
    report = driven.replica.report()
    assert report.role is role
    assert ("earlier life" in report.problem) == (role is Role.NONE)


def test_the_same_head_goes_on_with_its_history_in_the_next_epoch() -> None:
    driven = head("abc")
    driven.write(PUT)
    driven.feed(Wait(1, history_of(driven), 1, Until.ALL))
    before = history_of(driven)
    effects = driven.do(ViewChanged(chain(2, "ab")))
    assert only(effects, TakeOver) == [] and only(effects, Forsake) == [] and only(effects, Serve) == [Serve(True)]
    assert history_of(driven) == before
    # The wait is answered by the new chain.
    greet(driven, "b", epoch=2, seq=1)
    assert only(ack(driven, "b", 1, epoch=2), Answer) == [Answer(1, 2)]


@pytest.mark.parametrize("views", [[chain(3, "abc")], [chain(2, "bac"), chain(3, "abc")]], ids=["skipped", "was not"])
def test_a_head_that_somebody_may_have_replaced_meanwhile_begins_a_new_history(views: list[ChainView]) -> None:
    driven = head("abc")
    driven.write(PUT)
    driven.feed(Wait(1, history_of(driven), 1, Until.ALL))
    before, effects = history_of(driven), []
    for view in views:
        effects += driven.do(ViewChanged(view))
    assert only(effects, TakeOver) == [TakeOver(3, 1)]
    assert [forsaken.token for forsaken in only(effects, Forsake)] == [1]
    assert history_of(driven) != before


def test_a_head_that_lost_its_role_stops_at_once_before_the_epoch_is_stored() -> None:
    driven = head("abc")
    effects = driven.feed(ViewChanged(chain(2, "bca")))
    assert effects == [Serve(False), SaveEpoch(2)]


# Those who follow


def test_a_downstream_of_an_older_epoch_is_told_to_fetch_the_view() -> None:
    driven = head("abc", epoch=2)
    (refuse,) = only(greet(driven, "b", epoch=1), Refuse)
    assert (refuse.code, refuse.epoch) == (RefusalCode.STALE_EPOCH, 2)


def test_a_downstream_of_a_later_epoch_makes_this_one_fetch_the_view_and_is_answered_then() -> None:
    driven = head("abc")
    assert greet(driven, "b", epoch=2) == [FetchView(2)]
    effects = driven.do(ViewChanged(chain(2, "ab")))
    assert len(only(effects, Continue)) == 1


@pytest.mark.parametrize(("node", "life"), [("c", b"life"), ("x", b"life"), ("b", b"another")])
def test_who_does_not_follow_this_one_is_refused(node: str, life: bytes) -> None:
    driven = Driven("a")
    driven.do(ViewChanged(chain(1, "abc", lives={"b": b"life", "a": b"life-1"})))
    (refuse,) = only(greet(driven, node, life=life), Refuse)
    assert refuse.code is RefusalCode.NOT_IN_CHAIN


def test_a_head_answers_hello_once_it_has_taken_over() -> None:
    driven = Driven("a")
    driven.feed(ViewChanged(chain(1, "abc")))
    assert greet(driven, "b") == []
    assert len(only(driven.work(), Continue)) == 1


def test_a_middle_answers_hello_once_its_own_log_is_known_to_be_the_chains() -> None:
    links = Links("ab")
    links.adopt(chain(1, "abc"))
    table = links["a"].facts.takeover
    middle = Driven("b", links["b"].store, life=b"life-2")
    middle.do(ViewChanged(chain(2, "abc")))
    assert greet(middle, "c", epoch=2) == []
    (hello,) = only(middle.seen, Hello)
    effects = middle.hear_up("a", Continue(hello.session, 2, table))
    assert len(only(effects, Continue)) == 1


def test_a_late_word_of_another_session_or_epoch_is_not_heard() -> None:
    driven = head("ab")
    greet(driven, "b", session=4)
    driven.write(PUT)
    assert ack(driven, "b", 1, session=3) == []
    assert ack(driven, "b", 1, session=4, epoch=2) == []
    assert ack(driven, "x", 1, session=4) == []
    assert only(ack(driven, "b", 1, session=4), Release) == [Release(1)]


def test_a_hello_that_came_twice_does_not_begin_the_session_again() -> None:
    driven = head("ab")
    greet(driven, "b", session=2)
    assert greet(driven, "b", session=2) == []
    assert greet(driven, "b", session=1) == []
    # Another life counts its sessions from the beginning.
    assert len(only(greet(driven, "b", session=1, life=b"next"), Continue)) == 1


# The log grows


def test_a_batch_is_forwarded_before_it_is_fsynced() -> None:
    driven = head("abc")
    greet(driven, "b")
    _, effects = driven.sequence(PUT)
    (sent,) = only(effects, Sent)
    assert (sent.batch.last_seq, sent.durable) == (1, {})
    (progress,) = only(driven.sync(), Progress)
    assert progress.durable == {"a": 1}


def test_a_middle_forwards_when_it_hands_the_batch_to_its_own_writer() -> None:
    links = Links("abc")
    links.adopt(chain(1, "abc"))
    links.write("a", PUT)
    middle = list(links.said("b"))
    sent = next(at for at, effect in enumerate(middle) if only([effect], Sent))
    assert isinstance(middle[sent + 1], Apply)
    acknowledged = [at for at, effect in enumerate(middle) if only([effect], Ack) and only([effect], Ack)[0].synced_seq]
    assert min(acknowledged) > sent + 1


def test_the_gate_opens_at_the_commit_point_and_not_before() -> None:
    driven = head("abc")
    greet(driven, "b")
    driven.write(PUT)
    assert only(driven.seen, Release) == []
    assert only(ack(driven, "b", 1), Release) == []
    assert only(ack(driven, "b", 1, c=1), Release) == [Release(1)]


@pytest.mark.parametrize(
    ("min_durable", "order"),
    [
        # Which of the nodes has fsynced, in this order, and whether the gate is open then.
        (1, [("b", False), ("c", True)]),
        (2, [("b", False), ("c", True)]),
        (3, [("c", False), ("b", True)]),
    ],
)
def test_the_gate_waits_for_m_replicas_a_tail_among_them(min_durable: int, order: list[tuple[str, bool]]) -> None:
    driven = head("abc", min_durable=min_durable)
    greet(driven, "b")
    driven.write(PUT)
    held: dict[str, int] = {}
    for node, is_open in order:
        held[node] = 1
        effects = driven.hear_down("b", Ack(1, 1, 1, dict(held)))
        assert bool(only(effects, Release)) == is_open


def test_with_m_of_two_the_tail_may_show_what_the_middle_lost() -> None:
    """Head and tail have fsynced it: that is two, a tail among them."""
    driven = head("abc", min_durable=2)
    greet(driven, "b")
    driven.write(PUT)
    assert only(driven.hear_down("b", Ack(1, 1, 0, {"c": 1})), Release) == [Release(1)]


def test_a_slow_tail_of_a_fan_out_holds_nobody_up() -> None:
    driven = head("abcd", tails=3)
    for node in "bcd":
        greet(driven, node)
    driven.write(PUT)
    driven.feed(Wait(1, history_of(driven), 1, Until.ALL))
    driven.feed(Wait(2, history_of(driven), 1, Until.ALL_TAILS))
    effects = ack(driven, "c", 1)
    assert only(effects, Release) == [Release(1)] and only(effects, Answer) == [Answer(1, 2)]
    ack(driven, "b", 1)
    assert only(ack(driven, "d", 1), Answer) == [Answer(2, 4)]


def test_a_broken_link_keeps_the_log_and_the_next_hello_gets_what_is_missing() -> None:
    driven = head("ab")
    greet(driven, "b")
    driven.feed(LinkLost("b"))
    driven.write(PUT)
    effects = greet(driven, "b", session=2)
    assert [sent.batch.last_seq for sent in only(effects, Sent)] == [1]


def test_a_later_epoch_vouches_for_batches_of_an_earlier_one() -> None:
    driven = head("abc")
    driven.write(PUT)
    driven.do(ViewChanged(chain(2, "ab")))
    (sent,) = only(greet(driven, "b", epoch=2), Sent)
    assert (sent.epoch, sent.batch.epoch) == (2, 2)


# Waiting for copies


@pytest.mark.parametrize(
    ("until", "copies", "answered_by"),
    [
        (Until.COPIES, 1, "a"),
        (Until.COPIES, 2, "b"),
        (Until.COPIES, 3, "c"),
        (Until.ALL, 0, "c"),
        (Until.ANY_TAIL, 0, "c"),
        (Until.ALL_TAILS, 0, "c"),
    ],
)
def test_a_wait_ends_when_it_is_held_as_asked(until: Until, copies: int, answered_by: str) -> None:
    driven = head("abc")
    greet(driven, "b")
    driven.sequence(PUT)
    assert driven.feed(Wait(5, history_of(driven), 1, until, copies)) == []
    steps = {"a": driven.sync(), "b": ack(driven, "b", 1), "c": ack(driven, "b", 1, c=1)}
    held = {"a": 1, "b": 2, "c": 3}[answered_by]
    assert {node: only(effects, Answer) for node, effects in steps.items()} == {
        node: [Answer(5, held)] if node == answered_by else [] for node in "abc"
    }


def test_a_wait_for_what_is_held_already_ends_at_once() -> None:
    driven = head("a")
    driven.write(PUT)
    assert driven.feed(Wait(5, history_of(driven), 1, Until.ALL)) == [Answer(5, 1)]


def test_a_bare_sequence_proves_nothing() -> None:
    """After a takeover at 1 another write stands at 2: whoever waits for (old history, 2) must not be told yes."""
    before = head("a")
    before.write(PUT)
    old = history_of(before)
    driven = Driven("a", before.store, life=b"life-2")
    driven.do(ViewChanged(chain(2, "a")))
    driven.write(put(("k", "another")))
    assert driven.feed(Wait(1, history_of(driven), 2, Until.ALL)) == [Answer(1, 1)]
    (forsaken,) = driven.feed(Wait(2, old, 2, Until.ALL))
    assert isinstance(forsaken, Forsake) and "the write is lost" in forsaken.reason
    assert driven.feed(Wait(3, old, 1, Until.ALL)) == [Answer(3, 1)]


def test_only_the_head_can_say() -> None:
    links = Links("ab")
    links.adopt(chain(1, "ab"))
    (result,) = links.write("a", PUT)
    (forsaken,) = links["b"].feed(Wait(1, result.history_id, 1, Until.ALL))
    assert isinstance(forsaken, Forsake)


def test_a_wait_that_was_given_up_is_not_answered() -> None:
    driven = head("ab")
    greet(driven, "b")
    driven.write(PUT)
    driven.feed(Wait(1, history_of(driven), 1, Until.ALL))
    driven.feed(StopWaiting(1))
    assert only(ack(driven, "b", 1), Answer) == []


# A newcomer


def test_a_waiting_newcomer_counts_for_nothing() -> None:
    driven = Driven("a")
    driven.do(ViewChanged(chain(1, "a", learner="b")))
    assert only(driven.write(PUT), Release) == [Release(1)]
    assert not driven.replica.report().learner_is_close
    greet(driven, "b", seq=1)
    report = driven.replica.report()
    assert (report.learner, report.learner_is_close, report.learner_is_ready) == ("b", True, False)


def test_a_syncing_newcomer_holds_acknowledgements_back_until_it_has_everything() -> None:
    driven = Driven("a")
    driven.do(ViewChanged(chain(1, "a", learner="b")))
    driven.write(PUT)
    driven.do(ViewChanged(chain(2, "a", learner="b", state=MemberState.SYNCING)))
    greet(driven, "b", epoch=2, seq=1)
    assert not driven.replica.report().learner_is_ready
    driven.feed(Wait(1, history_of(driven), 2, Until.ALL))
    assert only(driven.write(PUT), Answer) == []
    # It has what was acknowledged before this epoch: ready. It has the new write: acknowledged.
    assert only(ack(driven, "b", 1, epoch=2), Answer) == []
    assert driven.replica.report().learner_is_ready
    effects = ack(driven, "b", 2, epoch=2)
    assert only(effects, Release) == [Release(2)] and only(effects, Answer) == [Answer(1, 1)]


# Flow control


def large(previous_seq: int) -> Batch:
    return Batch(1, previous_seq, previous_seq + 1, 1, (LARGE,))


LARGE = bytes(4 << 20)


def test_a_downstream_that_does_not_acknowledge_gets_a_bounded_number_of_bytes_then_it_copies() -> None:
    driven = head("ab")
    greet(driven, "b")
    sent, seq = 0, 0
    # Far more than memory keeps is written, and fsynced here.
    while seq * len(LARGE) < 2 * WINDOW_BYTES_MAX:
        sent += len(only(driven.feed(Sequenced(large(seq))), Sent))
        seq += 1
        driven.feed(Synced(driven.facts._replace(high_seq=seq)))
    assert LINK_IN_FLIGHT_BYTES_MAX <= sent * len(LARGE) < LINK_IN_FLIGHT_BYTES_MAX + len(LARGE)
    # What it needs next has left memory, so as soon as there is room the session ends …
    effects = ack(driven, "b", 1)
    assert only(effects, Sent) == [] and "fell behind" in only(effects, Bye)[0].reason
    # … and the next one begins with a catch-up from the store.
    assert len(only(greet(driven, "b", session=2, seq=sent), CatchUp)) == 1


def test_an_acknowledgement_makes_room_for_the_next_batches() -> None:
    driven = head("ab")
    greet(driven, "b")
    batches = [large(seq) for seq in range(12)]
    sent = sum(len(only(driven.feed(Sequenced(batch)), Sent)) for batch in batches)
    assert sent < len(batches)
    effects = ack(driven, "b", 2)
    assert [each.batch.previous_seq for each in only(effects, Sent)] == [sent, sent + 1]


def test_a_slow_tail_does_not_slow_the_other() -> None:
    driven = head("abc", tails=2)
    greet(driven, "b")
    greet(driven, "c")
    reached = {"b": 0, "c": 0}
    for seq in range(12):
        for effect in driven.feed(Sequenced(large(seq))):
            if isinstance(effect, SendDown) and isinstance(effect.message, Sent):
                reached[effect.node] = effect.message.batch.last_seq
        driven.feed(Synced(driven.facts._replace(high_seq=seq + 1)))
        assert only(ack(driven, "b", seq + 1), Release) == [Release(seq + 1)]
    assert reached["b"] == 12 and reached["c"] < 12


# Questions of a downstream


def test_a_piece_is_read_once_enough_is_fsynced() -> None:
    driven = head("ab")
    driven.write(WIDE)
    driven.sequence(PUT)
    greet(driven, "b", seq=1)
    ask = AskPiece(1, 1, 1, 1, 4, False)
    assert driven.hear_down("b", ask) == []
    driven.sync()
    effects = driven.work()
    (piece,) = only(effects, Piece)
    assert piece.piece.slice.after_seq == 1


# A store that fails


def test_a_broken_store_stops_serving_for_this_life() -> None:
    driven = head("abc")
    greet(driven, "b")
    driven.sequence(PUT)
    driven.feed(Wait(1, history_of(driven), 1, Until.ALL))
    effects = driven.feed(Failed(None, Trouble.BROKEN, "the disk failed", driven.facts))
    assert Serve(False) in effects
    assert [forsaken.token for forsaken in only(effects, Forsake)] == [1]
    assert [(sent.node, type(sent.message)) for sent in only(effects, SendDown)] == [("b", Bye)]
    report = driven.replica.report()
    assert (report.role, report.problem) == (Role.NONE, "the disk failed")
    # Nothing brings it back but another life.
    assert driven.do(ViewChanged(chain(2, "ab"))) == []
    assert driven.do(Tick()) == []
    (forsaken,) = driven.feed(Wait(2, history_of(driven), 1, Until.ALL))
    assert isinstance(forsaken, Forsake)


def test_a_broken_middle_lets_go_of_both_neighbours() -> None:
    links = Links("abc")
    links.adopt(chain(1, "abc"))
    middle = links["b"]
    order = Apply(Batch(1, 0, 1, 1, ()), 0)
    effects = middle.feed(Failed(order, Trouble.BROKEN, "the disk failed", middle.facts))
    assert Follow("") in effects and len(only(effects, Bye)) == 1


def test_an_epoch_that_could_not_be_stored_is_stored_with_a_later_tick() -> None:
    driven = Driven("a")
    (order,) = driven.feed(ViewChanged(chain(1, "a")))
    driven.orders.clear()
    assert driven.feed(Failed(order, Trouble.RETRY, "no room", driven.facts)) == []
    assert driven.feed(Tick()) == [order]
    assert driven.work()[-1] == Serve(True)


# The commit point is kept


def test_the_commit_point_is_stored_when_there_is_nothing_else_to_store() -> None:
    driven = head("ab")
    greet(driven, "b")
    driven.write(PUT)
    ack(driven, "b", 1)
    driven.do(Tick())
    assert driven.facts.commit_point == 1
    assert driven.replica.report().commit_point == 1
