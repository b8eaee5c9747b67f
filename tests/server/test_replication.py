"""The replication service against peers that are wrong, each in its own way: each hears why, and the chain goes on."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest

import kayos
from kayos.cluster.chain_file import topic_id_of
from kayos.errors import KayosError
from kayos.limits import HELLO_S, PART_BYTES_MAX, UPWARD_BYTES_MAX
from kayos.model.record import encode_record
from kayos.model.sync import READY
from kayos.model.takeover import TakeoverRow, TakeoverTable
from kayos.model.write import Batch
from kayos.stream.messages import Ack, CatchUp, Continue, Downward, Hello, Progress, Sent
from kayos.wire.replication_codec import DownwardAssembler, ShardKey, encode_downward, encode_upward
from kayos.wire.replication_frames import seal_frame
from kayos.wire.status import error_from_rpc
from kayos.wire.v1 import replication_pb2 as pb
from tests.chains import TOPIC, Cluster
from tests.server.fake_upstream import FOLLOW, Conversation, FakeUpstream

MIB = 1 << 20
CALL_S = 30.0
KEY = ShardKey(topic_id_of(TOPIC), 0)
HISTORY = b"h" * 16
TABLE = TakeoverTable((TakeoverRow(HISTORY, 0, 1),))


class Follower:
    """A bare stream that says what it is given and then listens, until the node ends it or the block does."""

    def __init__(self, address: str, *payloads: bytes) -> None:
        self._channel = grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)])
        self._payloads = payloads
        self._over = threading.Event()
        self.stream = self._channel.stream_stream(FOLLOW.path)(self._speak(), timeout=CALL_S)

    def _speak(self) -> Iterator[bytes]:
        yield from self._payloads
        self._over.wait(CALL_S)

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self.stream.cancel()
        self._channel.close()

    def next_word(self) -> Downward:
        assembler = DownwardAssembler()
        for encoded in self.stream:
            word = assembler.feed(encoded)
            if word is not None:
                return word
        raise AssertionError("the node ended the stream")


def refusal_of(address: str, *payloads: bytes) -> tuple[grpc.StatusCode, KayosError]:
    """How the node ends a stream that says this."""
    with Follower(address, *payloads) as follower:
        try:
            words = list(follower.stream)
        except grpc.RpcError as error:
            return error.code(), error_from_rpc(error)
    raise AssertionError(f"the stream was not refused but answered with {words}")


@dataclass
class Stage:
    """A chain a, b, c in epoch 2, whose file names the lives of its members; d is in the file and does not run."""

    cluster: Cluster
    client: kayos.Client
    writes: int = 0

    @property
    def head(self) -> str:
        return self.cluster.addresses["a"]

    def hello(self, **changes: object) -> Hello:
        """The one that b would say to a."""
        incarnation = self.cluster.status("b").incarnation
        plain = Hello(1, self.cluster.chain.epoch, "b", incarnation, TakeoverTable(), 0, 0, 0, 0, READY)
        return plain._replace(**changes)

    def check_unharmed(self) -> None:
        self.writes += 1
        value = b"%d" % self.writes
        assert self.client.produce(TOPIC, value, key=b"k").copies == 3
        assert self.client.get(TOPIC, b"k").value == value
        assert [entry for name in "abc" for entry in self.cluster.internal_errors(name)] == []


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory: Path = tmp_path_factory.mktemp("chain")
    with Cluster.start(directory, nodes="abcd", chain="abc") as cluster, kayos.connect(cluster.servers) as client:
        cluster.kill("d")
        cluster.wait_until_serving()
        cluster.name_lives()
        cluster.wait_until_serving()
        yield Stage(cluster, client)
        cluster.wait_until_whole()
        cluster.stop_all()
        cluster.check_equal()


BAD_HELLOS = {
    "stale epoch": ({"epoch": 1}, "STALE_EPOCH", "FAILED_PRECONDITION"),
    "outside the chain": ({"node": "x"}, "NOT_IN_CHAIN", "PERMISSION_DENIED"),
    "not my downstream": ({"node": "c"}, "NOT_IN_CHAIN", "PERMISSION_DENIED"),
    "myself": ({"node": "a"}, "NOT_IN_CHAIN", "PERMISSION_DENIED"),
    "another life": ({"incarnation": b"another life"}, "NOT_IN_CHAIN", "PERMISSION_DENIED"),
    "no life": ({"incarnation": b""}, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    "a name that cannot be": ({"node": "../b"}, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    "a number that cannot be": ({"high_seq": 2**64 - 1}, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    "an epoch that cannot be": ({"epoch": 2**64 - 1}, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
}


@pytest.mark.parametrize("name", BAD_HELLOS)
def test_a_hello_that_is_wrong_hears_why(stage: Stage, name: str) -> None:
    changes, code, status = BAD_HELLOS[name]
    found, error = refusal_of(stage.head, *encode_upward(stage.hello(**changes), KEY))
    assert (found.name, error.code) == (status, code)
    if code in ("STALE_EPOCH", "NOT_IN_CHAIN"):
        assert error.number("epoch") == stage.cluster.chain.epoch
    stage.check_unharmed()


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (ShardKey("0123456789abcdef", 0), "TOPIC_NOT_FOUND"),
        (ShardKey(KEY.topic_id, 7), "SHARD_NOT_FOUND"),
        (ShardKey("../../etc", 0), "INVALID_ARGUMENT"),
        (ShardKey(KEY.topic_id, 1 << 20), "INVALID_ARGUMENT"),
    ],
    ids=lambda value: str(value),
)
def test_a_hello_to_a_shard_that_is_not_here_hears_so(stage: Stage, key: ShardKey, code: str) -> None:
    _, error = refusal_of(stage.head, *encode_upward(stage.hello(), key))
    assert error.code == code
    stage.check_unharmed()


def bad_words(stage: Stage) -> dict[str, tuple[list[bytes], str]]:
    """First words, and the code of the error that each is answered with."""
    (hello,) = encode_upward(stage.hello(), KEY)
    (ack,) = encode_upward(Ack(1, 2, 1, {"b": 1}), KEY)
    flipped = hello[:9] + bytes([hello[9] ^ 1]) + hello[10:]
    part = seal_frame(pb.FollowRequest(part=pb.Part(data=b"x" * PART_BYTES_MAX)))
    other = encode_upward(stage.hello(), ShardKey(KEY.topic_id, 1))
    return {
        "not Hello": ([ack], "INVALID_ARGUMENT"),
        "garbage": ([b"\xff" * 1000], "DAMAGED_RECORD"),
        "nothing": ([b""], "DAMAGED_RECORD"),
        "a flipped bit": ([flipped], "DAMAGED_RECORD"),
        "cut short": ([hello[:-3]], "DAMAGED_RECORD"),
        "sealed garbage": ([seal_raw(b"\xff" * 1000)], "INVALID_ARGUMENT"),
        "a word of no kind": ([seal_frame(pb.FollowRequest(session=1))], "INVALID_ARGUMENT"),
        "a word between parts": ([part, hello], "INVALID_ARGUMENT"),
        "endless parts": ([part] * (UPWARD_BYTES_MAX // PART_BYTES_MAX + 1), "INVALID_ARGUMENT"),
        "too long for the transport": ([b"x" * (17 * MIB)], "RESOURCE_EXHAUSTED"),
        "another shard than before": ([hello, *other], "INVALID_ARGUMENT"),
    }


def seal_raw(body: bytes) -> bytes:
    class Raw:
        def SerializeToString(self) -> bytes:
            return body

    return seal_frame(Raw())  # type: ignore[arg-type]


def test_a_word_that_is_wrong_ends_its_stream_with_its_own_error(stage: Stage) -> None:
    for name, (payloads, code) in bad_words(stage).items():
        _, error = refusal_of(stage.head, *payloads)
        assert (name, error.code) == (name, code)
    stage.check_unharmed()


def test_a_peer_that_says_nothing_is_not_waited_for(stage: Stage) -> None:
    found, error = refusal_of(stage.head)
    assert (found, error.code) == (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")
    assert f"{HELLO_S:g} s" in error.message
    stage.check_unharmed()


def test_whoever_knows_a_later_epoch_is_answered_once_it_is_known_here(stage: Stage) -> None:
    cluster = stage.cluster
    serving = cluster.chain.serving
    # Given d, who has read the next file already, and says Hello to the tail
    hello = stage.hello(node="d", incarnation=b"d", epoch=cluster.chain.epoch + 1)
    with Follower(cluster.addresses["c"], *encode_upward(hello, KEY)) as early:
        stage.check_unharmed()
        # When the tail reads it too
        cluster.change(serving, learner="d", state="waiting")
        # Then d is answered: the log is longer than what the tail keeps in memory for those who were just away
        word = early.next_word()
        assert isinstance(word, CatchUp | Continue)
        assert (word.session, word.epoch) == (1, cluster.chain.epoch)
    cluster.change(serving)
    cluster.wait_until_serving()
    cluster.name_lives()
    cluster.wait_until_serving()
    stage.check_unharmed()


def test_acknowledgements_of_another_session_or_epoch_count_for_nothing(stage: Stage) -> None:
    cluster = stage.cluster
    epoch = cluster.chain.epoch
    stage.check_unharmed()
    commit_point = cluster.status("a").commit_point
    lies = [Ack(9, epoch, 1 << 40, {"b": 1 << 40}), Ack(1, epoch + 9, 1 << 40, {"b": 1 << 40})]
    payloads = [part for word in (stage.hello(), *lies) for part in encode_upward(word, KEY)]
    # The one that took b's place is answered, heard out, and gives it back when b comes again
    with Follower(stage.head, *payloads) as liar:
        liar.next_word()
        stage.check_unharmed()
    assert cluster.status("a").durable["b"] < 1 << 40
    assert commit_point <= cluster.status("a").commit_point < 1 << 40


def test_bad_streams_leave_no_memory_behind(stage: Stage) -> None:
    node = stage.cluster.nodes["a"]
    words = bad_words(stage)
    rounds = [words["garbage"], words["endless parts"], words["not Hello"], words["too long for the transport"]]

    def send_all(times: int) -> None:
        for _ in range(times):
            for payloads, _ in rounds:
                refusal_of(stage.head, *payloads)

    send_all(3)
    before = node.resident_bytes()
    send_all(8)
    assert node.resident_bytes() - before < 48 * MIB
    stage.check_unharmed()


# A follower whose upstream is the test


@dataclass
class Pair:
    """b follows a, whom the test plays; both are in epoch 1."""

    cluster: Cluster
    fake: FakeUpstream
    conversation: Conversation
    session: int = 0

    @classmethod
    def greet(cls, cluster: Cluster, fake: FakeUpstream) -> "Pair":
        """From the first Hello to the first batch, which b acknowledges."""
        pair = cls(cluster, fake, fake.next_conversation())
        pair.answer_hello(high_seq=0)
        # The table was not its own: it is stored, then Hello said again.
        pair.answer_hello(high_seq=0)
        pair.send(batch_of(1))
        assert pair.hear_ack(1).durable == {"b": 1}
        return pair

    def answer_hello(self, *, high_seq: int, table: TakeoverTable = TABLE) -> None:
        hello = self.conversation.hear(Hello)
        assert hello.high_seq == high_seq
        self.session = hello.session
        self.conversation.say(Continue(self.session, self.cluster.chain.epoch, table))

    def send(self, batch: Batch, **changes: int) -> None:
        word = Sent(self.session, self.cluster.chain.epoch, batch, {"a": batch.last_seq})
        self.conversation.say(word._replace(**changes))

    def hear_ack(self, seq: int) -> Ack:
        return self.conversation.hear(Ack, lambda ack: ack.session == self.session and ack.synced_seq == seq)

    def check_whole(self, *values: bytes) -> None:
        """b alone goes on with what it took, and with nothing else."""
        self.cluster.change(["b"])
        self.cluster.wait_until_serving()
        with kayos.connect(self.cluster.addresses["b"]) as client:
            with client.consume(TOPIC, start=kayos.Start.beginning(), stop_at_end=True) as consumer:
                assert [message.value for snapshot in consumer for message in snapshot] == list(values)
            client.produce(TOPIC, b"after", key=b"after")
        assert self.cluster.internal_errors("b") == []
        self.cluster.stop_all()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with (
        Cluster.start(tmp_path, nodes="ab", run="b", topic={"min_replicas": 1}) as cluster,
        FakeUpstream.serving(cluster.addresses["a"]) as fake,
    ):
        yield Pair.greet(cluster, fake)


def batch_of(*seqs: int, previous_seq: int | None = None, epoch: int = 1) -> Batch:
    records = tuple(encode_record(seq, 1, 1_000, b"key-%d" % seq, b"value-%d" % seq) for seq in seqs)
    return Batch(epoch, seqs[0] - 1 if previous_seq is None else previous_seq, seqs[-1], 1_000, records)


def test_a_hole_makes_the_follower_say_hello_again(pair: Pair) -> None:
    pair.send(batch_of(5))
    pair.answer_hello(high_seq=1)
    # A batch that reaches back is none that follows, either
    pair.send(batch_of(1, 2, previous_seq=0))
    pair.answer_hello(high_seq=1)
    pair.send(batch_of(2))
    pair.hear_ack(2)
    # And so does the word that more was sent than arrived
    pair.conversation.say(Progress(pair.session, 1, 9, {"a": 9}))
    pair.answer_hello(high_seq=2)
    pair.check_whole(b"value-1", b"value-2")


def test_a_repeated_batch_is_acknowledged_again_and_applied_once(pair: Pair) -> None:
    pair.send(batch_of(2, 3))
    pair.hear_ack(3)
    for _ in range(3):
        pair.send(batch_of(2, 3))
        pair.hear_ack(3)
    pair.send(batch_of(1))
    pair.hear_ack(3)
    pair.check_whole(b"value-1", b"value-2", b"value-3")


def test_words_of_another_epoch_or_session_are_not_heard(pair: Pair) -> None:
    pair.send(replace(batch_of(2), epoch=0), epoch=0)
    pair.send(batch_of(2), epoch=7)
    pair.send(batch_of(2), session=pair.session + 1)
    pair.send(batch_of(2), session=pair.session - 1)
    # Each in its turn: what comes behind them finds the log as it was
    pair.send(batch_of(1))
    pair.hear_ack(1)
    assert pair.cluster.status("b").high_seq == 1
    pair.send(batch_of(2))
    pair.hear_ack(2)
    pair.check_whole(b"value-1", b"value-2")


def test_damage_on_the_way_ends_the_stream_and_nothing_of_it_is_used(pair: Pair) -> None:
    (sound,) = encode_downward(Sent(pair.session, 1, batch_of(2), {"a": 2}))
    for damaged in (sound[:-1], sound[:20] + bytes([sound[20] ^ 4]) + sound[21:], b"garbage", seal_raw(b"\xff" * 99)):
        pair.conversation.say_raw(damaged)
        pair.conversation = pair.fake.next_conversation()
        pair.answer_hello(high_seq=1)
    pair.send(batch_of(2))
    pair.hear_ack(2)
    pair.check_whole(b"value-1", b"value-2")


def test_a_damaged_record_in_a_sound_word_is_not_stored(pair: Pair) -> None:
    (record,) = batch_of(2).records
    damaged = record[:-6] + bytes([record[-6] ^ 1]) + record[-5:]
    pair.send(replace(batch_of(2), records=(damaged,)))
    pair.check_whole(b"value-1")
