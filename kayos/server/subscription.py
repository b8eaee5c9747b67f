"""One consumer's stream: snapshots with boundaries, offered when there is a message above its position.

`position` is the last boundary that the consumer was given (or where it started);
`scanned` is how far the log was found to hold nothing for it. A snapshot is copied whole into memory when it
is small, else it is read in pieces from a pin that far-behind subscribers share. Control records take
sequences but never wake a consumer: the loop waits for the newest *message* to pass what was scanned.

Before each snapshot the position is held against the floors of a state at least as new as what was read:
a delete or message that was removed in between is answered with RESET, never skipped in silence.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing

import google_crc32c

from kayos.errors import InvalidArgument, OutOfRange, ResetRequired, RollbackRequired
from kayos.model.mark import BEGINNING, Mark
from kayos.model.topic import check_name
from kayos.server.gateway import check_number, chunk_bytes_from_wire
from kayos.server.memory import MemoryBudget
from kayos.server.pin_reader import PinRange, read_ahead
from kayos.server.reads import Reads
from kayos.server.shard import Shard
from kayos.server.snapshot_reader import CopiedSnapshot, copy_snapshot
from kayos.wire.codec import mark_from_wire, mark_to_wire, takeover_to_wire
from kayos.wire.v1 import log_pb2

Send = Callable[[bytes], Awaitable[None]]


class Subscription:
    def __init__(
        self, shard: Shard, request: log_pb2.SubscribeRequest, send: Send, budget: MemoryBudget, copy_bytes_max: int
    ) -> None:
        self._shard = shard
        self._request = request
        self._send = send
        self._budget = budget
        self._copy_bytes_max = copy_bytes_max
        self._chunk_bytes = chunk_bytes_from_wire(request.batch_bytes)
        self.position = 0
        self.scanned = 0
        # A consumer that holds nothing yet cannot have missed a delete: floors do not concern it.
        self._holds_messages = False

    async def run(self) -> None:
        """Serve until the caller goes away, or to the end when it asked for that."""
        await self._resolve_start()
        while True:
            if self._request.stop_at_end and self._shard.state.message_seq <= self.scanned:
                await self._send_at_end()
                return
            await self._shard.messages.wait_for(self.scanned + 1)
            await self._offer()

    # Where to start

    async def _resolve_start(self) -> None:
        request = self._request
        match request.WhichOneof("start"):
            case "mark":
                mark = mark_from_wire(request.mark)
                check_number("the mark's seq", mark.seq)
                await self._start_at_mark(mark)
            case "consumer":
                check_name("consumer", request.consumer)
                await self._start_at_mark(await self._shard.head.find_mark(request.consumer) or BEGINNING)
            case "after_seq":
                self._start_after(request.after_seq)
            case "from_time_ms":
                await self._start_at_time(request.from_time_ms)
            case "latest":
                self.position = self._shard.state.high_seq
            case _:
                raise InvalidArgument("the request has no start: give a mark, a consumer, after_seq, a time or latest")
        self.scanned = self.position

    async def _start_at_mark(self, mark: Mark) -> None:
        self._check_position(mark.history_id, mark.seq)
        # A mark of the open history above its end is merely ahead: wait until the log is there.
        await self._shard.visible.wait_for(mark.seq)
        self.position = mark.seq
        self._holds_messages = mark.seq > 0

    def _start_after(self, seq: int) -> None:
        state = self._shard.state
        if seq > state.high_seq:
            raise OutOfRange(
                f"after_seq {seq} is above the log's end, {state.high_seq}: subscribe with 'latest' for what comes",
                high_seq=state.high_seq,
            )
        self._check_position(state.takeover.find_history_at(seq), seq)
        self.position = seq
        self._holds_messages = seq > 0

    async def _start_at_time(self, time_ms: int) -> None:
        check_number("from_time_ms", time_ms)
        self.position = await self._shard.read(self._shard.store.find_seq_before_time, time_ms)

    def _check_position(self, history_id: bytes, seq: int) -> None:
        state = self._shard.state
        try:
            state.takeover.check_position(
                history_id=history_id, seq=seq, high_seq=state.high_seq, floor_seq=state.floors.reader_seq
            )
        except (ResetRequired, RollbackRequired):
            self._shard.check_established()
            raise

    def _check_floor(self) -> None:
        if self._holds_messages:
            state = self._shard.state
            self._check_position(state.takeover.find_history_at(self.scanned), self.scanned)

    # Snapshots

    async def _offer(self) -> None:
        shard = self._shard
        async with self._budget.hold(self._copy_bytes_max) as hold:
            copied = await self._copy(shard.store)
            # The gate: released only when enough replicas hold what was read, and `state` knows of it.
            if not await shard.is_released_soon(copied.end_seq):
                kept = shard.find_released_view(above_seq=self.scanned)
                if kept is not None:
                    copied = await self._copy(kept)
            hold.shrink(copied.size)
            await shard.visible.wait_for(copied.end_seq)
            self._check_floor()
            if copied.complete:
                await self._send_copied(copied)
                return
        await self._offer_pinned()

    async def _copy(self, store: Reads) -> CopiedSnapshot:
        return await self._shard.read(
            copy_snapshot, store, self.scanned, bytes_max=self._copy_bytes_max, chunk_bytes=self._chunk_bytes
        )

    async def _send_copied(self, copied: CopiedSnapshot) -> None:
        if not copied.count:
            self.scanned = copied.end_seq
            return
        await self._send_begin(copied.end_seq)
        checksum = 0
        for chunk in copied.chunks:
            checksum = google_crc32c.extend(checksum, chunk)
            await self._send_columns(chunk)
        await self._send_end(copied.end_seq, copied.count, checksum)

    async def _offer_pinned(self) -> None:
        async with self._shard.shared_pins.use(above_seq=self.scanned) as pin:
            await self._shard.visible.wait_for(pin.seq)
            self._check_floor()
            async with self._budget.hold(2 * self._chunk_bytes):
                await self._send_pinned(pin.pin_id, pin.seq)

    async def _send_pinned(self, pin_id: str, end_seq: int) -> None:
        wanted = PinRange(pin_id, self.scanned, end_seq, self._chunk_bytes, tombstones=True)
        count = checksum = 0
        async with aclosing(read_ahead(self._shard, wanted)) as pieces:
            async for columns in pieces:
                if not count:
                    await self._send_begin(end_seq)
                count += columns.count
                checksum = google_crc32c.extend(checksum, columns.encoded)
                await self._send_columns(columns.encoded)
        if count:
            await self._send_end(end_seq, count, checksum)
        self.scanned = end_seq

    # Events

    async def _send_begin(self, end_seq: int) -> None:
        state = self._shard.state
        begin = log_pb2.SnapshotBegin(
            start_seq=self.position,
            end_seq=end_seq,
            purge_seq=state.floors.reader_seq,
            takeover=takeover_to_wire(state.takeover),
        )
        await self._send(log_pb2.SubscribeResponse(begin=begin).SerializeToString())

    async def _send_columns(self, encoded: bytes) -> None:
        await self._send(log_pb2.SubscribeResponse(columns=encoded).SerializeToString())

    async def _send_end(self, end_seq: int, count: int, checksum: int) -> None:
        mark = self._mark_at(end_seq, start_seq=self.position)
        end = log_pb2.SnapshotEnd(mark=mark_to_wire(mark), count=count, checksum=checksum)
        await self._send(log_pb2.SubscribeResponse(end=end).SerializeToString())
        self.position = self.scanned = end_seq
        self._holds_messages = True

    async def _send_at_end(self) -> None:
        mark = self._mark_at(self.position, start_seq=self.position)
        at_end = log_pb2.AtEnd(mark=mark_to_wire(mark))
        await self._send(log_pb2.SubscribeResponse(at_end=at_end).SerializeToString())

    def _mark_at(self, seq: int, *, start_seq: int) -> Mark:
        return Mark(self._shard.state.takeover.find_history_at(seq), seq, start_seq, seq)
