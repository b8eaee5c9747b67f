"""The service of producers and consumers: each method checks its request, asks the shard, and answers."""

import secrets
from collections.abc import AsyncIterator
from contextlib import aclosing

import google_crc32c

from kayos.errors import InvalidArgument, MarkNotFound, OutOfRange, Overloaded, PinNotFound, WriteUnknown
from kayos.limits import INGEST_BYTES_MAX
from kayos.model.control import CommitMark, CreatePin, DropMark, EndPin, RenewPin
from kayos.model.mark import Mark
from kayos.model.pin import Pin
from kayos.model.record import Kind
from kayos.model.topic import check_name
from kayos.replica.events import Until
from kayos.server.config import NodeConfig
from kayos.server.gateway import (
    check_durability,
    check_key,
    check_number,
    chunk_bytes_from_wire,
    lease_from_wire,
    write_from_wire,
)
from kayos.server.hosting import Hosting
from kayos.server.memory import MemoryBudget
from kayos.server.outlet import Outlet
from kayos.server.pin_reader import PinRange, read_ahead
from kayos.server.produce_stream import serve_produce_stream
from kayos.server.rpc import Call
from kayos.server.shard import Shard
from kayos.server.subscription import Subscription
from kayos.wire.codec import headers_to_wire, mark_from_wire, mark_to_wire, pin_to_wire
from kayos.wire.v1 import log_pb2

_UNTIL = {
    log_pb2.WaitRequest.UNTIL_COPIES: Until.COPIES,
    log_pb2.WaitRequest.UNTIL_ANY_TAIL: Until.ANY_TAIL,
    log_pb2.WaitRequest.UNTIL_ALL_TAILS: Until.ALL_TAILS,
}


class LogService:
    def __init__(self, hosting: Hosting, config: NodeConfig) -> None:
        self._hosting = hosting
        self._ingest = MemoryBudget(INGEST_BYTES_MAX)
        self._budget = MemoryBudget(config.snapshot_memory_bytes_max)
        self._copy_bytes_max = config.snapshot_copy_bytes_max
        self._stalled_s = config.stalled_reader_s

    def _find(self, ref: log_pb2.ShardRef) -> Shard:
        return self._hosting.find_shard(ref.topic, ref.shard, ref.epoch)

    def _find_tail(self, ref: log_pb2.ShardRef) -> Shard:
        shard = self._find(ref)
        shard.check_tail()
        return shard

    # Producing

    async def produce(self, request: log_pb2.ProduceRequest, call: Call) -> log_pb2.ProduceResponse:
        """A single write is refused when too much waits; a stream is held back instead (produce_stream.py)."""
        size = request.ByteSize()
        if not self._ingest.has_room(size):
            raise Overloaded(
                f"{self._ingest.bytes_held} bytes of writes wait in this node: nothing was written, send again later",
                retry_delay_ms=500,
            )
        async with self._ingest.hold(size):
            return await self._write(request)

    async def produce_stream(self, requests: AsyncIterator[log_pb2.ProduceRequest], call: Call) -> None:
        await serve_produce_stream(requests, self._write, call, self._ingest)

    async def _write(self, request: log_pb2.ProduceRequest) -> log_pb2.ProduceResponse:
        shard = self._find(request.shard)
        write, size = write_from_wire(request, shard.topic)
        result, copies = await shard.write(write, size, request.durability)
        return log_pb2.ProduceResponse(
            history_id=result.history_id,
            first_seq=result.first_seq,
            last_seq=result.last_seq,
            timestamp_ms=result.timestamp_ms,
            copies=copies,
            duplicate=result.duplicate,
            correlation=request.correlation,
        )

    async def wait(self, request: log_pb2.WaitRequest, call: Call) -> log_pb2.WaitResponse:
        shard = self._find(request.shard)
        check_number("seq", request.seq, lowest=1)
        if request.until == log_pb2.WaitRequest.UNTIL_UNSPECIFIED:
            raise InvalidArgument("until is not set: wait until copies, any tail or all tails")
        if request.until not in _UNTIL:
            raise InvalidArgument(f"until {request.until} is unknown: use copies, any tail or all tails")
        check_durability(request.copies, shard.topic)
        shard.check_head()
        self._check_history(shard, request.history_id, request.seq)
        until = _UNTIL[request.until]
        if until is Until.COPIES and not request.copies:
            until = Until.ALL
        try:
            copies = await shard.poll_for_copies(request.history_id, request.seq, until, request.copies)
        except WriteUnknown:
            # A new history may tell for certain that the write is gone.
            shard.check_head()
            self._check_history(shard, request.history_id, request.seq)
            raise
        return log_pb2.WaitResponse(copies=copies)

    @staticmethod
    def _check_history(shard: Shard, history_id: bytes, seq: int) -> None:
        """A bare sequence proves nothing: after a takeover another write may stand there."""
        state = shard.state
        state.takeover.check_position(history_id=history_id, seq=seq, high_seq=state.high_seq, floor_seq=0)

    # Consuming

    async def subscribe(self, request: log_pb2.SubscribeRequest, call: Call) -> None:
        shard = self._find_tail(request.shard)
        outlet = Outlet(call.write, self._budget, self._stalled_s)
        await Subscription(shard, request, outlet.send, self._budget, self._copy_bytes_max).run()

    async def get(self, request: log_pb2.GetRequest, call: Call) -> log_pb2.GetResponse:
        shard = self._find_tail(request.shard)
        check_key(request.key, shard.topic)
        check_number("min_seq", request.min_seq)
        await shard.wait_for_seq(request.min_seq)
        record = await shard.read_released(lambda store: store.get(request.key), min_seq=request.min_seq)
        if record is None or record.kind != Kind.PUT:
            return log_pb2.GetResponse()
        return log_pb2.GetResponse(
            found=True,
            seq=record.seq,
            timestamp_ms=record.timestamp_ms,
            value=record.value,
            headers=headers_to_wire(record.headers),
        )

    # Marks

    async def commit_mark(self, request: log_pb2.CommitMarkRequest, call: Call) -> log_pb2.CommitMarkResponse:
        shard = self._find(request.shard)
        check_name("consumer", request.consumer)
        if not request.HasField("mark"):
            raise InvalidArgument("the request has no mark: give the one of the boundary")
        mark = mark_from_wire(request.mark)
        check_number("the mark's seq", mark.seq)
        await shard.control(CommitMark(request.consumer, mark))
        return log_pb2.CommitMarkResponse()

    async def get_mark(self, request: log_pb2.GetMarkRequest, call: Call) -> log_pb2.GetMarkResponse:
        shard = self._find(request.shard)
        check_name("consumer", request.consumer)
        mark = await shard.read_committed(lambda store: store.find_mark(request.consumer))
        if mark is None:
            raise MarkNotFound(f"consumer {request.consumer!r} has no mark here: it has not committed one")
        state = shard.state
        return log_pb2.GetMarkResponse(mark=mark_to_wire(mark), high_seq=state.high_seq, message_seq=state.message_seq)

    async def list_marks(self, request: log_pb2.ListMarksRequest, call: Call) -> log_pb2.ListMarksResponse:
        shard = self._find(request.shard)
        marks = await shard.read_committed(lambda store: store.list_marks())
        entries = [
            log_pb2.ListMarksResponse.Entry(consumer=consumer, mark=mark_to_wire(mark)) for consumer, mark in marks
        ]
        state = shard.state
        return log_pb2.ListMarksResponse(marks=entries, high_seq=state.high_seq, message_seq=state.message_seq)

    async def reset_mark(self, request: log_pb2.ResetMarkRequest, call: Call) -> log_pb2.ResetMarkResponse:
        shard = self._find(request.shard)
        shard.check_head()
        before = await self._find_mark(shard, request.consumer)
        response = log_pb2.ResetMarkResponse()
        if before is not None:
            response.before.CopyFrom(mark_to_wire(before))
        if request.WhichOneof("to") == "drop":
            if before is None:
                raise MarkNotFound(f"consumer {request.consumer!r} has no mark here: there is nothing to drop")
            if not request.dry_run:
                await shard.control(DropMark(request.consumer))
            return response
        seq = await self._find_reset_seq(shard, request)
        after = Mark(shard.state.takeover.find_history_at(seq), seq, seq, seq)
        response.after.CopyFrom(mark_to_wire(after))
        if not request.dry_run:
            await shard.control(CommitMark(request.consumer, after, forced=True))
        return response

    @staticmethod
    async def _find_mark(shard: Shard, consumer: str) -> Mark | None:
        check_name("consumer", consumer)
        return await shard.read(shard.store.find_mark, consumer)

    @staticmethod
    async def _find_reset_seq(shard: Shard, request: log_pb2.ResetMarkRequest) -> int:
        high_seq = shard.state.high_seq
        match request.WhichOneof("to"):
            case "seq":
                if request.seq > high_seq:
                    raise OutOfRange(f"sequence {request.seq} is above the log's end, {high_seq}", high_seq=high_seq)
                return request.seq
            case "time_ms":
                time_ms = check_number("time_ms", request.time_ms)
                return min(high_seq, await shard.read(shard.store.find_seq_before_time, time_ms))
            case "latest":
                return high_seq
            case _:
                raise InvalidArgument("the request does not say where to: give a sequence, a time, latest or drop")

    # Pins

    async def create_pin(self, request: log_pb2.CreatePinRequest, call: Call) -> log_pb2.CreatePinResponse:
        shard = self._find(request.shard)
        pin_id = request.pin_id or secrets.token_hex(8)
        check_name("pin", pin_id)
        await shard.control(CreatePin(pin_id, lease_from_wire(request.lease_ms)))
        pin = await self._find_pin(shard, pin_id)
        return log_pb2.CreatePinResponse(pin=pin_to_wire(pin), history_id=shard.state.takeover.find_history_at(pin.seq))

    async def list_pins(self, request: log_pb2.ListPinsRequest, call: Call) -> log_pb2.ListPinsResponse:
        shard = self._find_tail(request.shard)
        pins = await shard.read(shard.store.list_pins)
        await shard.wait_for_seq(shard.store.state.high_seq)
        return log_pb2.ListPinsResponse(pins=map(pin_to_wire, pins))

    async def renew_pin(self, request: log_pb2.RenewPinRequest, call: Call) -> log_pb2.RenewPinResponse:
        shard = self._find(request.shard)
        check_name("pin", request.pin_id)
        await shard.control(RenewPin(request.pin_id, lease_from_wire(request.lease_ms)))
        return log_pb2.RenewPinResponse(pin=pin_to_wire(await self._find_pin(shard, request.pin_id)))

    async def release_pin(self, request: log_pb2.ReleasePinRequest, call: Call) -> log_pb2.ReleasePinResponse:
        shard = self._find(request.shard)
        check_name("pin", request.pin_id)
        await shard.control(EndPin(request.pin_id, "released"))
        return log_pb2.ReleasePinResponse()

    async def read_pin(self, request: log_pb2.ReadPinRequest, call: Call) -> None:
        shard = self._find_tail(request.shard)
        check_name("pin", request.pin_id)
        chunk_bytes = chunk_bytes_from_wire(request.batch_bytes)
        check_number("min_seq", request.min_seq)
        await shard.wait_for_seq(request.min_seq)
        pin = await self._find_pin(shard, request.pin_id)
        await shard.wait_for_seq(pin.seq)
        end_seq = request.end_seq or pin.seq
        if not request.after_seq <= end_seq <= pin.seq:
            raise OutOfRange(
                f"({request.after_seq}, {end_seq}] is not inside the pin's (0, {pin.seq}]: ask for a part of that"
            )
        wanted = PinRange(pin.pin_id, request.after_seq, end_seq, chunk_bytes, tombstones=request.tombstones)
        outlet = Outlet(call.write, self._budget, self._stalled_s)
        count = checksum = 0
        async with self._budget.hold(2 * chunk_bytes), aclosing(read_ahead(shard, wanted)) as pieces:
            async for columns in pieces:
                count += columns.count
                checksum = google_crc32c.extend(checksum, columns.encoded)
                await outlet.send(log_pb2.ReadPinResponse(columns=columns.encoded).SerializeToString())
        end = log_pb2.ReadPinEnd(count=count, checksum=checksum)
        await outlet.send(log_pb2.ReadPinResponse(end=end).SerializeToString())

    @staticmethod
    async def _find_pin(shard: Shard, pin_id: str) -> Pin:
        pin = await shard.read(shard.store.find_pin, pin_id)
        if pin is None:
            raise PinNotFound(f"pin {pin_id!r} does not exist: create it, or see 'kayos pin list'")
        return pin
