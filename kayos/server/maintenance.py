"""Housekeeping of all shards of the node: one loop that looks, plans and writes, a bounded step at a time.

`maintenance_plan` decides; here are the looks (in the read pool), the writes (through the group writer like
any other), the sweeping of retained rows, the clearing of stale readers and compaction, one at a time.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from weakref import WeakKeyDictionary

from kayos.errors import KayosError
from kayos.limits import (
    COMPACT_INTERVAL_S,
    MAINTENANCE_ROWS_MAX,
    PRODUCER_RETENTION_MS,
    PRODUCER_SAMPLE_INTERVAL_MS,
    READ_CHUNK_BYTES_MAX,
    READER_CHECK_INTERVAL_S,
)
from kayos.model.record import record_seq
from kayos.model.topic import Mode, Retention
from kayos.model.write import ControlRequest
from kayos.server.hosting import Hosting
from kayos.server.logs import get_log
from kayos.server.maintenance_plan import Facts, plan
from kayos.server.shard import Shard
from kayos.server.writer import now_ms
from kayos.storage.interface import Store

Compact = Callable[[Shard], Awaitable[tuple[int, int]]]


class ProducerClock:
    """When the log was at which sequence, so that producers idle for long can be forgotten.

    The log itself cannot tell: a producer's last record may have been replaced. Samples live in memory
    only; a restart merely forgets producers later.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque()

    def find_idle_seq(self, time_ms: int, high_seq: int) -> int:
        """The sequence at or below which every write is older than the retention; 0 when not known."""
        if not self._samples or time_ms - self._samples[-1][0] >= PRODUCER_SAMPLE_INTERVAL_MS:
            self._samples.append((time_ms, high_seq))
        idle_seq = 0
        while self._samples and self._samples[0][0] <= time_ms - PRODUCER_RETENTION_MS:
            idle_seq = self._samples.popleft()[1]
        return idle_seq


class Maintenance:
    def __init__(self, hosting: Hosting, compact: Compact, *, interval_s: float, retained_bytes_max: int) -> None:
        self._hosting = hosting
        self._compact = compact
        self._interval_s = interval_s
        self._retained_bytes_max = retained_bytes_max
        self._compacting = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._compactions: WeakKeyDictionary[Shard, asyncio.Task[tuple[int, int]]] = WeakKeyDictionary()
        self._compact_at: WeakKeyDictionary[Shard, float] = WeakKeyDictionary()
        self._clocks: WeakKeyDictionary[Shard, ProducerClock] = WeakKeyDictionary()
        self._readers_checked_at = time.monotonic()
        self._log = get_log()

    async def run(self) -> None:
        """For ever; a shard that fails its step is tried again at the next one."""
        while True:
            await asyncio.sleep(self._interval_s)
            shards = list(self._hosting.shards())
            for shard in shards:
                await self._step_safely(shard)
            await self._maybe_check_readers(shards)

    async def step(self, shard: Shard) -> None:
        """One bounded piece of work for one shard."""
        facts, wants_compaction = await shard.read(self._look, shard)
        if facts.retained_bytes:
            swept = await shard.run_in_writer(partial(shard.store.sweep_retained, MAINTENANCE_ROWS_MAX))
            facts, wants_compaction = await shard.read(self._look, shard)
            facts = replace(facts, swept=swept)
        for request in plan(facts) if shard.accepts_writes else ():
            assert isinstance(request, ControlRequest)
            await shard.control(request.control)
        if wants_compaction and self._may_compact(shard):
            task = asyncio.create_task(self._compact_safely(shard))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def compact(self, shard: Shard) -> tuple[int, int]:
        """Compact now, or share the compaction of this shard that is under way. It outlives its callers."""
        task = self._compactions.get(shard)
        if task is None or task.done():
            task = shard.start_background(self._compact_alone(shard))
            self._compactions[shard] = task
        return await asyncio.shield(task)

    async def _compact_alone(self, shard: Shard) -> tuple[int, int]:
        """One at a time on the node: each needs the space of a second copy."""
        async with self._compacting:
            return await self._compact(shard)

    def _may_compact(self, shard: Shard) -> bool:
        return not self._compacting.locked() and time.monotonic() >= self._compact_at.get(shard, 0.0)

    async def close(self) -> None:
        """Wait for a compaction that runs; it cannot be cut off in the middle of its copy."""
        await asyncio.gather(*self._background, return_exceptions=True)

    async def _step_safely(self, shard: Shard) -> None:
        try:
            await self.step(shard)
        except KayosError as error:
            shard.log.warning("maintenance failed", reason=error.message, code=error.code)
        except Exception:
            shard.log.exception("maintenance failed")

    async def _compact_safely(self, shard: Shard) -> None:
        # Whatever made it fail (no room on the disk) would most likely make it fail again at once.
        self._compact_at[shard] = time.monotonic() + COMPACT_INTERVAL_S
        try:
            await self.compact(shard)
        except KayosError as error:
            shard.log.warning("compaction failed", reason=error.message, code=error.code)
        except Exception:
            shard.log.exception("compaction failed")

    async def _maybe_check_readers(self, shards: list[Shard]) -> None:
        if time.monotonic() - self._readers_checked_at < READER_CHECK_INTERVAL_S:
            return
        self._readers_checked_at = time.monotonic()
        for shard in shards:
            try:
                await shard.read(shard.store.check_readers)
            except KayosError as error:
                shard.log.warning("reader check failed", reason=error.message)

    def _look(self, shard: Shard) -> tuple[Facts, bool]:
        """Blocking: everything that the plan wants to know, and whether a compaction is due."""
        store, topic, state, time_ms = shard.store, shard.topic, shard.state, now_ms()
        retention, usage = topic.retention, store.usage()
        clock = self._clocks.setdefault(shard, ProducerClock())
        aged_seq = find_older_than(store, time_ms, retention.max_age_ms)
        tombstone_seq = find_older_than(store, time_ms, retention.tombstone_ms) if usage.tombstones else 0
        facts = Facts(
            now_ms=time_ms,
            mode=topic.mode,
            retention=retention,
            floors=state.floors,
            messages=usage.messages,
            message_bytes=usage.message_bytes,
            retained_bytes=usage.retained_bytes,
            producers=usage.producers,
            pins=tuple(store.list_pins()) if usage.pins else (),
            front=read_front(store, shard, retention, aged_seq, usage.messages, usage.message_bytes),
            aged_seq=aged_seq,
            purgeable_seq=store.find_purgeable(tombstone_seq, MAINTENANCE_ROWS_MAX) if tombstone_seq else 0,
            expired=store.find_expired(time_ms, MAINTENANCE_ROWS_MAX),
            idle_producers_seq=clock.find_idle_seq(time_ms, state.high_seq),
            retained_bytes_max=self._retained_bytes_max,
        )
        return facts, store.wants_compaction()


def find_older_than(store: Store, time_ms: int, age_ms: int) -> int:
    return store.find_seq_before_time(time_ms - age_ms) if age_ms else 0


def read_front(
    store: Store, shard: Shard, retention: Retention, aged_seq: int, messages: int, message_bytes: int
) -> tuple[tuple[int, int], ...]:
    """The oldest messages, when some of them may have to go; read only then."""
    if shard.topic.mode is Mode.COMPACT:
        after_seq = shard.state.floors.aged_seq
        if aged_seq <= after_seq:
            return ()
        found = store.read_log(after_seq, bytes_max=READ_CHUNK_BYTES_MAX, end_seq=aged_seq, tombstones=False)
    else:
        over = 0 < retention.max_messages < messages or 0 < retention.max_bytes < message_bytes
        if not over and aged_seq <= shard.state.floors.trim_seq:
            return ()
        found = store.read_log(shard.state.floors.trim_seq, bytes_max=READ_CHUNK_BYTES_MAX)
    return tuple((record_seq(stored), len(stored)) for stored in found.records[:MAINTENANCE_ROWS_MAX])
