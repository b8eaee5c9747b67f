"""The head's half of the in-memory twin: one group of requests becomes sequences, answers and a batch.

Messages gather in a run, in which only the last revision of a key survives; a control record (or the end of
the group) ends the run, because a pin, and so a boundary, may stand there. The tombstones that an Expire writes
are a run of their own. A request is checked whole
before it changes anything.
"""

from dataclasses import fields
from operator import attrgetter
from typing import Any

from kayos.errors import (
    ConditionFailed,
    FailedPrecondition,
    InvalidArgument,
    KayosError,
    LimitReached,
    MarkAhead,
    MarkBackwards,
    MarkNotFound,
    OutOfRange,
    PinNotFound,
    ProducerFenced,
    ProducerGap,
    ProducerUnknown,
    SnapshotExpired,
    WrongMode,
)
from kayos.limits import MARKS_MAX, PINS_MAX, PRODUCER_RESULTS_KEPT, PRODUCERS_MAX
from kayos.model.control import (
    CommitMark,
    Control,
    CreatePin,
    DropMark,
    EndPin,
    Expire,
    ForgetProducers,
    Purge,
    RenewPin,
    Trim,
)
from kayos.model.producer import ProducerResult, ProducerRow, ProducerStamp
from kayos.model.record import Kind, decode_record, encode_record
from kayos.model.topic import Mode
from kayos.model.write import Batch, ControlRequest, Request, WriteRequest, WriteResult
from kayos.storage.control_codec import encode_control
from kayos.storage.interface import StoreState
from kayos.storage.memory_tables import CONTROL, Row, Tables, floors_of

_STATE_FIELDS = {field.name: at for at, field in enumerate(fields(StoreState))}
_read_state = attrgetter(*_STATE_FIELDS)


class Group:
    """One group commit in the making; it changes `tables` as it goes and never fails half way."""

    def __init__(self, tables: Tables, state: StoreState, now_ms: int) -> None:
        self.tables = tables
        self.state = state
        self.timestamp_ms = max(state.last_timestamp_ms, now_ms)
        self.high_seq = state.high_seq
        self.run: dict[int, Row] = {}
        self.run_keys: dict[bytes, int] = {}
        self.written: list[Row] = []
        self.producers_changed: dict[bytes, None] = {}

    def answer(self, request: Request) -> WriteResult | KayosError:
        try:
            if isinstance(request, ControlRequest):
                return self._take_control(request.control)
            return self._take_write(request)
        except KayosError as error:
            return error

    def finish(self) -> Batch | None:
        """The batch of all that was taken, or None when that is nothing."""
        self._end_run()
        if self.high_seq == self.state.high_seq:
            return None
        producers = self.tables.producers
        return Batch(
            epoch=self.state.epoch,
            previous_seq=self.state.high_seq,
            last_seq=self.high_seq,
            timestamp_ms=self.timestamp_ms,
            records=tuple(row.stored for row in self.written),
            producers=tuple(producers[key] for key in self.producers_changed if key in producers),
        )

    # Messages

    def _take_write(self, request: WriteRequest) -> WriteResult:
        if request.count == 0:
            raise InvalidArgument("the request holds no message: send at least one")
        self._check_head()
        if request.producer is not None:
            stored = self._find_duplicate(request.producer)
            if stored is not None:
                return self._result(stored.first_seq, stored.last_seq, stored.timestamp_ms, duplicate=True)
        self._check_conditions(request)
        first_seq = self.high_seq + 1
        for index, (key, value) in enumerate(zip(request.keys, request.values, strict=True)):
            kind = request.kinds[index] if request.kinds else Kind.PUT
            ttl_ms = request.ttl_ms.get(index)
            expires_at_ms = self.timestamp_ms + ttl_ms if ttl_ms is not None and kind == Kind.PUT else 0
            self._add_message(kind, key, value, request.headers.get(index, b""), expires_at_ms)
        if request.producer is not None:
            self._remember(request.producer, first_seq)
        return self._result(first_seq, self.high_seq, self.timestamp_ms)

    def _add_message(
        self, kind: int, key: bytes, value: bytes = b"", packed_headers: bytes = b"", expires_at_ms: int = 0
    ) -> None:
        self.high_seq += 1
        stored = encode_record(self.high_seq, kind, self.timestamp_ms, key, value, packed_headers, expires_at_ms)
        if self.tables.mode is Mode.COMPACT and key:
            earlier_seq = self.run_keys.get(key)
            if earlier_seq is not None:
                del self.run[earlier_seq]
            self.run_keys[key] = self.high_seq
        self.run[self.high_seq] = Row(stored, decode_record(stored))

    def _end_run(self) -> None:
        for row in self.run.values():
            self.tables.append(row)
            self.written.append(row)
        self.run.clear()
        self.run_keys.clear()

    def _check_conditions(self, request: WriteRequest) -> None:
        if request.expected and self.tables.mode is not Mode.COMPACT:
            raise WrongMode("a conditional write needs a topic of mode 'compact'")
        for index in sorted(request.expected):
            expected_seq = request.expected[index]
            current_seq = self._find_live_seq(request.keys[index])
            if current_seq != expected_seq:
                raise ConditionFailed(
                    f"message {index} expects its key at sequence {expected_seq}, it is at {current_seq}",
                    index=index,
                    expected_seq=expected_seq,
                    current_seq=current_seq,
                )

    def _find_live_seq(self, key: bytes) -> int:
        row = self.run[self.run_keys[key]] if key in self.run_keys else self.tables.find_row(key)
        return row.record.seq if row is not None and row.record.kind == Kind.PUT else 0

    def _result(self, first_seq: int, last_seq: int, timestamp_ms: int, *, duplicate: bool = False) -> WriteResult:
        history_id = self.state.takeover.find_history_at(first_seq)
        return WriteResult(history_id, first_seq, last_seq, timestamp_ms, duplicate)

    # Producers

    def _find_duplicate(self, stamp: ProducerStamp) -> ProducerResult | None:
        """The stored result of an earlier send, or None when the number is the next one."""
        row = self.tables.producers.get(stamp.producer_id)
        if row is None:
            if stamp.number != 1:
                raise ProducerUnknown("this producer is not known here: begin again with a new id and number 1")
            if len(self.tables.producers) >= PRODUCERS_MAX:
                raise LimitReached(f"the shard remembers {PRODUCERS_MAX} producers, its most")
            return None
        if stamp.producer_epoch < row.producer_epoch:
            raise ProducerFenced(f"producer epoch {row.producer_epoch} is in charge", producer_epoch=row.producer_epoch)
        if stamp.producer_epoch > row.producer_epoch:
            if stamp.number < 1:
                raise InvalidArgument(f"producer number {stamp.number} is too old: numbers begin with 1")
            if stamp.number > 1:
                raise ProducerGap("a new producer epoch begins with number 1", last_number=0)
            return None
        for result in row.results:
            if result.number == stamp.number:
                return result
        if stamp.number < row.results[0].number:
            raise InvalidArgument(f"producer number {stamp.number} is too old, its result is no longer kept")
        if stamp.number != row.last.number + 1:
            raise ProducerGap(
                f"producer number {stamp.number} leaves a gap after {row.last.number}", last_number=row.last.number
            )
        return None

    def _remember(self, stamp: ProducerStamp, first_seq: int) -> None:
        row = self.tables.producers.get(stamp.producer_id)
        earlier = row.results if row is not None and row.producer_epoch == stamp.producer_epoch else ()
        result = ProducerResult(stamp.number, first_seq, self.high_seq, self.timestamp_ms)
        kept = (*earlier, result)[-PRODUCER_RESULTS_KEPT:]
        self.tables.producers[stamp.producer_id] = ProducerRow(stamp.producer_id, stamp.producer_epoch, kept)
        self.producers_changed[stamp.producer_id] = None

    # Controls

    def _take_control(self, control: Control) -> WriteResult:
        self._check_head()
        self._check_control(control)
        self._end_run()
        first_seq = self.high_seq + 1
        if isinstance(control, Expire) and self.tables.mode is Mode.COMPACT:
            for past in list(self.tables.find_past(floors_of(control))):
                self._add_message(Kind.DELETE, past.record.key)
            self._end_run()
        self.high_seq += 1
        stored = encode_record(self.high_seq, Kind.CONTROL, self.timestamp_ms, b"", encode_control(control))
        row = Row(stored, decode_record(stored))
        self.tables.append(row)
        self.written.append(row)
        return self._result(first_seq, self.high_seq, self.timestamp_ms)

    def _check_head(self) -> None:
        if not self.state.takeover.rows:
            raise FailedPrecondition("no takeover row yet: the head takes over before it writes")

    def _check_control(self, control: Control) -> None:
        match control:
            case CommitMark():
                self._check_mark(control)
            case DropMark():
                if control.consumer not in self.tables.marks:
                    raise MarkNotFound(f"consumer {control.consumer!r} has no mark")
            case CreatePin():
                if control.pin_id in self.tables.pins:
                    raise FailedPrecondition(f"pin {control.pin_id!r} exists: choose another name")
                if len(self.tables.living_pins()) >= PINS_MAX:
                    raise LimitReached(f"the shard has {PINS_MAX} pins, its most: release one")
            case RenewPin() | EndPin():
                pin = self.tables.pins.get(control.pin_id)
                if pin is None:
                    raise PinNotFound(f"pin {control.pin_id!r} does not exist")
                if not pin.is_alive:
                    raise SnapshotExpired(f"pin {control.pin_id!r} ended: {pin.ended}")
            case Purge():
                self._check_mode(Mode.COMPACT)
                self._check_reached("through_seq", control.through_seq)
            case Trim():
                self._check_mode(Mode.LOG)
                self._check_reached("through_seq", control.through_seq)
            case Expire():
                self._check_reached("aged_seq", control.aged_seq)
                if control.through_ms > self.timestamp_ms:
                    raise OutOfRange(f"through_ms {control.through_ms} is above the log's time, {self.timestamp_ms}")
            case ForgetProducers():
                self._check_reached("through_seq", control.through_seq)

    def _check_mark(self, control: CommitMark) -> None:
        mark = control.mark
        stored = self.tables.marks.get(control.consumer)
        if stored is None and len(self.tables.marks) >= MARKS_MAX:
            raise LimitReached(f"the shard holds {MARKS_MAX} marks, its most: drop one")
        if stored is not None and mark.seq < stored.seq and not control.forced:
            raise MarkBackwards(f"the stored mark is at {stored.seq}, above {mark.seq}", stored_seq=stored.seq)
        if mark.seq > self.high_seq:
            raise MarkAhead(f"the log ends at {self.high_seq}, below {mark.seq}", high_seq=self.high_seq)
        self.state.takeover.check_position(
            history_id=mark.history_id, seq=mark.seq, high_seq=self.high_seq, floor_seq=0
        )

    def _check_mode(self, mode: Mode) -> None:
        if self.tables.mode is not mode:
            raise WrongMode(f"this needs a topic of mode '{mode}'")

    def _check_reached(self, name: str, seq: int) -> None:
        if seq > self.high_seq:
            raise OutOfRange(f"{name} {seq} is above the log's end, {self.high_seq}")


def state_after(state: StoreState, tables: Tables, batch: Batch, rows: list[Row], commit_point: int) -> StoreState:
    """The state once a batch is in, by the head's or a replica's hand."""
    message_seqs = [row.record.seq for row in rows if row.record.kind != CONTROL]
    return changed(
        state,
        high_seq=batch.last_seq,
        message_seq=message_seqs[-1] if message_seqs else state.message_seq,
        last_timestamp_ms=max(state.last_timestamp_ms, batch.timestamp_ms),
        floors=tables.floors,
        epoch=max(state.epoch, batch.epoch),
        commit_point=max(state.commit_point, commit_point),
    )


def changed(state: StoreState, **changes: Any) -> StoreState:
    """`dataclasses.replace`, without its checks: the simulator makes a state with every write."""
    values = list(_read_state(state))
    for name, value in changes.items():
        values[_STATE_FIELDS[name]] = value
    return StoreState(*values)
