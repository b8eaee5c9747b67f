"""The words of an upstream, written into a FollowResponse and read out of one.

A type or name that the tables do not list is a bug here or another version there; either way it is an error.
"""

from collections.abc import Callable
from typing import Any

from kayos.errors import InvalidArgument
from kayos.limits import ROLLBACK_KEYS_PER_QUESTION
from kayos.model.catch_up import Restorable
from kayos.stream.messages import (
    Bye,
    CatchUp,
    Continue,
    Downward,
    Piece,
    Progress,
    Records,
    RefusalCode,
    Refuse,
    Reset,
    RollBack,
    Sent,
    Wedge,
)
from kayos.wire.codec import takeover_to_wire
from kayos.wire.replication_rows import (
    batch_from_wire,
    check_history,
    check_numbers,
    check_record_sizes,
    durable_from_wire,
    piece_from_wire,
    takeover_from_wire,
    write_batch,
    write_piece,
)
from kayos.wire.v1 import replication_pb2 as pb

_REFUSALS = {
    RefusalCode.STALE_EPOCH: pb.REFUSAL_CODE_STALE_EPOCH,
    RefusalCode.NOT_IN_CHAIN: pb.REFUSAL_CODE_NOT_IN_CHAIN,
}
_REFUSALS_BACK: dict[int, RefusalCode] = {value: code for code, value in _REFUSALS.items()}


def write_downward(frame: pb.FollowResponse, message: Downward) -> None:
    _WRITERS[type(message)](frame, message)


def read_downward(name: str, session: int, epoch: int, frame: pb.FollowResponse) -> Downward:
    return _READERS[name](session, epoch, getattr(frame, name))


def _write_catch_up(frame: pb.FollowResponse, message: CatchUp) -> None:
    frame.catch_up.SetInParent()


def _write_reason(name: str) -> Callable[[pb.FollowResponse, Reset | Wedge | Bye], None]:
    """Of the words that say but why."""

    def write(frame: pb.FollowResponse, message: Reset | Wedge | Bye) -> None:
        word = getattr(frame, name)
        word.SetInParent()
        word.reason = message.reason

    return write


def _write_continue(frame: pb.FollowResponse, message: Continue) -> None:
    frame.continue_from.SetInParent()
    frame.continue_from.takeover.extend(takeover_to_wire(message.takeover))


def _read_continue(session: int, epoch: int, wire: pb.Continue) -> Continue:
    return Continue(session, epoch, takeover_from_wire(wire.takeover))


def _write_roll_back(frame: pb.FollowResponse, message: RollBack) -> None:
    frame.roll_back.seq = message.seq


def _read_roll_back(session: int, epoch: int, wire: pb.RollBack) -> RollBack:
    check_numbers(seq=wire.seq)
    return RollBack(session, epoch, wire.seq)


def _write_refuse(frame: pb.FollowResponse, message: Refuse) -> None:
    frame.refuse.code = _REFUSALS[message.code]
    frame.refuse.reason = message.reason


def _read_refuse(session: int, epoch: int, wire: pb.Refuse) -> Refuse:
    code = _REFUSALS_BACK.get(wire.code)
    if code is None:
        raise InvalidArgument(f"refusal {wire.code} is unknown: the sender runs another version")
    return Refuse(session, epoch, code, wire.reason)


def _write_sent(frame: pb.FollowResponse, message: Sent) -> None:
    write_batch(frame.sent.batch, message.batch)
    frame.sent.durable.update(message.durable)


def _read_sent(session: int, epoch: int, wire: pb.Sent) -> Sent:
    return Sent(session, epoch, batch_from_wire(wire.batch), durable_from_wire(wire.durable))


def _write_progress(frame: pb.FollowResponse, message: Progress) -> None:
    frame.progress.sent_seq = message.sent_seq
    frame.progress.durable.update(message.durable)


def _read_progress(session: int, epoch: int, wire: pb.Progress) -> Progress:
    check_numbers(sent_seq=wire.sent_seq)
    return Progress(session, epoch, wire.sent_seq, durable_from_wire(wire.durable))


def _write_piece(frame: pb.FollowResponse, message: Piece) -> None:
    write_piece(frame.piece, message.piece)


def _read_piece(session: int, epoch: int, wire: pb.Piece) -> Piece:
    return Piece(session, epoch, piece_from_wire(wire))


def _write_records(frame: pb.FollowResponse, message: Records) -> None:
    found = message.restorable
    frame.records.history_id = found.history_id
    frame.records.end_seq = found.end_seq
    frame.records.answered = found.answered
    frame.records.records.extend(found.records)


def _read_records(session: int, epoch: int, wire: pb.Records) -> Records:
    check_numbers(end_seq=wire.end_seq)
    records = tuple(wire.records)
    if not len(records) <= wire.answered <= ROLLBACK_KEYS_PER_QUESTION:
        raise InvalidArgument(f"{len(records)} records answer for {wire.answered} keys")
    check_record_sizes(records)
    history_id = check_history("history_id", wire.history_id)
    return Records(session, epoch, Restorable(history_id, wire.end_seq, wire.answered, records))


_WRITERS: dict[type, Callable[[pb.FollowResponse, Any], None]] = {
    Continue: _write_continue,
    CatchUp: _write_catch_up,
    RollBack: _write_roll_back,
    Reset: _write_reason("reset"),
    Wedge: _write_reason("wedge"),
    Refuse: _write_refuse,
    Sent: _write_sent,
    Progress: _write_progress,
    Piece: _write_piece,
    Records: _write_records,
    Bye: _write_reason("bye"),
}
_READERS: dict[str, Callable[[int, int, Any], Downward]] = {
    "continue_from": _read_continue,
    "catch_up": lambda session, epoch, wire: CatchUp(session, epoch),
    "roll_back": _read_roll_back,
    "reset": lambda session, epoch, wire: Reset(session, epoch, wire.reason),
    "wedge": lambda session, epoch, wire: Wedge(session, epoch, wire.reason),
    "refuse": _read_refuse,
    "sent": _read_sent,
    "progress": _read_progress,
    "piece": _read_piece,
    "records": _read_records,
    "bye": lambda session, epoch, wire: Bye(session, epoch, wire.reason),
}
