"""Connections to the other nodes: one per address, shared by all shards, quick to notice a frozen peer."""

from grpc import aio

from kayos import limits

OPTIONS = (
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    # A frozen peer is noticed by `ping_timeout_ms`; keepalive alone took 61 s.
    ("grpc.keepalive_time_ms", limits.KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", limits.PING_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", limits.PING_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A peer that comes back is found at once: the links wait themselves between two tries.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Neighbours talk all the time; a shared connection pool of the process would tie them to each other.
    ("grpc.use_local_subchannel_pool", 1),
)


class Peers:
    def __init__(self) -> None:
        self._channels: dict[str, aio.Channel] = {}

    def channel(self, address: str) -> aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = aio.insecure_channel(address, options=OPTIONS)
        return channel

    async def close(self) -> None:
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close(None)
