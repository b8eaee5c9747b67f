"""The head's part of a commit: check each request, assign sequences, build the batch.

Requests are taken in order inside one write transaction; each sees what the earlier ones did. A refused
request changes nothing. Messages gather in a run until a control record or the end of the group; within a run
only the last revision of a key is written, since no boundary can fall between them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

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
    StoreFull,
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
from kayos.model.record import CHECKSUM, HEAD, Kind, checksum_of, encode_record
from kayos.model.write import Batch, ControlRequest, Request, WriteRequest, WriteResult
from kayos.storage.changes import Changes, Special, live_kind
from kayos.storage.control_codec import encode_control
from kayos.storage.layout import PAIR, slot_of, unpack_mark, unpack_producer
from kayos.storage.reader import read_record

# seq, kind, value, packed headers, expires_at_ms
Pending = tuple[int, int, bytes, bytes, int]


@dataclass(slots=True)
class Run:
    """Messages that wait to be written: the newest of each key, and all without a key."""

    keyed: dict[bytes, Pending] = field(default_factory=dict)
    unkeyed: list[tuple[bytes, Pending]] = field(default_factory=list)

    def add(self, request: WriteRequest, *, first_seq: int, timestamp_ms: int, dedupe: bool) -> None:
        seq = first_seq - 1
        keyed, unkeyed = self.keyed, self.unkeyed
        put = int(Kind.PUT)
        plain = not (request.kinds or request.headers or request.ttl_ms)
        for index, (key, value) in enumerate(zip(request.keys, request.values, strict=True)):
            seq += 1
            if plain:
                pending: Pending = (seq, put, value, b"", 0)
            else:
                kind = request.kinds[index] if request.kinds else put
                ttl_ms = request.ttl_ms.get(index, 0)
                expires_at_ms = timestamp_ms + ttl_ms if ttl_ms else 0
                pending = (seq, kind, value, request.headers.get(index, b""), expires_at_ms)
            if dedupe and key:
                keyed[key] = pending
            else:
                unkeyed.append((key, pending))

    def write(self, changes: Changes, timestamp_ms: int) -> list[bytes]:
        """Give each its stored form and append them; they are the batch's, in the order of the log."""
        special: dict[bytes, Special] = {}
        keyed = dict(zip(self.keyed, encode_all(self.keyed.items(), timestamp_ms, special), strict=True))
        unkeyed = encode_all(self.unkeyed, timestamp_ms, special)
        return changes.put_messages(keyed, unkeyed, special)


def encode_all(
    messages: Iterable[tuple[bytes, Pending]], timestamp_ms: int, special: dict[bytes, Special]
) -> list[bytes]:
    """Stored forms; what is no plain PUT is noted in `special`."""
    pack, pack_checksum, size_of, put = HEAD.pack, CHECKSUM.pack, len, int(Kind.PUT)
    stored_forms = []
    for key, (seq, kind, value, headers, expires_at_ms) in messages:
        if headers or expires_at_ms:
            stored = encode_record(seq, kind, timestamp_ms, key, value, headers, expires_at_ms)
        else:
            # encode_record for the plain record, without the call: this line is the ingest's hottest.
            body = pack(seq, kind, 0, size_of(key), timestamp_ms) + key + value
            stored = body + pack_checksum(checksum_of(body))
        if kind != put or expires_at_ms:
            special[stored[:8]] = (kind, expires_at_ms)
        stored_forms.append(stored)
    return stored_forms


class Sequencer:
    """Turns one group of requests into changes, answers and a batch."""

    def __init__(self, changes: Changes, *, now_ms: int, nearly_full: bool) -> None:
        self._changes = changes
        self._nearly_full = nearly_full
        self._start = changes.state
        self._timestamp_ms = max(changes.state.last_timestamp_ms, now_ms)
        self._high_seq = changes.state.high_seq
        self._run = Run()
        self._records: list[bytes] = []
        self._producers: dict[bytes, ProducerRow] = {}
        # Those of them that the table does not hold yet, for the bound on their number.
        self._new_producers: set[bytes] = set()

    def sequence(self, requests: Sequence[Request]) -> tuple[tuple[WriteResult | KayosError, ...], Batch | None]:
        answers: list[WriteResult | KayosError] = []
        for request in requests:
            try:
                answers.append(self._write(request) if isinstance(request, WriteRequest) else self._control(request))
            except KayosError as refusal:
                answers.append(refusal)
        self._flush()
        if self._high_seq == self._start.high_seq:
            return tuple(answers), None
        changes = self._changes
        changes.put_producers(self._producers.values())
        changes.state = replace(changes.state, high_seq=self._high_seq, last_timestamp_ms=self._timestamp_ms)
        batch = Batch(
            epoch=self._start.epoch,
            previous_seq=self._start.high_seq,
            last_seq=self._high_seq,
            timestamp_ms=self._timestamp_ms,
            records=tuple(self._records),
            producers=tuple(self._producers.values()),
        )
        return tuple(answers), batch

    def _write(self, request: WriteRequest) -> WriteResult:
        if not request.count:
            raise InvalidArgument("the batch is empty: send at least one message")
        if not self._start.takeover.rows:
            raise FailedPrecondition("this replica has no takeover row yet: it cannot accept writes")
        row = None
        if request.producer is not None:
            row = self._find_producer(request.producer.producer_id)
            known = self._check_producer(request.producer, row)
            if known is not None:
                return known
        if self._nearly_full and not request.only_deletes:
            raise StoreFull(
                "the store is nearly full (map or disk): delete or trim messages, or make room on the disk",
                retry_delay_ms=1_000,
            )
        if request.expected:
            self._check_conditions(request)
        first_seq = self._high_seq + 1
        self._high_seq += request.count
        self._run.add(request, first_seq=first_seq, timestamp_ms=self._timestamp_ms, dedupe=self._changes.is_compact)
        if request.producer is not None:
            self._note_result(request.producer, row, first_seq)
        return self._result(first_seq)

    def _result(self, first_seq: int) -> WriteResult:
        history_id = self._start.takeover.current_history_id
        return WriteResult(history_id, first_seq, self._high_seq, self._timestamp_ms)

    def _find_producer(self, producer_id: bytes) -> ProducerRow | None:
        if producer_id in self._producers:
            return self._producers[producer_id]
        stored = self._changes.txn.get(producer_id, db=self._changes.tables.producers)
        return None if stored is None else unpack_producer(producer_id, stored)

    def _check_producer(self, stamp: ProducerStamp, row: ProducerRow | None) -> WriteResult | None:
        """The original answer of a repeat; None when the request is the next one; else an error."""
        if row is None:
            if stamp.number != 1:
                raise ProducerUnknown(
                    f"this shard does not know the producer, and its number is {stamp.number}: "
                    "start again with a new producer id at number 1"
                )
            self._check_room_for_producer()
            return None
        if stamp.producer_epoch < row.producer_epoch:
            raise ProducerFenced(
                f"producer epoch {stamp.producer_epoch} was replaced by {row.producer_epoch}: stop this producer",
                producer_epoch=row.producer_epoch,
            )
        last_number = row.last.number if stamp.producer_epoch == row.producer_epoch else 0
        if stamp.number == last_number + 1:
            return None
        if stamp.number > last_number:
            raise ProducerGap(
                f"producer number {stamp.number} leaves a gap: the next one is {last_number + 1}",
                last_number=last_number,
            )
        for result in row.results:
            if result.number == stamp.number:
                history_id = self._start.takeover.find_history_at(result.first_seq)
                return WriteResult(history_id, result.first_seq, result.last_seq, result.timestamp_ms, duplicate=True)
        raise InvalidArgument(
            f"producer number {stamp.number} is too old: results are kept from {row.results[0].number} on"
        )

    def _check_room_for_producer(self) -> None:
        stored = self._changes.txn.stat(self._changes.tables.producers)["entries"]
        if stored + len(self._new_producers) >= PRODUCERS_MAX:
            raise LimitReached(
                f"this shard knows {PRODUCERS_MAX} producers already: reuse producer ids, or wait until old ones "
                "are forgotten",
                retry_delay_ms=60_000,
            )

    def _note_result(self, stamp: ProducerStamp, row: ProducerRow | None, first_seq: int) -> None:
        result = ProducerResult(stamp.number, first_seq, self._high_seq, self._timestamp_ms)
        kept: tuple[ProducerResult, ...] = ()
        if row is None:
            self._new_producers.add(stamp.producer_id)
        elif row.producer_epoch == stamp.producer_epoch:
            kept = row.results[-(PRODUCER_RESULTS_KEPT - 1) :]
        self._producers[stamp.producer_id] = ProducerRow(stamp.producer_id, stamp.producer_epoch, (*kept, result))

    def _check_conditions(self, request: WriteRequest) -> None:
        if not self._changes.is_compact:
            raise WrongMode("conditional writes need a topic of mode 'compact': this one is a log")
        for index in sorted(request.expected):
            expected_seq = request.expected[index]
            current_seq = self._live_seq(request.keys[index])
            if current_seq != expected_seq:
                raise ConditionFailed(
                    f"message {index} expected its key at sequence {expected_seq} but it is at {current_seq} "
                    "(0: there is none): read it again and decide anew",
                    index=index,
                    expected_seq=expected_seq,
                    current_seq=current_seq,
                )

    def _live_seq(self, key: bytes) -> int:
        """The sequence of a key's live message; 0 when there is none or it was deleted."""
        pending = self._run.keyed.get(key)
        if pending is not None:
            return pending[0] if pending[1] == Kind.PUT else 0
        row = self._changes.txn.get(slot_of(key), db=self._changes.tables.keys)
        if row is None:
            return 0
        seq, kind = live_kind(row)
        return seq if kind == Kind.PUT else 0

    def _flush(self) -> None:
        if self._run.keyed or self._run.unkeyed:
            self._records += self._run.write(self._changes, self._timestamp_ms)
            self._run = Run()

    def _control(self, request: ControlRequest) -> WriteResult:
        control = request.control
        self._check_control(control)
        self._flush()
        first_seq = self._high_seq + 1
        if isinstance(control, Expire) and self._changes.is_compact:
            self._add_tombstones(control)
            self._flush()
        if isinstance(control, ForgetProducers):
            self._forget_from_group(control.through_seq)
        self._high_seq += 1
        seq, timestamp_ms = self._high_seq, self._timestamp_ms
        self._changes.apply_control(control, seq=seq, timestamp_ms=timestamp_ms)
        self._records.append(encode_record(seq, Kind.CONTROL, timestamp_ms, b"", encode_control(control)))
        return self._result(first_seq)

    def _forget_from_group(self, through_seq: int) -> None:
        """Rows of this very group are written at its end. The control must see them as they stand now, and those that
        it forgets must not come back."""
        self._changes.put_producers(self._producers.values())
        self._new_producers.clear()
        gone = [producer for producer, row in self._producers.items() if row.last.last_seq <= through_seq]
        for producer_id in gone:
            del self._producers[producer_id]

    def _add_tombstones(self, control: Expire) -> None:
        """Keyed messages past their time become tombstones, so that consumers learn of them."""
        changes = self._changes
        last = PAIR.pack(control.through_ms, control.through_expiry_seq)
        expired = [key[8:] for key in changes.keys_through(changes.tables.expiry, last)]
        aged = changes.aged_keys(after_seq=changes.state.floors.aged_seq, through_seq=control.aged_seq)
        for seq_key in sorted({*expired, *aged}):
            record = read_record(changes.txn, changes.tables, seq_key)
            if record.key and record.kind == Kind.PUT:
                self._high_seq += 1
                self._run.keyed[record.key] = (self._high_seq, int(Kind.DELETE), b"", b"", 0)

    def _check_control(self, control: Control) -> None:
        match control:
            case CommitMark():
                self._check_mark(control)
            case DropMark(consumer):
                if self._changes.txn.get(consumer.encode(), db=self._changes.tables.marks) is None:
                    raise MarkNotFound(f"consumer {consumer!r} has no mark here")
            case CreatePin(pin_id):
                self._check_new_pin(pin_id)
            case RenewPin(pin_id) | EndPin(pin_id):
                self._check_living_pin(pin_id)
            case Purge(through_seq):
                self._check_mode(needs_compact=True, what="purging tombstones")
                self._check_reach(through_seq)
            case Trim(through_seq):
                self._check_mode(needs_compact=False, what="trimming")
                self._check_reach(through_seq)
            case Expire(through_ms, _, aged_seq):
                self._check_reach(aged_seq)
                if through_ms > self._timestamp_ms:
                    raise OutOfRange(f"expiry through {through_ms} ms lies after now, {self._timestamp_ms}")
            case ForgetProducers(through_seq):
                self._check_reach(through_seq)

    def _check_mode(self, *, needs_compact: bool, what: str) -> None:
        if self._changes.is_compact != needs_compact:
            raise WrongMode(f"{what} needs a topic of mode {'compact' if needs_compact else 'log'!r}")

    def _check_reach(self, through_seq: int) -> None:
        if through_seq > self._high_seq:
            raise OutOfRange(f"sequence {through_seq} lies above the log's end, {self._high_seq}")

    def _check_mark(self, control: CommitMark) -> None:
        changes, mark = self._changes, control.mark
        table_key = control.consumer.encode()
        stored = changes.txn.get(table_key, db=changes.tables.marks)
        if stored is None:
            if changes.txn.stat(changes.tables.marks)["entries"] >= MARKS_MAX:
                raise LimitReached(
                    f"this shard holds {MARKS_MAX} marks: drop those of consumers that are gone",
                    retry_delay_ms=60_000,
                )
        elif not control.forced:
            stored_seq = unpack_mark(table_key, stored).seq
            if mark.seq < stored_seq:
                raise MarkBackwards(
                    f"the mark of {control.consumer!r} is at {stored_seq} and cannot move back to {mark.seq}: "
                    "use 'kayos mark reset' to do so on purpose",
                    stored_seq=stored_seq,
                )
        if mark.seq > self._high_seq:
            raise MarkAhead(
                f"mark {mark.seq} lies above the log's end, {self._high_seq}: commit only boundaries that you received",
                high_seq=self._high_seq,
            )
        self._start.takeover.check_position(
            history_id=mark.history_id, seq=mark.seq, high_seq=self._high_seq, floor_seq=0
        )

    def _check_new_pin(self, pin_id: str) -> None:
        pins = self._changes.pins
        if pin_id in pins:
            raise FailedPrecondition(f"pin {pin_id!r} exists or existed: choose another name")
        if sum(pin.is_alive for pin in pins.values()) >= PINS_MAX:
            raise LimitReached(f"this shard holds {PINS_MAX} pins: release some", retry_delay_ms=1_000)

    def _check_living_pin(self, pin_id: str) -> None:
        pin = self._changes.pins.get(pin_id)
        if pin is None:
            raise PinNotFound(f"there is no pin {pin_id!r} on this shard")
        if pin.ended:
            raise SnapshotExpired(f"pin {pin_id!r} ended: {pin.ended}; start again from your mark")
