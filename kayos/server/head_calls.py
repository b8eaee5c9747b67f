"""What a tail needs of its shard's head, which may be this very replica.

Pins for readers far behind, which only the head can write; the marks of consumers, of which a tail may know older ones.
"""

from typing import TYPE_CHECKING, Any

import grpc

from kayos.errors import MarkNotFound, Unavailable
from kayos.limits import PEER_CALL_S
from kayos.model.control import Control, CreatePin, EndPin, RenewPin
from kayos.model.mark import Mark
from kayos.model.write import WriteResult
from kayos.wire.codec import mark_from_wire
from kayos.wire.methods import LOG_METHODS
from kayos.wire.status import error_from_rpc
from kayos.wire.v1 import log_pb2

if TYPE_CHECKING:
    # The shard owns its way to the head; the other direction is for the type checker.
    from kayos.server.shard import Shard


class HeadCalls:
    def __init__(self, shard: "Shard") -> None:
        self._shard = shard

    async def find_mark(self, consumer: str) -> Mark | None:
        if self._shard.is_head:
            return await self._shard.read_committed(lambda store: store.find_mark(consumer))
        try:
            found = await self._call("GetMark", log_pb2.GetMarkRequest(shard=self._ref(), consumer=consumer))
        except MarkNotFound:
            return None
        return mark_from_wire(found.mark)

    async def control(self, control: Control) -> WriteResult:
        if self._shard.is_head:
            return await self._shard.control(control)
        ref = self._ref()
        match control:
            case CreatePin(pin_id, lease_ms):
                created = await self._call(
                    "CreatePin", log_pb2.CreatePinRequest(shard=ref, pin_id=pin_id, lease_ms=lease_ms)
                )
                seq = created.pin.seq
                return WriteResult(created.history_id, seq, seq, created.pin.created_ms)
            case RenewPin(pin_id, lease_ms):
                await self._call("RenewPin", log_pb2.RenewPinRequest(shard=ref, pin_id=pin_id, lease_ms=lease_ms))
            case EndPin(pin_id):
                await self._call("ReleasePin", log_pb2.ReleasePinRequest(shard=ref, pin_id=pin_id))
            case _:
                raise TypeError(f"a tail has no need of {type(control).__name__}")
        return WriteResult(b"", 0, 0, 0)

    def _ref(self) -> log_pb2.ShardRef:
        return log_pb2.ShardRef(topic=self._shard.topic.name, shard=self._shard.index, epoch=self._shard.epoch)

    async def _call(self, name: str, request: Any) -> Any:
        shard, method = self._shard, LOG_METHODS[name]
        view = shard.view
        if not view.members:
            raise Unavailable("the shard has no chain here yet: try again", retry_delay_ms=200)
        channel = shard.place.peers.channel(shard.addresses[view.head])
        try:
            encoded: bytes = await channel.unary_unary(method.path)(request.SerializeToString(), timeout=PEER_CALL_S)
        except grpc.RpcError as failure:
            raise error_from_rpc(failure) from None
        return method.response_class.FromString(encoded)
