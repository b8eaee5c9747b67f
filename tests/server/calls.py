"""Bare gRPC calls for tests: every method of the schema by name, and snapshots taken apart and verified."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import google_crc32c
import grpc
from grpc import aio

from kayos.errors import KayosError
from kayos.model.record import Record
from kayos.wire.codec import records_from_columns
from kayos.wire.methods import CLUSTER_METHODS, LOG_METHODS, Method
from kayos.wire.status import error_from_rpc
from kayos.wire.v1 import cluster_pb2, log_pb2, types_pb2

TIMEOUT_S = 20.0
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


@dataclass(frozen=True)
class Snapshot:
    """One snapshot between its begin and its end, count and checksum verified."""

    start_seq: int
    end_seq: int
    purge_seq: int
    records: tuple[Record, ...]
    mark: types_pb2.Mark

    @property
    def values(self) -> dict[bytes, bytes]:
        return {record.key: record.value for record in self.records}

    @property
    def seqs(self) -> list[int]:
        return [record.seq for record in self.records]


class Calls:
    """One channel to one node. `calls.produce(...)` and so on are short forms of the common calls."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.channel = aio.insecure_channel(address, options=OPTIONS)
        for method in (*LOG_METHODS.values(), *CLUSTER_METHODS.values()):
            setattr(self, method.name, self._bind(method))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    async def __aenter__(self) -> "Calls":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.channel.close()

    def raw(self, path: str, *, streams: bool = False) -> Any:
        """A method called with bytes as they are."""
        return self.channel.unary_stream(path) if streams else self.channel.unary_unary(path)

    async def create_topic(self, name: str, **settings: Any) -> cluster_pb2.Topic:
        request = cluster_pb2.CreateTopicRequest(name=name, **settings)
        return (await self.CreateTopic(request, timeout=TIMEOUT_S)).topic

    async def put(self, topic: str, values: dict[bytes, bytes], **fields: Any) -> log_pb2.ProduceResponse:
        request = log_pb2.ProduceRequest(shard=shard(topic), keys=list(values), values=list(values.values()), **fields)
        return await self.Produce(request, timeout=TIMEOUT_S)

    async def append(self, topic: str, *values: bytes, **fields: Any) -> log_pb2.ProduceResponse:
        return await self.Produce(
            log_pb2.ProduceRequest(shard=shard(topic), values=values, **fields), timeout=TIMEOUT_S
        )

    async def delete(self, topic: str, *keys: bytes) -> log_pb2.ProduceResponse:
        request = log_pb2.ProduceRequest(
            shard=shard(topic), keys=keys, values=[b""] * len(keys), kinds=b"\x02" * len(keys)
        )
        return await self.Produce(request, timeout=TIMEOUT_S)

    async def status(self, topic: str) -> cluster_pb2.ShardStatus:
        response = await self.DescribeTopic(cluster_pb2.DescribeTopicRequest(name=topic), timeout=TIMEOUT_S)
        return response.shards[0]

    def subscribe(self, topic: str, timeout: float = TIMEOUT_S, **fields: Any) -> AsyncIterator[Snapshot]:
        """Snapshots, until the stream ends."""
        return snapshots_of(self.Subscribe(log_pb2.SubscribeRequest(shard=shard(topic), **fields), timeout=timeout))

    async def read_all(self, topic: str, **start: Any) -> list[Snapshot]:
        """Every snapshot up to the end of the log."""
        start = start or {"after_seq": 0}
        return [snapshot async for snapshot in self.subscribe(topic, stop_at_end=True, **start)]

    async def contents(self, topic: str) -> dict[bytes, bytes]:
        """What a consumer that reads from 0 to the end holds."""
        found: dict[bytes, bytes] = {}
        for snapshot in await self.read_all(topic):
            apply(found, snapshot)
        return found

    def _bind(self, method: Method) -> Any:
        if method.client_streams:
            factory = self.channel.stream_stream
        else:
            factory = self.channel.unary_stream if method.server_streams else self.channel.unary_unary
        return factory(
            method.path,
            request_serializer=method.request_class.SerializeToString,
            response_deserializer=method.response_class.FromString,
        )


def shard(topic: str, index: int = 0, epoch: int = 0) -> log_pb2.ShardRef:
    return log_pb2.ShardRef(topic=topic, shard=index, epoch=epoch)


def apply(state: dict[bytes, bytes], snapshot: Snapshot) -> None:
    for record in snapshot.records:
        if record.kind == 2:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value


async def snapshots_of(stream: Any) -> AsyncIterator[Snapshot]:
    begin: log_pb2.SnapshotBegin | None = None
    records: list[Record] = []
    checksum = 0
    async for event in stream:
        match event.WhichOneof("event"):
            case "begin":
                assert begin is None
                begin, records, checksum = event.begin, [], 0
            case "columns":
                checksum = google_crc32c.extend(checksum, event.columns)
                records += records_from_columns(event.columns)
            case "end":
                assert begin is not None
                assert (event.end.count, event.end.checksum) == (len(records), checksum)
                assert event.end.mark.seq == begin.end_seq
                yield Snapshot(begin.start_seq, begin.end_seq, begin.purge_seq, tuple(records), event.end.mark)
                begin = None
            case "at_end":
                assert begin is None


async def failed_stream(address: str, *payloads: bytes) -> tuple[list[log_pb2.ProduceResponse], grpc.RpcError]:
    """The answers of a produce stream that the node ends while it is written to, and its status.

    By the blocking client, in a thread: the asyncio one reports its own failed write in place of the node's status when
    the two meet (1 in 400 on a busy machine).
    """

    def run() -> tuple[list[log_pb2.ProduceResponse], grpc.RpcError]:
        answers = []
        with grpc.insecure_channel(address) as channel:
            stream = channel.stream_stream(LOG_METHODS["ProduceStream"].path)
            try:
                for answer in stream(iter(payloads), timeout=TIMEOUT_S):
                    answers.append(log_pb2.ProduceResponse.FromString(answer))
            except grpc.RpcError as error:
                return answers, error
        raise AssertionError("the stream did not fail")

    return await asyncio.to_thread(run)


async def error_of(call: Any) -> tuple[grpc.StatusCode, KayosError]:
    """The failure of a call (or of a stream, read to its end)."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except aio.AioRpcError as error:
        return error.code(), error_from_rpc(error)
    raise AssertionError("the call did not fail")
