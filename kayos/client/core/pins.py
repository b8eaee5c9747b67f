"""Pins: named snapshots of a topic's shards that any number of readers see alike."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kayos.client.core.calls import Directory, call_head, call_tail, get_view
from kayos.client.core.steps import Steps
from kayos.errors import FailedPrecondition, InvalidArgument, SnapshotExpired
from kayos.model.pin import Pin
from kayos.model.topic import check_name
from kayos.wire.codec import pin_from_wire
from kayos.wire.v1 import log_pb2


@dataclass(frozen=True, slots=True)
class ShardPin:
    """A pin in one shard: the snapshot at `seq`. `history_id` is empty where the server did not say."""

    topic: str
    shard: int
    pin: Pin
    history_id: bytes = b""

    @property
    def pin_id(self) -> str:
        return self.pin.pin_id

    @property
    def seq(self) -> int:
        return self.pin.seq

    def ranges(self, parts: int) -> list[tuple[int, int]]:
        """(after_seq, end_seq] cut into at most `parts` ranges that together hold the whole snapshot."""
        if parts < 1:
            raise InvalidArgument(f"parts is {parts}: give at least 1")
        cuts = sorted({self.seq * part // parts for part in range(parts + 1)})
        return list(pairwise(cuts))


def create(
    directory: Directory, topic: str, *, pin_id: str | None, lease_ms: int, shard: int | None
) -> Steps[list[ShardPin]]:
    """Pin one shard or all. The id is made here, so that a retry asks for the same pin and not for a second."""
    name = pin_id or f"pin-{secrets.token_hex(8)}"
    check_name("pin", name)
    pins = []
    for number in (yield from _choose_shards(directory, topic, shard)):
        pins.append((yield from _create_one(directory, topic, number, name, lease_ms)))
    return pins


def _create_one(directory: Directory, topic: str, shard: int, name: str, lease_ms: int) -> Steps[ShardPin]:
    tries = 0

    def build(ref: log_pb2.ShardRef) -> log_pb2.CreatePinRequest:
        nonlocal tries
        tries += 1
        return log_pb2.CreatePinRequest(shard=ref, pin_id=name, lease_ms=lease_ms)

    try:
        response = yield from call_head(directory, "CreatePin", topic, shard, build)
    except FailedPrecondition:
        # The answer of an earlier try may have been lost, and the pin that stands there is the one it made.
        found = (yield from _find_living(directory, topic, shard, name)) if tries > 1 else None
        if found is None:
            raise
        return found
    return ShardPin(topic, shard, pin_from_wire(response.pin), response.history_id)


def _find_living(directory: Directory, topic: str, shard: int, name: str) -> Steps[ShardPin | None]:
    for pin in (yield from _list_one(directory, topic, shard)):
        if pin.pin_id == name and pin.pin.is_alive:
            return pin
    return None


def list_all(directory: Directory, topic: str) -> Steps[list[ShardPin]]:
    pins = []
    for shard in (yield from _choose_shards(directory, topic, None)):
        pins += yield from _list_one(directory, topic, shard)
    return pins


def _list_one(directory: Directory, topic: str, shard: int) -> Steps[list[ShardPin]]:
    response = yield from call_tail(directory, "ListPins", topic, shard, lambda ref: log_pb2.ListPinsRequest(shard=ref))
    return [ShardPin(topic, shard, pin_from_wire(wire)) for wire in response.pins]


def renew(directory: Directory, pins: Sequence[ShardPin], *, lease_ms: int) -> Steps[list[ShardPin]]:
    renewed = []
    for pin in pins:

        def build(ref: log_pb2.ShardRef, pin_id: str = pin.pin_id) -> log_pb2.RenewPinRequest:
            return log_pb2.RenewPinRequest(shard=ref, pin_id=pin_id, lease_ms=lease_ms)

        response = yield from call_head(directory, "RenewPin", pin.topic, pin.shard, build)
        renewed.append(ShardPin(pin.topic, pin.shard, pin_from_wire(response.pin), pin.history_id))
    return renewed


def release(directory: Directory, topic: str, pin_id: str, *, shard: int | None) -> Steps[None]:
    """End a pin in one shard or in all."""
    for number in (yield from _choose_shards(directory, topic, shard)):
        yield from _release_one(directory, topic, number, pin_id)


def _release_one(directory: Directory, topic: str, shard: int, pin_id: str) -> Steps[None]:
    tries = 0

    def build(ref: log_pb2.ShardRef) -> log_pb2.ReleasePinRequest:
        nonlocal tries
        tries += 1
        return log_pb2.ReleasePinRequest(shard=ref, pin_id=pin_id)

    try:
        yield from call_head(directory, "ReleasePin", topic, shard, build)
    except SnapshotExpired:
        # Ended is what was asked for, if an earlier try may have done it.
        if tries == 1:
            raise


def _choose_shards(directory: Directory, topic: str, shard: int | None) -> Steps[Sequence[int]]:
    view = yield from get_view(directory, topic)
    return range(view.shards) if shard is None else (shard,)
