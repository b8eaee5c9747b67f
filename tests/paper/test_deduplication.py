"""Section "De-duplication, Scheduling and Fairness"."""

from kayos.model.control import CommitMark, CreatePin
from kayos.model.mark import Mark
from kayos.storage.interface import Store
from kayos.storage.memory import MemoryStore
from tests.storage.helpers import COMPACT, EVERYTHING, HISTORY, catch_up, decoded, delete, log_of, pin_rows, put, write


def balances(rows: list[str]) -> int:
    """The sum of the values of rows such as `7 a=30`."""
    return sum(int(row.split("=")[1]) for row in rows)


def test_each_update_of_a_key_gets_a_higher_sequence(store: Store) -> None:
    """Step 1: every update, of whichever key, is assigned a sequence above all before it."""
    seqs = [write(store, put((key, "v")))[0].last_seq for key in "abacab"]
    assert seqs == [1, 2, 3, 4, 5, 6]


def test_there_is_an_index_by_sequence(store: Store) -> None:
    """Step 2: messages are kept sorted by their sequences, and can be read from any of them on."""
    write(store, put(("b", "1")), put(("a", "1")), put(("c", "1")))
    assert log_of(store) == ["1 b=1", "2 a=1", "3 c=1"]
    assert log_of(store, after_seq=1) == ["2 a=1", "3 c=1"]


def test_an_update_removes_the_keys_previous_sequence(store: Store) -> None:
    """Step 3: inserting the new sequence of a key removes its old one."""
    write(store, put(("a", "1"), ("b", "1")))
    write(store, put(("a", "2")))
    assert log_of(store) == ["2 b=1", "3 a=2"]


def test_a_delete_is_a_revision_too(store: Store) -> None:
    """Steps 1 and 3 for a deletion: without a tombstone a consumer would keep what is gone."""
    write(store, put(("a", "1"), ("b", "1")))
    write(store, delete("a"))
    assert log_of(store) == ["2 b=1", "3 -a"]


def test_unkeyed_messages_are_all_kept(store: Store) -> None:
    """The claim "If messages are keyed": those without a key replace nothing."""
    write(store, put(("", "1")))
    write(store, put(("", "1")))
    assert log_of(store) == ["1 =1", "2 =1"]


def test_a_snapshot_is_not_changed_by_what_is_written_meanwhile(store: Store) -> None:
    """Step 4: a consumer is given a snapshot, and reads that one however much is written while it does."""
    write(store, put(("a", "1"), ("b", "1")))
    write(store, CreatePin("snapshot", 60_000))
    for number in range(20):
        write(store, put(("a", str(number))))
    write(store, delete("b"))
    assert pin_rows(store, "snapshot") == ["1 a=1", "2 b=1"]


def test_a_consumer_processes_in_the_order_of_sequences(store: Store) -> None:
    """Step 5: whatever the pieces in which it is read."""
    for number in range(30):
        write(store, put((f"k{number % 7}", str(number))))
    seqs, after_seq = [], 0
    while True:
        piece = store.read_log(after_seq, bytes_max=1, end_seq=30)
        seqs += [record.seq for record in decoded(piece.records)]
        after_seq = piece.through_seq
        if piece.complete:
            break
    assert seqs == sorted(seqs) == list(range(24, 31))


def test_who_was_away_for_long_reads_each_key_once(store: Store) -> None:
    """A consumer that was disconnected sees the newest revision of each key, not every revision."""
    for number in range(300):
        write(store, put((f"k{number % 3}", str(number))))
    assert log_of(store) == ["298 k0=297", "299 k1=298", "300 k2=299"]


def test_reordering_breaks_consistency_within_a_snapshot_and_the_boundary_restores_it(store: Store) -> None:
    """A consumer that stops inside a snapshot may hold half of a transfer; at the boundary it never does."""
    write(store, put(("a", "50"), ("b", "50")))
    write(store, put(("a", "40"), ("b", "60")))
    write(store, put(("a", "30"), ("c", "10")))
    snapshot = log_of(store)
    held = {"a": 50, "b": 50, "c": 0}
    sums = []
    for row in snapshot:
        key, value = row.split()[1].split("=")
        held[key] = int(value)
        sums.append(sum(held.values()))
    assert sums[-1] == 100
    assert any(total != 100 for total in sums[:-1])


def test_a_replica_is_a_consumer_of_its_upstream(store: Store) -> None:
    """Symmetric: what a downstream replica copies is what a consumer reads, row for row, boundary for boundary."""
    for number in range(20):
        write(store, put((f"k{number % 4}", str(number))))
    consumer, replica = store.read_log(0, bytes_max=EVERYTHING), MemoryStore(COMPACT)
    piece = store.read_catch_up(0, start_seq=0, bytes_max=EVERYTHING)
    assert piece.slice == consumer
    catch_up(replica, store)
    assert list(replica.dump()) == list(store.dump())


def test_consumers_have_snapshots_of_their_own_and_do_not_block_each_other(store: Store) -> None:
    """Each consumer proceeds at its own pace: several snapshots of different ages, read in turns, writes in between."""
    for number in range(5):
        write(store, put(("a", str(number))))
        write(store, CreatePin(f"consumer-{number}", 60_000))
    for number in (3, 0, 4, 1, 2):
        write(store, put(("a", "newest")))
        assert [row.split()[1] for row in pin_rows(store, f"consumer-{number}")] == [f"a={number}"]


def test_a_consumer_at_rest_is_one_mark_and_no_queue(store: Store) -> None:
    """A high water mark per consumer instead of a queue per consumer: a thousand of them hold no message."""
    write(store, put(("a", "1"), ("b", "1")))
    before = store.usage()
    write(store, *(CommitMark(f"consumer-{number}", Mark(HISTORY, 2, 0, 2)) for number in range(1_000)))
    after = store.usage()
    assert (after.messages, after.message_bytes, after.retained) == (before.messages, before.message_bytes, 0)
    assert after.marks == 1_000
    assert store.find_mark("consumer-7") == Mark(HISTORY, 2, 0, 2)


def test_a_mark_may_stand_at_the_boundary_or_anywhere_in_the_snapshot(store: Store) -> None:
    """At the end of a snapshot for full consistency, or at any other point; reading goes on right behind it."""
    write(store, put(("a", "1"), ("b", "1"), ("c", "1")))
    write(store, CommitMark("strict", Mark(HISTORY, 3, 0, 3)), CommitMark("loose", Mark(HISTORY, 1, 0, 3)))
    write(store, put(("d", "1")))
    for consumer, rows in (("strict", ["6 d=1"]), ("loose", ["2 b=1", "3 c=1", "6 d=1"])):
        mark = store.find_mark(consumer)
        assert mark is not None and log_of(store, after_seq=mark.seq) == rows


def test_a_key_that_changes_all_the_time_delays_no_other_beyond_one_snapshot(store: Store) -> None:
    """Fairness, both ways: what is committed after a snapshot began is in the next one, hot or rarely edited."""
    write(store, put(("hot", "0"), ("old", "1")))
    boundary, seen = 0, []
    for turn in range(5):
        snapshot = store.read_log(boundary, bytes_max=EVERYTHING)
        boundary = snapshot.end_seq
        seen.append({record.key.decode() for record in decoded(snapshot.records)})
        # While the consumer works on it:
        for number in range(50):
            write(store, put(("hot", f"{turn}-{number}")))
        write(store, put((f"rare-{turn}", "1")))
        for number in range(50):
            write(store, put(("hot", f"{turn}-{number}")))
    assert seen == [{"hot", "old"}, *({"hot", f"rare-{turn}"} for turn in range(4))]


def test_many_revisions_between_two_snapshots_are_one(store: Store) -> None:
    """Several causal revisions are de-duplicated to the most recent one for the next snapshot."""
    write(store, put(("a", "0")))
    boundary = store.read_log(0, bytes_max=EVERYTHING).end_seq
    for number in range(1, 100):
        write(store, put(("a", str(number))))
    assert log_of(store, after_seq=boundary) == ["100 a=99"]


def test_de_duplication_happens_when_a_write_commits(store: Store) -> None:
    """Not when somebody consumes: no consumer ever came here, and one message is stored."""
    for number in range(100):
        write(store, put(("a", str(number))))
    usage = store.usage()
    assert (usage.messages, usage.keys) == (1, 1)


def test_revisions_inside_one_group_need_never_be_written(store: Store) -> None:
    """Beyond the paper: no boundary can fall inside a commit, so of its revisions of a key only the last is stored;
    each send still has a sequence of its own."""
    results = write(store, *(put(("a", str(number))) for number in range(10)))
    assert [result.last_seq for result in results] == list(range(1, 11))
    assert log_of(store) == ["10 a=9"]


def test_sums_over_snapshots_never_show_half_a_transfer(store: Store) -> None:
    """Many transfers, consumed in snapshots while they are made: the consumer's sum holds at every boundary."""
    held = {"a": 50, "b": 50, "c": 50}
    write(store, put(*((key, str(value)) for key, value in held.items())))
    copy: dict[str, int] = {}
    boundary = 0
    for turn in range(60):
        giver, taker = "abc"[turn % 3], "abc"[(turn + 1) % 3]
        held[giver] -= turn
        held[taker] += turn
        write(store, put((giver, str(held[giver])), (taker, str(held[taker]))))
        if turn % 7 == 0:
            snapshot = store.read_log(boundary, bytes_max=EVERYTHING)
            boundary = snapshot.end_seq
            copy |= {record.key.decode(): int(record.value) for record in decoded(snapshot.records)}
            assert sum(copy.values()) == 150
    assert balances(log_of(store)) == 150
