"""The reading half of the durable store: short transactions that copy out, from any thread.

The writer may swap the environment for another one or reopen it at any moment. A reader therefore enters the
environment that is current, which stays open until the reader left; one that is closing lets nobody in. Whether what
it holds is whole, the committed state itself says: a rollback or a copy may begin between any two lines.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kayos.errors import Unavailable, WrongMode
from kayos.model.catch_up import CatchUpPiece, Restorable
from kayos.model.mark import Mark
from kayos.model.pin import Pin
from kayos.model.producer import ProducerRow
from kayos.model.record import Record
from kayos.model.snapshot import LogSlice
from kayos.model.topic import Mode
from kayos.storage import catch_up, dump, reader, rollback
from kayos.storage.environment import Environment, EnvironmentClosedError
from kayos.storage.interface import Identity, StoreState, Usage
from kayos.storage.layout import PAIR, SYNC, pack_seq, unpack_mark, unpack_pin, unpack_producer, unpack_sync
from kayos.storage.meta import read_meta, read_state_row
from kayos.storage.place import Place
from kayos.storage.transaction import Transaction


class LmdbReads:
    """See kayos.storage.interface.Store for what each call means."""

    identity: Identity
    place: Place

    @property
    def state(self) -> StoreState:
        return self.place.state

    @property
    def env(self) -> Environment:
        return self.place.env

    @property
    def is_compact(self) -> bool:
        return self.identity.mode is Mode.COMPACT

    @contextmanager
    def _reading(self) -> Iterator[tuple[Transaction, Environment]]:
        """Of a whole copy only: one in the middle of a catch-up or rollback is nobody's business."""
        with self._reading_any() as (txn, env):
            row = txn.get(SYNC, db=env.tables.meta)
            if row is not None:
                phase = unpack_sync(row).sync.phase
                raise Unavailable(f"this replica is {phase}: read from another one", retry_delay_ms=500)
            yield txn, env

    @contextmanager
    def _reading_any(self) -> Iterator[tuple[Transaction, Environment]]:
        env = self._enter_environment()
        with env.reading_inside() as txn:
            yield txn, env

    def _enter_environment(self) -> Environment:
        while True:
            env = self.env
            try:
                env.enter_reader()
                return env
            except EnvironmentClosedError:
                if env is self.env:
                    raise Unavailable(
                        "the store is closed, or being reopened after a disk error: try again", retry_delay_ms=200
                    ) from None

    def get(self, key: bytes) -> Record | None:
        with self._reading() as (txn, env):
            if not self.is_compact:
                raise WrongMode("getting by key needs a topic of mode 'compact': this one is a log")
            return reader.find_record(txn, env.tables, key)

    def read_log(
        self, after_seq: int, *, bytes_max: int, end_seq: int | None = None, tombstones: bool = True
    ) -> LogSlice:
        with self._reading() as (txn, env):
            high_seq = read_state_row(txn, env).high_seq
            end = high_seq if end_seq is None else min(end_seq, high_seq)
            rows = reader.log_rows(txn, env.tables, after_seq)
            return reader.read_slice(rows, after_seq=after_seq, end_seq=end, bytes_max=bytes_max, tombstones=tombstones)

    def read_pin(
        self, pin_id: str, after_seq: int, *, bytes_max: int, end_seq: int | None = None, tombstones: bool = True
    ) -> LogSlice:
        with self._reading() as (txn, env):
            stored = txn.get(pin_id.encode(), db=env.tables.pins)
            pin = reader.check_pin(None if stored is None else unpack_pin(pin_id.encode(), stored), pin_id)
            end = pin.seq if end_seq is None else min(end_seq, pin.seq)
            rows = reader.pinned_rows(txn, env.tables, after_seq, pin)
            return reader.read_slice(rows, after_seq=after_seq, end_seq=end, bytes_max=bytes_max, tombstones=tombstones)

    def read_catch_up(
        self, after_seq: int, *, start_seq: int, bytes_max: int, all_retained: bool = False
    ) -> CatchUpPiece:
        from_seq = 0 if all_retained else start_seq
        with self._reading() as (txn, env):
            return catch_up.read_piece(txn, env, after_seq, retained_from_seq=from_seq, bytes_max=bytes_max)

    def find_diverged(self, after_seq: int, *, rows_max: int) -> tuple[bytes, ...] | None:
        with self._reading() as (txn, env):
            if not self.is_compact:
                return ()
            return rollback.find_diverged(txn, env, after_seq, rows_max=rows_max)

    def find_restorable(self, keys: Sequence[bytes], through_seq: int, *, bytes_max: int) -> Restorable:
        with self._reading() as (txn, env):
            return rollback.find_restorable(txn, env, keys, through_seq, bytes_max=bytes_max)

    def find_mark(self, consumer: str) -> Mark | None:
        table_key = consumer.encode()
        with self._reading() as (txn, env):
            stored = txn.get(table_key, db=env.tables.marks)
            return None if stored is None else unpack_mark(table_key, stored)

    def list_marks(self) -> list[tuple[str, Mark]]:
        with self._reading() as (txn, env):
            return [(key.decode(), unpack_mark(key, row)) for key, row in txn.cursor(env.tables.marks)]

    def find_pin(self, pin_id: str) -> Pin | None:
        return self.place.pins.get(pin_id)

    def list_pins(self) -> list[Pin]:
        return [pin for _, pin in sorted(self.place.pins.items())]

    def find_producer(self, producer_id: bytes) -> ProducerRow | None:
        with self._reading() as (txn, env):
            stored = txn.get(producer_id, db=env.tables.producers)
            return None if stored is None else unpack_producer(producer_id, stored)

    def find_seq_before_time(self, timestamp_ms: int) -> int:
        with self._reading() as (txn, env):
            high_seq = read_state_row(txn, env).high_seq
            return reader.find_seq_before_time(txn, env.tables, timestamp_ms, high_seq)

    def find_expired(self, now_ms: int, rows_max: int) -> tuple[int, int] | None:
        last = None
        with self._reading() as (txn, env):
            cursor = txn.cursor(env.tables.expiry)
            for index, key in enumerate(cursor.iternext(values=False)):
                expires_at_ms, seq = PAIR.unpack(key)
                if index >= rows_max or expires_at_ms > now_ms:
                    break
                last = (expires_at_ms, seq)
        return last

    def find_purgeable(self, before_seq: int, rows_max: int) -> int:
        last = b""
        limit = pack_seq(before_seq)
        with self._reading() as (txn, env):
            cursor = txn.cursor(env.tables.tombstones)
            for index, key in enumerate(cursor.iternext(values=False)):
                if index >= rows_max or key > limit:
                    break
                last = key
        return int.from_bytes(last, "big")

    def usage(self) -> Usage:
        with self._reading_any() as (txn, env):
            row = read_state_row(txn, env)
            entries = {
                name: txn.stat(getattr(env.tables, name))["entries"]
                for name in ("keys", "tombstones", "marks", "producers")
            }
            used_bytes = env.used_pages(txn) * env.page_size
            file_bytes = (env.last_page + 1) * env.page_size
        return Usage(
            messages=row.log[0],
            message_bytes=row.log[1],
            pins=sum(pin.is_alive for pin in self.place.pins.values()),
            retained=row.retained[0],
            retained_bytes=row.retained[1],
            map_bytes=env.map_bytes,
            file_bytes=file_bytes,
            free_bytes=max(0, file_bytes - used_bytes),
            **entries,
        )

    def dump(self) -> Iterator[tuple[str, object]]:
        with self._reading_any() as (txn, env):
            yield from dump.dump_rows(txn, env, read_meta(txn, env))
