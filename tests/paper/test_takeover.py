"""Section "Master Takeover Table": where two logs part, and the way back.

`a` is the upstream, `b` the downstream that was away and saw updates that the new head never had.
"""

import pytest

from kayos.errors import KayosError, RollbackRequired
from kayos.model.chain import MemberState
from kayos.model.control import CommitMark, Purge
from kayos.model.mark import Mark
from kayos.model.producer import ProducerStamp
from kayos.model.sync import SyncPhase
from kayos.model.takeover import TakeoverRow, TakeoverTable, find_divergence
from kayos.replica.effects import ApplyPiece, ApplyRollback, BeginCopy, FindDiverged, TakeOver
from kayos.replica.events import Until, ViewChanged, Wait
from kayos.storage.interface import Store
from kayos.storage.lmdb_store import LmdbStore
from kayos.storage.memory import MemoryStore
from kayos.stream.messages import AskPiece, AskRecords, Continue, Hello, Records, Reset, RollBack, Wedge
from tests.replica.driven import SHARD, Driven, Links, chain, head, only
from tests.storage.helpers import HISTORY, brief, catch_up, delete, find_rollback, log_of, new_memory, put, write

DEADBEEF, CAFEBABE, OTHER = (bytes.fromhex(word * 4) for word in ("deadbeef", "cafebabe", "0badf00d"))


def table(*rows: tuple[bytes, int]) -> TakeoverTable:
    return TakeoverTable(tuple(TakeoverRow(history, start, epoch) for epoch, (history, start) in enumerate(rows, 1)))


def rows_of(store: Store) -> list[int]:
    return [row.start_seq for row in store.state.takeover.rows]


def kept(store: Store) -> list[str]:
    """The rows of a log that may be closed to readers."""
    return brief(row for name, row in store.dump() if name == "log")


# The table


def test_the_first_master_writes_its_row_at_0(disk: LmdbStore) -> None:
    """The first initialized master draws an identifier and puts it into the table at sequence 0."""
    assert disk.state.takeover.rows == (TakeoverRow(HISTORY, 0, 1),)


def test_after_3000_messages_and_a_restart_the_second_row_is_at_3000(disk: LmdbStore) -> None:
    """The paper's own example, on disk: 3000 messages, a restart, a second row (…, 3000)."""
    for _ in range(30):
        write(disk, *(put(("", "v")) for _ in range(100)))
    disk.reopen()
    disk.take_over(TakeoverRow(CAFEBABE, disk.state.high_seq, 2))
    disk.reopen()
    assert disk.state.takeover.rows == (TakeoverRow(HISTORY, 0, 1), TakeoverRow(CAFEBABE, 3000, 2))
    assert disk.state.takeover.find_history_at(3000) == HISTORY
    assert disk.state.takeover.find_history_at(3001) == CAFEBABE


def test_a_master_that_restarts_draws_a_new_identifier() -> None:
    """Each start of the master is a history of its own: what the last life forwarded last is not known for sure."""
    first = head("a")
    first.write(put(("k", "1")))
    again = Driven("a", first.store, life=b"life-2")
    again.do(ViewChanged(chain(1, "a")))
    assert rows_of(again.store) == [0, 1]
    assert len({row.history_id for row in again.store.state.takeover.rows}) == 2


def test_the_row_is_durable_before_the_first_write_is_accepted() -> None:
    """A head that wrote under an identifier it then forgot would leave sequences of nobody."""
    driven = Driven("a")
    effects = driven.do(ViewChanged(chain(1, "a")))
    assert [type(effect).__name__ for effect in effects] == ["SaveEpoch", "TakeOver", "Serve"]


def test_a_follower_that_restarts_writes_no_row() -> None:
    """Here Kayos differs: the paper generates a row after each startup, Kayos when a head begins to write."""
    links = Links("ab")
    links.adopt(chain(1, "ab"))
    links.write("a", put(("k", "1")))
    disk = links.crash("b")
    links.start("b", disk)
    links.adopt(chain(2, "a", learner="b"))
    assert links["b"].store.state.takeover == links["a"].store.state.takeover
    assert rows_of(links["b"].store) == [0]
    # With a row of its own, what the head wrote next would stand in another history here than there, and a consumer's
    # mark would be unknown at the next tail.
    with_own_row = links["a"].store.state.takeover.with_takeover(TakeoverRow(OTHER, 1, 2))
    links.write("a", put(("k", "2")))
    assert links["a"].store.state.takeover.find_history_at(2) != with_own_row.find_history_at(2)
    assert links["b"].store.state.takeover.find_history_at(2) == links["a"].store.state.takeover.find_history_at(2)


def test_a_master_that_wrote_nothing_leaves_no_row() -> None:
    """No sequence belongs to it, so nothing can refer to it; restarts at rest do not fill the table."""
    store = new_memory()
    write(store, put(("k", "1")))
    for number in range(5):
        store.take_over(TakeoverRow(bytes([number]) * 16, 1, 2 + number))
    assert rows_of(store) == [0, 1]


# Where two logs part


def test_the_next_newest_entry_after_the_common_master_is_where_to_go_back_to() -> None:
    """The downstream finds the newest common master, and goes back to where the upstream's next one took over."""
    upstream, downstream = table((DEADBEEF, 0), (CAFEBABE, 3000)), table((DEADBEEF, 0))
    assert find_divergence(upstream, downstream, up_high=3500, down_high=3200) == 3000


def test_without_a_newer_entry_there_is_no_branch() -> None:
    """If the common master is the newest entry, the sequences did not branch: the stream goes on."""
    upstream = downstream = table((DEADBEEF, 0), (CAFEBABE, 3000))
    assert find_divergence(upstream, downstream, up_high=3500, down_high=3200) == 3200


def test_the_upstreams_table_alone_is_not_enough() -> None:
    """Here Kayos differs: the downstream may have left the common history before the upstream did, and then its own
    next entry is where they part. By the upstream's table alone, 3001 to 3100 of another history would stay."""
    upstream, downstream = table((DEADBEEF, 0)), table((DEADBEEF, 0), (OTHER, 3000))
    assert find_divergence(upstream, downstream, up_high=4000, down_high=3100) == 3000


@pytest.mark.parametrize("committed", [0, 1])
def test_no_common_master_resets_the_storage_unless_it_was_committed(committed: int) -> None:
    """Without a common master everything is copied. Here Kayos differs in one case: a copy that has itself seen
    something committed waits for an operator (wedged), since an empty upstream must not make it disappear."""
    rival = MemoryStore(SHARD)
    rival.take_over(TakeoverRow(OTHER, 0, 1))
    write(rival, put(("mine", "1")))
    rival.save_commit_point(committed)
    upstream = new_memory(SHARD)
    write(upstream, put(("theirs", "1")))
    links = Links("ab", {"a": upstream, "b": rival})
    links.adopt(chain(3, "a", learner="b"))
    verdicts = only(list(links.said("a")), Reset) or only(list(links.said("a")), Wedge)
    if committed:
        assert isinstance(verdicts[-1], Wedge)
        assert log_of(links["b"].store) == ["1 mine=1"]
        assert "this copy stays as it is" in links["b"].replica.report().problem
    else:
        assert isinstance(verdicts[-1], Reset)
        assert log_of(links["b"].store) == ["1 theirs=1"]
        assert rows_of(links["b"].store) == rows_of(links["a"].store)


# The way back, step by step


def parted() -> tuple[MemoryStore, MemoryStore]:
    """(upstream, downstream) that share 1 to 4; the downstream went on as a head that the others lost sight of."""
    upstream = MemoryStore(SHARD)
    upstream.take_over(TakeoverRow(DEADBEEF, 0, 1))
    downstream = MemoryStore(SHARD)
    downstream.adopt_takeover(upstream.state.takeover, 1)
    for request in (put(("kept", "1")), put(("both", "1")), put(("here", "1")), put(("there", "1"))):
        batch = upstream.commit([request], now_ms=1000).batch
        assert batch is not None
        downstream.apply([batch])
    downstream.take_over(TakeoverRow(OTHER, 4, 2))
    write(downstream, put(("here", "rival"), ("both", "rival"), ("new", "rival")), now_ms=5000)
    upstream.take_over(TakeoverRow(CAFEBABE, 4, 3))
    write(upstream, put(("both", "2"), ("there", "2")), delete("gone"))
    return upstream, downstream


def test_step_1_walk_the_sequences_above_the_divergence_point() -> None:
    """The downstream walks its own log above the point, and finds the keys that it changed there."""
    upstream, downstream = parted()
    point = find_divergence(upstream.state.takeover, downstream.state.takeover, up_high=7, down_high=7)
    assert point == 4
    assert downstream.find_diverged(point, rows_max=100) == (b"here", b"both", b"new")


def test_step_2_ask_the_upstream_for_what_stands_below_the_point() -> None:
    """Of those keys the upstream sends the ones whose messages stand at or below the point; they are written back, at
    their own sequences. What stands above it there comes later."""
    upstream, downstream = parted()
    found = upstream.find_restorable((b"here", b"both", b"new"), 4, bytes_max=1000)
    assert len(found.records) == 1
    downstream.roll_back(find_rollback(downstream, upstream, 4))
    assert kept(downstream) == ["1 kept=1", "3 here=1", "4 there=1"]


def test_step_3_what_the_upstream_does_not_have_is_deleted() -> None:
    """A key that the upstream never had is gone, and so is the revision that only the downstream had."""
    upstream, downstream = parted()
    downstream.roll_back(find_rollback(downstream, upstream, 4))
    assert not any("rival" in row for row in kept(downstream))
    assert downstream.state.high_seq == 4


def test_step_4_everything_after_the_point_is_copied() -> None:
    """After the walk the downstream asks for everything above the point and commits it."""
    upstream, downstream = parted()
    downstream.roll_back(find_rollback(downstream, upstream, 4))
    assert downstream.state.sync.phase is SyncPhase.CATCHING_UP
    catch_up(downstream, upstream, bytes_max=60, all_retained=True)
    assert log_of(downstream) == log_of(upstream) == ["1 kept=1", "3 here=1", "5 both=2", "6 there=2", "7 -gone"]


def test_step_5_the_table_is_copied_and_with_it_the_copy_is_whole() -> None:
    """The failover table comes last, in the same commit as the last rows: until then the copy is not readable."""
    upstream, downstream = parted()
    downstream.roll_back(find_rollback(downstream, upstream, 4))
    assert downstream.state.takeover == table((DEADBEEF, 0))
    with pytest.raises(KayosError):
        downstream.get(b"kept")
    catch_up(downstream, upstream, all_retained=True)
    assert downstream.state.takeover == upstream.state.takeover
    assert downstream.state.sync.is_ready
    assert list(downstream.dump()) == list(upstream.dump())


def test_the_five_steps_in_their_order_between_two_replicas() -> None:
    """The conversation of the paper's steps: walk, ask by key, undo and restore, ask for the rest, copy the table; then
    the downstream receives from upstream normally."""
    upstream, downstream = parted()
    links = Links("ab", {"a": upstream, "b": downstream})
    links.adopt(chain(5, "a", learner="b"))
    told = []
    for _, effect in links.trace:
        for kind in (RollBack, FindDiverged, AskRecords, Records, ApplyRollback, AskPiece, ApplyPiece):
            if only([effect], kind) and kind.__name__ not in told:
                told.append(kind.__name__)
    assert told == ["RollBack", "FindDiverged", "AskRecords", "Records", "ApplyRollback", "AskPiece", "ApplyPiece"]
    assert only(list(links.said("a")), Continue), "at the end it is a prefix"
    assert list(links["b"].store.dump()) == list(links["a"].store.dump())
    links.write("a", put(("next", "1")))
    assert log_of(links["b"].store)[-1] == "8 next=1"


def test_if_no_step_fails_the_downstream_can_feed_others_too() -> None:
    """After the steps it can "send them downstream": a third replica follows the one that was rolled back."""
    upstream, downstream = parted()
    links = Links("abc", {"a": upstream, "b": downstream})
    links.adopt(chain(5, "abc"))
    links.write("a", put(("next", "1")))
    assert list(links["c"].store.dump()) == list(links["a"].store.dump())
    assert links["c"].replica.report().commit_point == links["a"].store.state.high_seq


def test_steps_1_to_3_are_one_commit() -> None:
    """Here Kayos differs: rows that one upstream answered make no sense with another one. Done one by one, a crash or a
    failover in between would mix two states; so they are one transaction, and the source is remembered."""
    upstream, downstream = parted()
    rollback = find_rollback(downstream, upstream, 4)
    downstream.roll_back(rollback)
    assert downstream.state.sync.source_history == CAFEBABE
    # Another upstream that never held that state is refused what was begun: everything is copied.
    another = MemoryStore(SHARD)
    another.take_over(TakeoverRow(DEADBEEF, 0, 1))
    write(another, put(("kept", "1"), ("both", "1"), ("here", "1"), ("there", "1")))
    links = Links("ab", {"a": another, "b": downstream})
    links.adopt(chain(6, "a", learner="b"))
    assert len(only(list(links.said("b")), BeginCopy)) == 1
    assert list(links["b"].store.dump()) == list(links["a"].store.dump())


def test_beside_messages_everything_else_goes_back_too() -> None:
    """Beyond the paper: marks and producer rows of the lost branch are undone, or a retry would be taken for stored."""
    upstream, downstream = parted()
    stamp = ProducerStamp(b"producer", 1, 1)
    write(downstream, put(("x", "1"), producer=stamp), CommitMark("consumer", Mark(OTHER, 7, 0, 7)))
    downstream.roll_back(find_rollback(downstream, upstream, 4))
    catch_up(downstream, upstream, all_retained=True)
    assert downstream.find_producer(b"producer") is None
    assert downstream.find_mark("consumer") is None


def test_where_messages_were_removed_rows_cannot_tell_so_everything_is_copied() -> None:
    """Beyond the paper: after a purge above the point the upstream cannot say which keys it deleted, so step 3 would
    keep what is gone. The answer is a full copy."""
    upstream, downstream = parted()
    write(upstream, Purge(7))
    links = Links("ab", {"a": upstream, "b": downstream})
    links.adopt(chain(5, "a", learner="b"))
    assert only(list(links.said("a")), Reset) and not only(list(links.said("a")), RollBack)
    assert list(links["b"].store.dump()) == list(links["a"].store.dump())


# When it happens


def test_a_crashed_upstream_that_saw_more_than_the_new_master_is_rolled_back() -> None:
    """The paper's case from end to end: the old head comes back with updates that the new one never saw."""
    links = Links("abc")
    links.adopt(chain(1, "abc"))
    links.write("a", put(("k", "1")))
    links["a"].write(put(("k", "unseen")), put(("n", "unseen")))
    disk = links.crash("a")
    links.adopt(chain(2, "bc"))
    links.write("b", put(("k", "2")))
    links.start("a", disk)
    links.adopt(chain(3, "bc", learner="a"))
    (verdict, *_) = only(list(links.said("c")), RollBack)
    assert verdict.seq == 1
    links.adopt(chain(4, "bc", learner="a", state=MemberState.SYNCING))
    links.adopt(chain(5, "bca"))
    assert [log_of(links[node].store) for node in "bca"] == [["2 k=2"]] * 3


def test_two_logs_that_agree_by_sequence_may_differ_by_history() -> None:
    """Why the table is needed at all: both ends are at 7, and nothing but the identifiers tells them apart."""
    upstream, downstream = parted()
    assert upstream.state.high_seq == downstream.state.high_seq == 7
    assert log_of(upstream) != log_of(downstream)


def test_a_bare_sequence_is_no_proof_for_a_producer_either() -> None:
    """Here Kayos differs from section "Multi-Node Durable Transactions and Failover", where a producer polls for its
    sequence S: after a takeover another write may stand at S, and the answer would be yes for a write that is lost. So
    a write is named by its history and its sequence."""
    links = Links("abc")
    links.adopt(chain(1, "abc"))
    results, _ = links["a"].sequence(put(("k", "acknowledged by one")))
    links["a"].sync()
    (lost,) = results
    links.crash("a")
    links.adopt(chain(2, "bc"))
    (other,) = links.write("b", put(("another", "1")))
    assert other.last_seq == lost.last_seq == 1
    new_head = links["b"]
    assert "Answer" in str(new_head.feed(Wait(1, other.history_id, 1, Until.ALL)))
    assert "the write is lost" in str(new_head.feed(Wait(2, lost.history_id, 1, Until.ALL)))


def test_a_consumer_whose_history_ended_is_told_where_to_go_back_to() -> None:
    """Consumers are downstreams: a mark of a branch that was lost gets the divergence point, never a silent skip."""
    with pytest.raises(RollbackRequired) as caught:
        table((DEADBEEF, 0), (CAFEBABE, 3000)).check_position(history_id=DEADBEEF, seq=3200, high_seq=3500, floor_seq=0)
    assert caught.value.seq == 3000


def test_a_head_of_two_epochs_in_a_row_keeps_its_history() -> None:
    """Here Kayos differs: a change of the chain alone is no takeover, since nobody else can have written in between."""
    links = Links("abc")
    links.adopt(chain(1, "abc"))
    links.write("a", put(("k", "1")))
    links.adopt(chain(2, "ab"))
    links.write("a", put(("k", "2")))
    assert rows_of(links["a"].store) == [0]
    assert len(only(list(links.said("a")), TakeOver)) == 1
    assert {hello.epoch for hello in only(list(links.said("b")), Hello)} == {1, 2}
