"""Random requests for stores, as drafts: drawn without knowledge, resolved against the store they meet.

A condition that holds, a producer number that repeats or a mark just above the stored one can only be written
down once the store's state is known. Drafts print short, so that a failing story can be read.
"""

from typing import NamedTuple

from hypothesis import strategies as st

from kayos.model import control as controls
from kayos.model.control import Control
from kayos.model.mark import Mark
from kayos.model.producer import ProducerStamp
from kayos.model.record import Kind, pack_headers
from kayos.model.topic import Mode
from kayos.model.write import ControlRequest, Request, WriteRequest
from kayos.storage.memory import MemoryStore

# Few keys, so that they meet again; around and above LMDB's limit of 511 bytes, with equal beginnings.
KEYS = [
    b"",
    b"a",
    b"b",
    b"\x00",
    b"\xff" * 8,
    b"c" * 510,
    b"c" * 511,
    b"c" * 512,
    b"c" * 511 + b"d",
    b"c" * 4096,
    b"c" * 4095 + b"d",
    b"d" + b"c" * 4095,
]
CONSUMERS = ["one", "two", "three", "four"]
PIN_IDS = ["p", "q", "r", "s", "t"]
PRODUCER_IDS = [b"x", b"y", b"\x00" * 64, b"z"]
UNKNOWN_HISTORY = b"no such history!"


class MessageDraft(NamedTuple):
    key: int
    value: bytes
    is_delete: bool
    headers: tuple[tuple[str, bytes], ...]
    ttl_ms: int | None
    condition: str


class ProducerDraft(NamedTuple):
    """`step` counts from the last number that the store knows: 1 is the next, 0 and below repeat."""

    producer: int
    epoch_step: int
    step: int


class WriteDraft(NamedTuple):
    messages: tuple[MessageDraft, ...]
    producer: ProducerDraft | None

    def resolve(self, twin: MemoryStore) -> Request:
        mode = twin.state.identity.mode
        keys = [KEYS[message.key] for message in self.messages]
        deletes = [
            message.is_delete and (mode is Mode.LOG or bool(key))
            for message, key in zip(self.messages, keys, strict=True)
        ]
        kinds = bytes(Kind.DELETE if is_delete else Kind.PUT for is_delete in deletes)
        return WriteRequest(
            keys=keys,
            values=[b"" if gone else message.value for message, gone in zip(self.messages, deletes, strict=True)],
            kinds=kinds if any(deletes) else b"",
            headers={at: pack_headers(draft.headers) for at, draft in enumerate(self.messages) if draft.headers},
            ttl_ms={
                at: draft.ttl_ms
                for at, draft in enumerate(self.messages)
                if draft.ttl_ms is not None and not deletes[at]
            },
            expected={
                at: find_condition(twin, keys[at], draft.condition)
                for at, draft in enumerate(self.messages)
                if draft.condition and keys[at]
            },
            producer=None if self.producer is None else find_stamp(twin, self.producer),
        )


class ControlDraft(NamedTuple):
    """`share` places a sequence in the log in percent; above 100 it lies beyond the end."""

    name: str
    which: int
    share: int
    choice: int

    def resolve(self, twin: MemoryStore) -> Request:
        return ControlRequest(self._find_control(twin))

    def _find_control(self, twin: MemoryStore) -> Control:
        seq = twin.state.high_seq * self.share // 100
        pin_id = PIN_IDS[self.which % len(PIN_IDS)]
        consumer = CONSUMERS[self.which % len(CONSUMERS)]
        match self.name:
            case "commit_mark":
                return controls.CommitMark(consumer, self._find_mark(twin, seq), forced=self.choice % 4 == 0)
            case "drop_mark":
                return controls.DropMark(consumer)
            case "create_pin":
                return controls.CreatePin(pin_id, lease_ms=self.choice)
            case "renew_pin":
                return controls.RenewPin(pin_id, lease_ms=self.choice)
            case "end_pin":
                return controls.EndPin(pin_id, "released")
            case "purge":
                return controls.Purge(seq)
            case "trim":
                return controls.Trim(seq)
            case "expire":
                return self._find_expire(twin, seq)
            case _:
                return controls.ForgetProducers(seq)

    def _find_mark(self, twin: MemoryStore, seq: int) -> Mark:
        rows = twin.state.takeover.rows
        histories = [twin.state.takeover.find_history_at(seq)] * 4 + [rows[0].history_id, UNKNOWN_HISTORY]
        return Mark(histories[self.choice % len(histories)], seq, seq // 2, seq)

    def _find_expire(self, twin: MemoryStore, seq: int) -> Control:
        now_ms = twin.state.last_timestamp_ms
        found = twin.find_expired(now_ms, rows_max=1 + self.choice) or (max(0, now_ms + self.choice % 3 - 1), seq)
        return controls.Expire(*found, aged_seq=seq if self.which % 3 == 0 else 0)


Draft = WriteDraft | ControlDraft


def find_condition(twin: MemoryStore, key: bytes, condition: str) -> int:
    if condition == "absent" or twin.state.identity.mode is Mode.LOG:
        return 0
    record = twin.get(key)
    live_seq = record.seq if record is not None and record.kind == Kind.PUT else 0
    return live_seq if condition == "right" else live_seq + 1


def find_stamp(twin: MemoryStore, draft: ProducerDraft) -> ProducerStamp:
    producer_id = PRODUCER_IDS[draft.producer]
    row = twin.find_producer(producer_id)
    if row is None:
        return ProducerStamp(producer_id, 1, 1 if draft.step > -2 else 2)
    epoch = row.producer_epoch + draft.epoch_step
    number = 1 if draft.epoch_step > 0 and draft.step >= 0 else row.last.number + draft.step
    return ProducerStamp(producer_id, max(epoch, 0), max(number, 0))


values = st.one_of(st.binary(max_size=20), st.integers(0, 255).map(lambda byte: bytes([byte]) * 3000))
headers = st.one_of(
    st.just(()),
    st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), min_size=1, max_size=3).map(tuple),
)
messages = st.builds(
    MessageDraft,
    key=st.integers(0, len(KEYS) - 1),
    value=values,
    is_delete=st.sampled_from([False, False, True]),
    headers=headers,
    ttl_ms=st.one_of(st.none(), st.none(), st.integers(1, 50)),
    condition=st.sampled_from(["", "", "", "", "right", "right", "absent", "wrong"]),
)
producers = st.builds(
    ProducerDraft,
    producer=st.integers(0, len(PRODUCER_IDS) - 1),
    epoch_step=st.sampled_from([0, 0, 0, 0, 1, -1]),
    step=st.sampled_from([1, 1, 1, 1, 0, -1, -2, -3, 2]),
)
writes = st.builds(
    WriteDraft,
    messages=st.lists(messages, min_size=0, max_size=5).map(tuple),
    producer=st.one_of(st.none(), st.none(), producers),
)
control_drafts = st.builds(
    ControlDraft,
    name=st.sampled_from(
        [
            "commit_mark",
            "commit_mark",
            "drop_mark",
            "create_pin",
            "create_pin",
            "renew_pin",
            "end_pin",
            "purge",
            "trim",
            "expire",
            "expire",
            "forget_producers",
        ]
    ),
    which=st.integers(0, 4),
    share=st.integers(0, 110),
    choice=st.integers(0, 5),
)
drafts = st.one_of(writes, writes, writes, control_drafts)
groups = st.lists(drafts, min_size=1, max_size=5)
