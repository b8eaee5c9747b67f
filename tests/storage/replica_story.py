"""A replica's story that can be checked after a crash at any moment: batches, rollbacks, catch-ups and full copies.

Every step is first told to an in-memory twin, which knows what a crash after it would leave; that is the intent. Then
the store on the disk takes the step, which is the acknowledgement. A crash must leave one of the last two.
"""

import hashlib
import random
from collections.abc import Callable, Iterable
from pathlib import Path

from kayos.model.catch_up import CatchUpPiece
from kayos.model.control import CreatePin, EndPin, Purge
from kayos.model.takeover import TakeoverRow
from kayos.model.write import Batch, ControlRequest, Request, WriteRequest
from kayos.storage.interface import Store
from kayos.storage.lmdb_store import LmdbStore
from kayos.storage.memory import MemoryStore

from .helpers import COMPACT, EVERYTHING, catch_up, find_rollback
from .story import OPTIONS

KEYS = [b"key-%d" % number for number in range(20)]


def digest_of(store: Store) -> str:
    state = store.state
    own = (state.sync, state.lacks_retained, state.commit_point, state.is_copying)
    return hashlib.sha256(repr([own, *store.dump()]).encode()).hexdigest()


class ReplicaStory:
    def __init__(self, directory: Path, seed: int, tell: Callable[[str], None]) -> None:
        self.random = random.Random(seed)
        self.tell = tell
        self.store = LmdbStore.open(directory, COMPACT, OPTIONS)
        self.twin = MemoryStore(COMPACT)
        self.upstream = MemoryStore(COMPACT)
        self.epoch = 0
        self.pins_made = 0
        self.begin_history(self.upstream.take_over, 0)
        self.step(lambda store: store.adopt_takeover(self.upstream.state.takeover, self.epoch))

    def step(self, call: Callable[[Store], object]) -> None:
        call(self.twin)
        image = digest_of(self.twin.copy())
        self.tell(f"intent {image}\n")
        call(self.store)
        self.tell(f"acknowledged {image}\n")

    def tell_on(self, turns: int) -> None:
        """Each turn ends with the replica being what its upstream is."""
        for _ in range(turns):
            self.random.choice([self.follow, self.fall_behind, self.diverge, self.copy, self.compact])()
        self.store.close()

    def begin_history(self, take_over: Callable[[TakeoverRow], object], high_seq: int) -> None:
        self.epoch += 1
        take_over(TakeoverRow(self.random.randbytes(16), high_seq, self.epoch))

    def write(self, store: Store, groups: int) -> list[Batch]:
        """What a head writes; only the upstream purges, so that every rollback is possible."""
        batches: list[Batch] = []
        for _ in range(groups):
            keys = self.random.choices(KEYS, k=5)
            values = [self.random.randbytes(self.random.choice([5, 50, 3000])) for _ in keys]
            kinds = bytes(self.random.choice([1, 1, 1, 2]) for _ in keys)
            requests: list[Request] = [WriteRequest([*keys, b""], [*values, b"unkeyed"], kinds + b"\x01")]
            requests += [ControlRequest(each) for each in self.controls(store)]
            store.commit(requests, now_ms=store.state.last_timestamp_ms + 1, forward=batches.append)
        return batches

    def controls(self, store: Store) -> Iterable[CreatePin | EndPin | Purge]:
        living = [pin.pin_id for pin in store.list_pins() if pin.is_alive]
        if self.random.random() < 0.3:
            self.pins_made += 1
            yield CreatePin(f"p{self.pins_made}", 1000) if len(living) < 2 else EndPin(living[0], "released")
        if store is self.upstream and self.random.random() < 0.1:
            yield Purge(store.state.high_seq // 2)

    # The turns

    def follow(self) -> None:
        batches = self.write(self.upstream, 4)
        self.step(lambda store: store.apply(batches[:3], commit_point=batches[0].last_seq))
        self.step(lambda store: store.apply(batches[2:]))

    def fall_behind(self) -> None:
        self.write(self.upstream, 5)
        self.catch_up()

    def diverge(self) -> None:
        shared_seq = self.twin.state.high_seq
        self.begin_rival(shared_seq)
        self.write(self.upstream, 2)
        self.begin_history(self.upstream.take_over, self.upstream.state.high_seq)
        if self.random.random() < 0.5:
            self.step(lambda store: store.begin_copy(is_clone=True))
        rollback = find_rollback(self.twin, self.upstream, shared_seq)
        self.step(lambda store: store.roll_back(rollback))
        self.catch_up()

    def begin_rival(self, shared_seq: int) -> None:
        self.begin_history(lambda row: self.step(lambda store: store.take_over(row)), shared_seq)
        rival = self.twin.copy()
        for batch in self.write(rival, 2):
            self.step(lambda store, batch=batch: store.apply([batch]))

    def copy(self) -> None:
        self.step(lambda store: store.begin_copy())
        self.epoch += 1
        epoch = self.epoch
        self.step(lambda store: store.save_epoch(epoch))
        self.begin_history(self.upstream.take_over, self.upstream.state.high_seq)
        if self.random.random() < 0.3:
            piece = self.next_piece(1)
            self.step(lambda store: store.apply_catch_up(piece))
            self.step(lambda store: store.cancel_copy())
            self.step(lambda store: store.begin_copy())
        self.catch_up()

    def compact(self) -> None:
        """An error of the disk makes the store write itself anew; nothing of its content changes."""
        self.store.place.known_transaction -= 1
        self.store.reopen()

    def catch_up(self) -> None:
        while True:
            piece = self.next_piece(self.random.choice([2000, 10_000, EVERYTHING]))
            if piece.tables is not None and self.twin_needs_copy(piece):
                self.step(lambda store: store.begin_copy())
                continue
            self.step(lambda store, piece=piece: store.apply_catch_up(piece))
            if piece.tables is not None:
                break
        assert list(self.twin.dump()) == list(self.upstream.dump())

    def next_piece(self, bytes_max: int) -> CatchUpPiece:
        state, sync = self.twin.state, self.twin.state.sync
        after_seq, start_seq = (sync.through_seq, sync.start_seq) if not sync.is_ready else (state.high_seq,) * 2
        return self.upstream.read_catch_up(after_seq, start_seq=start_seq, bytes_max=bytes_max, all_retained=True)

    def twin_needs_copy(self, piece: CatchUpPiece) -> bool:
        """Purges overtook it: rows cannot tell."""
        sync, rows = self.twin.state.sync, piece.slice
        start_seq = self.twin.state.high_seq if sync.is_ready else sync.start_seq or sync.first_end_seq or rows.end_seq
        assert piece.tables is not None
        return piece.tables.floors.purge_seq > (start_seq or rows.end_seq)


def check_replica(directory: Path, lines: Iterable[str]) -> None:
    """What a crash left is one of the last two states, and a replica can be made of it again."""
    acknowledged = intended = digest_of(MemoryStore(COMPACT))
    for line in lines:
        word, digest = line.split()
        intended = digest
        acknowledged = digest if word == "acknowledged" else acknowledged
    store = LmdbStore.open(directory, COMPACT, OPTIONS)
    assert digest_of(store) in (acknowledged, intended)
    upstream = MemoryStore(COMPACT)
    upstream.take_over(TakeoverRow(b"history-restored", 0, store.state.epoch + 1))
    upstream.commit([WriteRequest(KEYS, KEYS)], now_ms=1)
    store.begin_copy()
    catch_up(store, upstream, bytes_max=500)
    assert list(store.dump()) == list(upstream.dump())
    store.close()
