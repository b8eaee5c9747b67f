"""The LMDB store against its in-memory twin: random stories, equal answers and equal dumps at every step.

A head and a replica are each such a pair. The replica is fed the head's batches, catches up in pieces, becomes the
head of a rival history and is rolled back, gets full copies, and crashes in the middle of all of it. The
bounds on countable things are set low, so that stories reach them. A failing run prints a blob that replays it.
`KAYOS_TEST_PROFILE=long pytest tests/storage/test_twin.py` looks for an hour.
"""

import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kayos.errors import DamagedRecord, FailedPrecondition, Gap, KayosError, ResetRequired, StaleEpoch, Unavailable
from kayos.model.catch_up import CatchUpPiece, Rollback
from kayos.model.record import record_seq
from kayos.model.sync import SyncPhase
from kayos.model.takeover import TakeoverRow, TakeoverTable
from kayos.model.write import Batch
from kayos.storage.compaction import Compaction
from kayos.storage.interface import Identity, Store
from kayos.storage.memory import MemoryStore

from .drafts import KEYS, PIN_IDS, PRODUCER_IDS, Draft, groups
from .helpers import COMPACT, EVERYTHING, LOG
from .pair import Pair

IS_LONG = os.environ.get("KAYOS_TEST_PROFILE") == "long"
SETTINGS = settings(
    max_examples=20_000 if IS_LONG else 150,
    stateful_step_count=80 if IS_LONG else 40,
    deadline=None,
    print_blob=True,
    derandomize=not IS_LONG,
    database=None,
    suppress_health_check=list(HealthCheck),
)
LOW_LIMITS = {"PINS_MAX": 3, "ENDED_PINS_KEPT": 2, "MARKS_MAX": 3, "PRODUCERS_MAX": 3, "PRODUCER_RESULTS_KEPT": 3}
SHARED_MEMORY = Path("/dev/shm")

sizes = st.sampled_from([1, 100, 3000, 20_000, EVERYTHING])
cuts = st.sampled_from(["", "", "rolled back", "first piece", "cancelled"])


class TwinMachine(RuleBasedStateMachine):
    identity: Identity

    @initialize()
    def begin(self) -> None:
        parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        self.directory = Path(tempfile.mkdtemp(prefix="kayos-twin-", dir=parent))
        self.directories_made = 0
        self.now_ms = 1_000
        self.histories_made = 0
        self.head = self.new_pair()
        self.replica = self.new_pair()
        self.waiting: list[Batch] = []  # batches that the replica has not been given yet
        self.given: list[Batch] = []
        self.snapshots: dict[tuple[str, int], tuple[bytes, ...]] = {}
        self.take_over_all()

    def new_pair(self) -> Pair:
        self.directories_made += 1
        return Pair(self.directory / str(self.directories_made), self.identity)

    # The head

    @rule(group=groups, later_ms=st.sampled_from([0, 0, 1, 10, 100, -50]))
    def commit(self, group: list[Draft], later_ms: int) -> None:
        self.now_ms += later_ms
        before = self.head.twin.copy()
        batch = self.head.commit([draft.resolve(before) for draft in group], self.now_ms)
        if batch is None:
            assert list(self.head.twin.dump()) == list(before.dump())
            return
        self.waiting.append(batch)
        self.remember_snapshots(before, batch)

    def remember_snapshots(self, before: MemoryStore, batch: Batch) -> None:
        """What each new pin must show for ever: the log as it stands when the batch is cut at the pin."""
        for pin in self.head.twin.list_pins():
            if pin.is_alive and (pin.pin_id, pin.seq) not in self.snapshots:
                cut = before.copy()
                records = tuple(record for record in batch.records if record_seq(record) <= pin.seq)
                cut.apply([replace(batch, last_seq=pin.seq, records=records)])
                self.snapshots[pin.pin_id, pin.seq] = cut.read_log(0, bytes_max=EVERYTHING).records

    @rule(jump=st.integers(0, 2))
    def take_over(self, jump: int) -> None:
        self.deliver_all()
        self.take_over_all(jump)

    def take_over_all(self, jump: int = 1) -> None:
        epoch = self.head.twin.state.epoch + jump
        self.begin_history(self.head, epoch)
        table = self.head.twin.state.takeover
        assert self.replica.both(lambda store: store.adopt_takeover(table, epoch)) is None

    def begin_history(self, pair: Pair, epoch: int) -> None:
        self.histories_made += 1
        row = TakeoverRow(b"history %08d" % self.histories_made, pair.twin.state.high_seq, epoch)
        assert pair.both(lambda store: store.take_over(row)) is None

    @rule(start=st.integers(1, 3))
    def take_over_elsewhere(self, start: int) -> None:
        """A takeover must start where the log ends."""
        row = TakeoverRow(b"history mistaken", self.head.twin.state.high_seq + start, 99)
        assert isinstance(self.head.both(lambda store: store.take_over(row)), KayosError)
        table = TakeoverTable((row,))
        assert isinstance(self.replica.both(lambda store: store.adopt_takeover(table, 99)), KayosError)

    @rule(share=st.integers(0, 100))
    def save_commit_point(self, share: int) -> None:
        """What both hold."""
        number = self.replica.twin.state.high_seq * share // 100
        for pair in (self.head, self.replica):
            pair.both(lambda store: store.save_commit_point(number))

    # Maintenance, which must change nothing that can be seen

    @rule(which=st.booleans())
    def reopen(self, which: bool) -> None:
        (self.head if which else self.replica).reopen()

    @rule(which=st.booleans(), group=groups)
    def compact(self, which: bool, group: list[Draft]) -> None:
        """Writers go on between the copy and the swap."""
        pair = self.head if which else self.replica
        compaction = Compaction(pair.lmdb)
        compaction.prepare()
        self.commit(group, later_ms=1)
        if not which:
            self.deliver_all()
        compaction.swap()

    @rule(rows_max=st.sampled_from([1, 3, 1000]))
    def sweep(self, rows_max: int) -> None:
        if self.head.lmdb.sweep_retained(rows_max):
            assert self.head.lmdb.usage().retained == self.head.twin.usage().retained

    # The replica

    @precondition(lambda self: self.waiting)
    @rule(count=st.integers(1, 4), repeats=st.integers(0, 2), share=st.integers(0, 100))
    def deliver(self, count: int, repeats: int = 0, share: int = 0) -> None:
        """Several batches in one commit, behind some that came before in the same epoch."""
        batches = self.waiting[:count]
        epoch = self.replica.twin.state.epoch
        again = [batch for batch in self.given[-repeats:] if repeats and batch.epoch >= epoch]
        commit_point = batches[-1].last_seq * share // 100
        answer = self.replica.both(lambda store: store.apply([*again, *batches], commit_point=commit_point))
        assert answer is None
        assert self.replica.twin.state.commit_point >= commit_point
        self.given += batches
        del self.waiting[:count]

    def deliver_all(self) -> None:
        if self.waiting:
            self.deliver(len(self.waiting))
        assert list(self.replica.twin.dump()) == list(self.head.twin.dump())

    @precondition(lambda self: self.given)
    @rule(at=st.integers(0, 100))
    def deliver_again(self, at: int) -> None:
        """A repeat is fine, unless its head was replaced since."""
        batch = self.given[at % len(self.given)]
        answer = self.replica.both(lambda store: store.apply([batch]))
        if batch.epoch < self.replica.twin.state.epoch:
            assert isinstance(answer, StaleEpoch)
        else:
            assert answer is None

    @precondition(lambda self: len(self.waiting) > 1)
    @rule(at=st.integers(0, 10))
    def deliver_with_a_hole(self, at: int) -> None:
        """Nothing of the call is taken, not even what stands before the hole."""
        at %= len(self.waiting) - 1
        batches = [*self.waiting[:at], *self.waiting[at + 1 :]]
        assert isinstance(self.replica.both(lambda store: store.apply(batches)), Gap)

    @precondition(lambda self: self.waiting)
    @rule(at=st.integers(0, 10_000), bit=st.integers(0, 7))
    def deliver_damaged(self, at: int, bit: int) -> None:
        *before, batch = self.waiting[: 1 + at % 3]
        which = at % len(batch.records)
        damaged = bytearray(batch.records[which])
        damaged[at % len(damaged)] ^= 1 << bit
        records = (*batch.records[:which], bytes(damaged), *batch.records[which + 1 :])
        answer = self.replica.both(lambda store: store.apply([*before, replace(batch, records=records)]))
        assert isinstance(answer, DamagedRecord)

    @precondition(lambda self: self.waiting and self.replica.twin.state.epoch > 0)
    @rule()
    def deliver_from_an_old_head(self) -> None:
        stale = replace(self.waiting[0], epoch=self.replica.twin.state.epoch - 1)
        assert isinstance(self.replica.both(lambda store: store.apply([stale])), StaleEpoch)

    # Copies of a state that goes on changing

    @rule(start=st.sampled_from(["behind", "new", "reset", "clone"]), bytes_max=sizes, group=groups, cut=cuts)
    def catch_up(self, start: str, bytes_max: int, group: list[Draft], cut: str) -> None:
        if start == "new":
            self.replica.close()
            self.replica = self.new_pair()
        elif start != "behind":
            self.replica.both(lambda store: store.begin_copy(is_clone=start == "clone"))
        self.catch_up_whole(bytes_max, group, cut)

    @rule(
        rival=st.lists(groups, min_size=1, max_size=3),
        before=groups,
        after=groups,
        bytes_max=sizes,
        cut=cuts,
        is_clone=st.booleans(),
    )
    def diverge(
        self,
        rival: list[list[Draft]],
        before: list[Draft],
        after: list[Draft],
        bytes_max: int,
        cut: str,
        is_clone: bool,
    ) -> None:
        """The replica became head of a history of its own, and the log went on without it; they share what it held."""
        shared_seq = self.replica.twin.state.high_seq
        epoch = self.head.twin.state.epoch + 1
        self.begin_history(self.replica, epoch)
        for group in rival:
            requests = [draft.resolve(self.replica.twin) for draft in group]
            self.replica.commit(requests, self.now_ms)
        self.commit(before, later_ms=1)
        self.begin_history(self.head, epoch + 1)
        if is_clone:
            self.replica.both(lambda store: store.begin_copy(is_clone=True))
        if self.replica.twin.state.high_seq > shared_seq:
            self.roll_back(shared_seq, bytes_max)
            if cut == "rolled back":
                self.replica.crash()
                if self.replica.twin.state.sync.is_ready:
                    # A copy was lost, and the rival's log is there again, as it was.
                    self.roll_back(shared_seq, bytes_max)
        self.catch_up_whole(bytes_max, after, cut)

    def roll_back(self, to_seq: int, bytes_max: int) -> None:
        """Asked of the upstream as replicas do; where messages were removed, everything is copied instead."""
        replica, head = self.replica, self.head
        keys = replica.both(lambda store: store.find_diverged(to_seq, rows_max=1000))
        assert replica.both(lambda store: store.find_diverged(to_seq, rows_max=len(keys) // 2)) in (None, (), keys)
        records: list[bytes] = []
        answered = 0
        while True:
            asked = keys[answered:]
            found = head.both(lambda store, asked=asked: store.find_restorable(asked, to_seq, bytes_max=bytes_max))
            records += found.records
            answered += found.answered
            if answered == len(keys):
                break
        rollback = Rollback(to_seq, tuple(records), found.history_id, found.end_seq)
        if records:
            twice = replace(rollback, records=(*rollback.records, records[0]))
            assert isinstance(replica.both(lambda store: store.roll_back(twice)), FailedPrecondition)
        removed = replica.twin.state.floors.removal_seq > to_seq
        answer = replica.both(lambda store: store.roll_back(rollback))
        assert isinstance(answer, FailedPrecondition) if removed else answer is None
        replica.compare()
        if removed:
            replica.both(lambda store: store.begin_copy())

    def catch_up_whole(self, bytes_max: int, group: list[Draft], cut: str) -> None:
        """In pieces; the head goes on writing, and the replica may crash, between the first one and the others."""
        is_whole = self.take_piece(bytes_max)
        if not is_whole:
            self.check_closed()
            self.replica.compare()
            self.commit(group, later_ms=1)
            if cut == "first piece":
                was_copying = self.replica.twin.state.is_copying
                self.replica.crash()
                if was_copying:
                    self.replica.both(lambda store: store.begin_copy())
            elif cut == "cancelled":
                self.replica.both(lambda store: store.cancel_copy())
                self.replica.compare()
                self.replica.both(lambda store: store.begin_copy())
            self.replica.both(lambda store: store.save_epoch(self.head.twin.state.epoch))
            while not self.take_piece(bytes_max):
                self.replica.compare()
        self.waiting.clear()
        self.given.clear()
        assert list(self.replica.lmdb.dump()) == list(self.head.lmdb.dump())

    def take_piece(self, bytes_max: int) -> bool:
        """One piece; whether the replica is whole with it."""
        state = self.replica.twin.state
        after_seq, start_seq = state.high_seq, state.high_seq
        if not state.sync.is_ready:
            after_seq, start_seq = state.sync.through_seq, state.sync.start_seq

        def read(store: Store) -> CatchUpPiece:
            return store.read_catch_up(
                after_seq, start_seq=start_seq, bytes_max=bytes_max, all_retained=state.lacks_retained
            )

        self.head.both(read)
        piece = read(self.head.lmdb)
        answer = self.replica.both(lambda store: store.apply_catch_up(piece))
        if isinstance(answer, ResetRequired):
            self.replica.both(lambda store: store.begin_copy())
            return False
        assert answer is None
        return self.replica.twin.state.sync.is_ready

    def check_closed(self) -> None:
        assert self.replica.twin.state.sync.phase is SyncPhase.CATCHING_UP
        for read in (
            lambda store: store.read_log(0, bytes_max=1),
            lambda store: store.read_pin("p", 0, bytes_max=1),
            lambda store: store.get(b"a"),
            lambda store: store.read_catch_up(0, start_seq=0, bytes_max=1),
            lambda store: store.find_diverged(0, rows_max=1),
            lambda store: store.find_restorable([], 0, bytes_max=1),
        ):
            assert isinstance(self.replica.both(read), Unavailable)
        rollback = Rollback(0, (), b"", 0)
        for write in (
            lambda store: store.commit([], now_ms=1),
            lambda store: store.apply([]),
            lambda store: store.adopt_takeover(TakeoverTable(), 0),
            lambda store: store.roll_back(rollback),
        ):
            assert isinstance(self.replica.both(write), FailedPrecondition)

    # Reading

    @rule(
        after=st.integers(0, 110),
        end=st.one_of(st.none(), st.integers(0, 110)),
        bytes_max=sizes,
        tombstones=st.booleans(),
        pin_id=st.sampled_from(PIN_IDS),
    )
    def read(self, after: int, end: int | None, bytes_max: int, tombstones: bool, pin_id: str) -> None:
        high_seq = self.head.twin.state.high_seq
        after_seq = high_seq * after // 100
        end_seq = None if end is None else high_seq * end // 100
        self.head.both(
            lambda store: store.read_log(after_seq, bytes_max=bytes_max, end_seq=end_seq, tombstones=tombstones)
        )
        for pair in (self.head, self.replica):
            pair.both(
                lambda store: store.read_pin(
                    pin_id, after_seq, bytes_max=bytes_max, end_seq=end_seq, tombstones=tombstones
                )
            )

    @rule(share=st.integers(0, 110), rows_max=st.integers(1, 10), ms=st.integers(-100, 100))
    def find(self, share: int, rows_max: int, ms: int) -> None:
        seq = self.head.twin.state.high_seq * share // 100
        at_ms = self.now_ms + ms
        for pair in (self.head, self.replica):
            pair.both(lambda store: store.find_seq_before_time(at_ms))
            pair.both(lambda store: store.find_expired(at_ms, rows_max))
            pair.both(lambda store: store.find_purgeable(seq, rows_max))
            pair.both(lambda store: store.list_marks())
            pair.both(lambda store: store.list_pins())
            pair.both(lambda store: [store.find_pin(pin_id) for pin_id in PIN_IDS])
            pair.both(lambda store: [store.find_producer(producer_id) for producer_id in PRODUCER_IDS])
            pair.both(lambda store: shown_usage(store))
            for key in KEYS[1:]:
                pair.both(lambda store, key=key: store.get(key))

    # Always

    @invariant()
    def pairs_are_equal(self) -> None:
        self.head.compare()
        self.replica.compare()

    @invariant()
    def pins_show_what_they_pinned(self) -> None:
        for pair in (self.head, self.replica):
            for pin in pair.twin.list_pins():
                if pin.is_alive:
                    piece = pair.lmdb.read_pin(pin.pin_id, 0, bytes_max=EVERYTHING)
                    assert piece.records == self.snapshots[pin.pin_id, pin.seq]

    def teardown(self) -> None:
        if hasattr(self, "replica"):
            self.head.close()
            self.replica.close()
            shutil.rmtree(self.directory)


def shown_usage(store: object) -> object:
    usage = store.usage()
    return replace(usage, retained=0, retained_bytes=0, map_bytes=0, file_bytes=0, free_bytes=0)


class CompactMachine(TwinMachine):
    identity = COMPACT


class LogMachine(TwinMachine):
    identity = LOG


@pytest.fixture(autouse=True)
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every module of the stores that knows a bound gets the low one."""
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("kayos.storage."):
            for name, value in LOW_LIMITS.items():
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, value)


@pytest.mark.timeout(0 if IS_LONG else 120)
@pytest.mark.parametrize("machine", [CompactMachine, LogMachine], ids=["compact", "log"])
def test_lmdb_store_equals_its_twin(machine: type[TwinMachine]) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(machine, settings=SETTINGS)
