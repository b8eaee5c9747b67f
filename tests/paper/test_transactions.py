"""Section "All or Nothing Transactions"."""

import pytest

import kayos
from kayos.errors import ConditionFailed
from kayos.storage.interface import Store
from kayos.storage.memory import MemoryStore
from tests.chains import TOPIC
from tests.replica.driven import Links, chain
from tests.storage.helpers import COMPACT, decoded, log_of, put, refuse, write


def test_all_messages_of_a_transaction_are_there_or_none(store: Store) -> None:
    """All or nothing: a condition that one message fails refuses the whole, and nothing changed."""
    write(store, put(("a", "1")))
    error = refuse(store, put(("b", "2"), ("a", "2"), expected={1: 99}))
    assert isinstance(error, ConditionFailed)
    assert log_of(store) == ["1 a=1"]
    write(store, put(("b", "2"), ("a", "2"), expected={1: 1}))
    assert log_of(store) == ["2 b=2", "3 a=2"]


def test_a_transaction_that_fails_leaves_the_others_of_its_commit_alone(store: Store) -> None:
    """Many transactions share one commit of the store; each is all or nothing by itself."""
    write(store, put(("a", "1")))
    answers = store.commit(
        [put(("x", "1"), ("y", "1")), put(("a", "2"), expected={0: 99}), put(("z", "1"))], now_ms=2000
    ).answers
    assert [type(answer).__name__ for answer in answers] == ["WriteResult", "ConditionFailed", "WriteResult"]
    assert log_of(store) == ["1 a=1", "2 x=1", "3 y=1", "4 z=1"]


def test_no_boundary_lies_inside_a_transaction(store: Store) -> None:
    """Consumers receive transactions whole: however small the pieces, a snapshot ends where a commit did."""
    ends = {0}
    for number in range(10):
        result = write(store, put((f"a{number}", "1"), (f"b{number}", "1"), (f"c{number}", "1")))
        ends.add(result[0].last_seq)
        assert store.read_log(0, bytes_max=1).end_seq in ends


def test_a_replica_takes_a_transaction_whole() -> None:
    """End to end: on every replica it is one commit, so no crash leaves half of it."""
    head, replica = MemoryStore(COMPACT), MemoryStore(COMPACT)
    links = Links("ab", {"a": head, "b": replica})
    links.adopt(chain(1, "ab"))
    _, forwarded = links["a"].sequence(put(("a", "1"), ("b", "1"), ("c", "1")))
    (batch,) = [effect.message.batch for effect in forwarded if hasattr(effect, "message")]
    assert [record.seq for record in decoded(batch.records)] == [1, 2, 3]
    # The downstream's store has nothing of it, then all of it.
    seen = [links["b"].store.state.high_seq]
    links.perform("a", [*forwarded, *links["a"].sync()])
    links.settle()
    seen.append(links["b"].store.state.high_seq)
    assert seen == [0, 3]


def test_through_a_real_chain_transactions_arrive_whole(client: kayos.Client) -> None:
    """From a producer's transaction to a consumer's snapshot through three nodes: the pair is never torn."""
    pairs: dict[bytes, bytes] = {}
    consumer = client.consume(TOPIC, start=kayos.Start.beginning())
    boundaries = 0
    with consumer:
        futures = []
        for number in range(40):
            with client.transaction(TOPIC) as transaction:
                transaction.put(b"left", b"%d" % number)
                transaction.put(b"right", b"%d" % number)
            futures.append(transaction.deliveries)
            if number % 4 == 0:
                snapshot = next(consumer)
                pairs |= {message.key or b"": message.value or b"" for message in snapshot}
                assert pairs[b"left"] == pairs[b"right"]
                boundaries += 1
    assert boundaries == 10
    assert all(first.copies == second.copies == 3 for first, second in futures)


def test_a_block_that_raises_sends_nothing(client: kayos.Client) -> None:
    """The application may change its mind until the end of the transaction."""

    class ChangedMindError(Exception):
        pass

    with pytest.raises(ChangedMindError), client.transaction(TOPIC) as transaction:
        transaction.put(b"never", b"1")
        raise ChangedMindError
    assert client.get(TOPIC, b"never") is None
