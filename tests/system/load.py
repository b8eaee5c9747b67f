"""Producers and consumers that work while a test breaks things, and write down what they did and saw.

    with Load(cluster.servers) as load:
        load.wait_for_progress()       # every kind of client has got on since
        ...
        load.finish()                  # nobody writes any more, every consumer has read to the end
    assert not load.check()

A client whose call fails with what a healing cluster must never say notes it as a trouble, which `check` reports.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace

import kayos
from kayos import Start
from kayos.client.core.delivery import Delivery
from kayos.errors import Aborted, ConditionFailed, KayosError, MarkNotFound, SnapshotExpired, WriteUnknown
from tests.chains import TOPIC
from tests.history import ID_HEADER, Boundary, History, Outcome, PinnedRead, Sighting, Write, check, sighting_of
from tests.seeds import choose_seed

KEYS = [b"key-%02d" % number for number in range(24)]
GROUPS = [tuple(b"tx-%d-%d" % (group, member) for member in range(3)) for group in range(4)]
LAST_KEY = b"the-end"
PROGRESS_S = 60.0
NEVER_SEQ = 1 << 60
BURST = 12


class Load:
    """Start it with `with`; its threads end with the block, whatever happens."""

    def __init__(self, servers: str) -> None:
        self.history = History(groups=list(GROUPS))
        self._seed = choose_seed()
        self._writers = kayos.connect(servers)
        self._others = kayos.connect(servers)
        self._readers = kayos.connect(servers)
        self._stopping = threading.Event()
        self._finishing = threading.Event()
        self._progress: dict[str, int] = {}
        self._sources: list[kayos.Consumer | kayos.MessageConsumer] = []
        self._lock = threading.Lock()
        self._producers = [
            self._thread("keyed-1", lambda name: KeyedProducer(self, name, self._writers).run()),
            self._thread("keyed-2", lambda name: KeyedProducer(self, name, self._others).run()),
            self._thread("pipelined", lambda name: PipelinedProducer(self, name, self._writers).run()),
            self._thread("transactions", lambda name: TransactionProducer(self, name, self._others).run()),
            self._thread("one-copy", lambda name: KeyedProducer(self, name, self._others, durability=1).run()),
        ]
        self._consumers = [
            self._thread("often", lambda name: SnapshotReader(self, name, commit_every=1, restart_every=15).run()),
            self._thread("seldom", lambda name: SnapshotReader(self, name, commit_every=4, restart_every=50).run()),
            self._thread("messages", lambda name: MessageReader(self, name).run()),
        ]
        self._pinner = self._thread("pinner", lambda name: Pinner(self, name).run())

    @property
    def _threads(self) -> list[threading.Thread]:
        return [*self._producers, *self._consumers, self._pinner]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        self._finishing.set()
        for source in list(self._sources):
            source.close()
        for client in (self._writers, self._others, self._readers):
            client.close()
        for thread in self._threads:
            thread.join(PROGRESS_S)

    # For the test

    def wait_for_progress(self, *names: str, steps: int = 3) -> None:
        """Until each client (or those named) has done something new, and some more."""
        before = dict(self._progress)
        wanted = names or tuple(thread.name for thread in self._threads)

        def has_moved() -> bool:
            return all(self._progress.get(name, 0) >= before.get(name, 0) + steps for name in wanted)

        self._wait_until(has_moved, lambda: f"{wanted}: {before} → {self._progress}")

    def finish(self) -> None:
        """Stop writing, and wait until every consumer has read all of it."""
        self._stopping.set()
        for thread in (*self._producers, self._pinner):
            thread.join(PROGRESS_S)
            assert not thread.is_alive(), f"{thread.name} hangs"
        last = self._others.produce(TOPIC, b"end", key=LAST_KEY)
        self.note_write("finish", 0, LAST_KEY, b"end", "all", last)
        self._wait_until(lambda: self._has_read_to(last.seq), lambda: f"reading to {last.seq}: {self._progress}")
        self._finishing.set()
        for source in list(self._sources):
            source.close()
        for thread in self._consumers:
            thread.join(PROGRESS_S)
            assert not thread.is_alive(), f"{thread.name} hangs"

    def check(self) -> list[str]:
        """After `finish`: read the log from the beginning and hold all that happened against it."""
        with self._readers.consume(TOPIC, start=Start.beginning(), stop_at_end=True) as consumer:
            final = [sighting_of(message) for snapshot in consumer for message in snapshot]
        return check(self.history, final)

    def _has_read_to(self, seq: int) -> bool:
        history = self.history
        ends = [boundaries[-1] for boundaries in history.boundaries.values() if boundaries]
        lasts = [stream[-1].seq for stream in history.streams.values() if stream]
        return (
            len(lasts) == 1 and len(ends) == 2 and all(end and end.end_seq >= seq for end in ends) and lasts[0] >= seq
        )

    def _wait_until(self, reached: Callable[[], bool], describe: Callable[[], str]) -> None:
        ends_at = time.monotonic() + PROGRESS_S
        while not reached():
            assert time.monotonic() < ends_at, f"no progress: {describe()}; {self.history.troubles}"
            time.sleep(0.02)

    # For the clients

    def _thread(self, name: str, run: Callable[[str], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                run(name)
            except BaseException as error:
                if not self._finishing.is_set():
                    self.history.note_trouble(f"{name} ended: {error!r}")
                    raise

        return threading.Thread(target=guarded, name=name, daemon=True)

    @property
    def readers(self) -> kayos.Client:
        return self._readers

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def is_finishing(self) -> bool:
        return self._finishing.is_set()

    def pause(self, seconds: float) -> bool:
        return self._stopping.wait(seconds)

    def random(self, name: str) -> random.Random:
        return random.Random(f"{self._seed} {name}")

    def step(self, name: str) -> None:
        self._progress[name] = self._progress.get(name, 0) + 1

    @contextmanager
    def source(self, source: kayos.Consumer | kayos.MessageConsumer) -> Iterator[None]:
        """Known to whoever ends the load, for as long as it is read."""
        with self._lock:
            self._sources.append(source)
        try:
            with source:
                yield
        finally:
            with self._lock:
                self._sources.remove(source)

    def note_write(
        self, name: str, number: int, key: bytes, write_id: bytes, durability: int | str, outcome: Delivery | KayosError
    ) -> None:
        self.history.note(self.describe_write(name, number, key, write_id, durability, outcome))

    def describe_write(
        self,
        name: str,
        number: int,
        key: bytes,
        write_id: bytes,
        durability: int | str,
        outcome: Delivery | KayosError,
        *,
        is_delete: bool = False,
    ) -> Write:
        plain = Write(name, number, key, write_id, is_delete, durability, Outcome.UNKNOWN)
        if isinstance(outcome, Delivery):
            return replace(plain, outcome=Outcome.ACKNOWLEDGED, seq=outcome.seq, history_id=outcome.history_id)
        if isinstance(outcome, ConditionFailed):
            return replace(plain, outcome=Outcome.REFUSED)
        if not isinstance(outcome, WriteUnknown):
            self.history.note_trouble(f"{name} {number}: {outcome!r}")
        return plain


class KeyedProducer:
    """One write at a time: puts, now and then a delete, and writes whose condition cannot be met."""

    def __init__(self, load: Load, name: str, client: kayos.Client, durability: int | str = "all") -> None:
        self._load = load
        self._name = name
        self._client = client
        self._durability = durability
        self._random = load.random(name)

    def run(self) -> None:
        number = 0
        while not self._load.is_stopping:
            number += 1
            self._load.history.note(self._write(number, self._random.choice(KEYS), self._random.random()))
            self._load.step(self._name)
            self._load.pause(0.002)

    def _write(self, number: int, key: bytes, choice: float) -> Write:
        write_id = b"%s/%d" % (self._name.encode(), number)
        is_delete = choice < 0.1
        outcome: Delivery | KayosError
        try:
            if is_delete:
                headers = {ID_HEADER: write_id}
                outcome = self._client.delete(TOPIC, key, headers=headers, durability=self._durability)
            else:
                expected_seq = NEVER_SEQ if choice > 0.9 else None
                outcome = self._client.produce(
                    TOPIC, write_id, key=key, expected_seq=expected_seq, durability=self._durability
                )
        except KayosError as error:
            outcome = error
        return self._load.describe_write(
            self._name, number, key, write_id, self._durability, outcome, is_delete=is_delete
        )


class PipelinedProducer:
    """Bursts of sends in flight together, which keep their order."""

    def __init__(self, load: Load, name: str, client: kayos.Client) -> None:
        self._load = load
        self._name = name
        self._client = client
        self._random = load.random(name)

    def run(self) -> None:
        number = 0
        while not self._load.is_stopping:
            sent: list[tuple[int, bytes, bytes, Future[Delivery]]] = []
            for _ in range(BURST):
                number += 1
                key, write_id = self._random.choice(KEYS), b"%s/%d" % (self._name.encode(), number)
                sent.append((number, key, write_id, self._client.send(TOPIC, write_id, key=key)))
            for each, key, write_id, future in sent:
                error = future.exception()
                outcome = error if isinstance(error, KayosError) else future.result()
                self._load.note_write(self._name, each, key, write_id, "all", outcome)
            self._load.step(self._name)
            self._load.pause(0.02)


class TransactionProducer:
    """The keys of a group, always all of them at once, with one id."""

    def __init__(self, load: Load, name: str, client: kayos.Client) -> None:
        self._load = load
        self._name = name
        self._client = client
        self._random = load.random(name)

    def run(self) -> None:
        number = 0
        while not self._load.is_stopping:
            keys = self._random.choice(GROUPS)
            write_id = b"%s/%d" % (self._name.encode(), number)
            is_delete = self._random.random() < 0.1
            outcomes = self._commit(keys, write_id, is_delete=is_delete)
            for key, outcome in zip(keys, outcomes, strict=True):
                number += 1
                write = self._load.describe_write(
                    self._name, number, key, write_id, "all", outcome, is_delete=is_delete
                )
                self._load.history.note(write)
            self._load.step(self._name)
            self._load.pause(0.005)

    def _commit(
        self, keys: tuple[bytes, ...], write_id: bytes, *, is_delete: bool
    ) -> tuple[Delivery | KayosError, ...]:
        try:
            with self._client.transaction(TOPIC) as transaction:
                for key in keys:
                    if is_delete:
                        transaction.delete(key, headers={ID_HEADER: write_id})
                    else:
                        transaction.put(key, write_id)
            return transaction.deliveries
        except KayosError as error:
            return (error,) * len(keys)


class SnapshotReader:
    """Gathers state snapshot by snapshot and commits at boundaries; now and then it begins again from its mark, with
    what it held there, as a consumer does that keeps its state in a database."""

    def __init__(self, load: Load, name: str, *, commit_every: int, restart_every: int) -> None:
        self._load = load
        self._name = name
        self._commit_every = commit_every
        self._restart_every = restart_every
        self._boundaries: list[Boundary | None] = load.history.boundaries.setdefault(name, [])
        self._marks = load.history.marks.setdefault(name, [])
        self._states: dict[int, dict[bytes, Sighting]] = {0: {}}

    def run(self) -> None:
        while not self._load.is_finishing:
            self._boundaries.append(None)
            consumer = self._load.readers.consume(TOPIC, self._name)
            with self._load.source(consumer):
                self._read(consumer)

    def _read(self, consumer: kayos.Consumer) -> None:
        """One life. It may last longer than it wants while there is nothing more to read."""
        count = 0
        state: dict[bytes, Sighting] | None = None
        while count < self._restart_every or self._load.is_stopping:
            try:
                snapshot = next(consumer)
                if state is None:
                    self._marks.append(snapshot.start_seq)
                    state = dict(self._states.get(snapshot.start_seq, {}))
                taken = [sighting_of(message) for message in snapshot]
            except SnapshotExpired:
                continue
            except StopIteration:
                return
            except Aborted as error:
                self._load.history.note_trouble(f"{self._name} is told {error!r}")
                return
            state.update((one.key, one) for one in taken)
            self._states[snapshot.end_seq] = dict(state)
            self._boundaries.append(Boundary(snapshot.start_seq, snapshot.end_seq, self._states[snapshot.end_seq]))
            count += 1
            if count % self._commit_every == 0:
                snapshot.commit()
                self._marks.append(snapshot.end_seq)
            self._load.step(self._name)


class MessageReader:
    """Message by message, from the beginning."""

    def __init__(self, load: Load, name: str) -> None:
        self._load = load
        self._name = name

    def run(self) -> None:
        stream = self._load.history.streams.setdefault(self._name, [])
        consumer = self._load.readers.messages(TOPIC, start=Start.beginning())
        with self._load.source(consumer):
            for message in consumer:
                stream.append(sighting_of(message))
                self._load.step(self._name)


class Pinner:
    """Pins, reads the pin twice, looks at single keys and marks in between, lets it go, and again."""

    def __init__(self, load: Load, name: str) -> None:
        self._load = load
        self._name = name
        self._random = load.random(name)

    def run(self) -> None:
        number = 0
        while not self._load.is_stopping:
            number += 1
            client = self._load.readers
            (pin,) = client.pins.create(TOPIC, pin_id=f"pin-{number}")
            for _ in range(2):
                rows = tuple(sighting_of(message) for message in client.pins.read(pin, tombstones=True))
                self._load.history.pins.append(PinnedRead(pin.pin_id, pin.seq, rows))
                self._look(client)
            client.pins.release(TOPIC, pin.pin_id)
            self._load.step(self._name)

    def _look(self, client: kayos.Client) -> None:
        for key in self._random.sample(KEYS, 3):
            message = client.get(TOPIC, key)
            if message is not None:
                self._load.history.gets.append(sighting_of(message))
        for name, marks in list(self._load.history.marks.items()):
            with suppress(MarkNotFound):
                # Asked before it is appended: a commit that ends meanwhile may be in the list already.
                lowest = marks[-1] if marks else 0
                found = client.marks.get(TOPIC, name)[0].mark.seq
                if found < lowest:
                    self._load.history.note_trouble(f"mark: that of {name} was {lowest} and is {found}")
            self._load.pause(0.01)
