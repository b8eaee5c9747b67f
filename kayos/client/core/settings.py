"""How one client behaves: servers, times, batch sizes and who it is as a producer."""

import os
from dataclasses import dataclass, field

from kayos.errors import InvalidArgument
from kayos.limits import (
    BATCH_BYTES_MAX,
    CLIENT_BATCH_BYTES_DEFAULT,
    CLIENT_BUFFER_BYTES_MAX,
    CLIENT_CALL_TIMEOUT_S,
    CLIENT_DELIVERY_TIMEOUT_S,
    CLIENT_LINGER_MS_DEFAULT,
    GRPC_MESSAGE_BYTES_MAX,
    KEEPALIVE_MS,
    PING_TIMEOUT_MS,
    PRODUCER_ID_BYTES_MAX,
)

# The wire's 32 bits of producer epoch: the caller's part, then the part that the client raises itself when it
# must fence off late copies of its own requests.
OWN_EPOCH_BITS = 12
PRODUCER_EPOCH_MAX = 2 ** (32 - OWN_EPOCH_BITS) - 1

# Keepalive alone notices a frozen peer after a minute; `ping_timeout_ms` is what counts.
CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_send_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Also the time one attempt to connect may take: a busy node needs more than a moment to accept.
    ("grpc.min_reconnect_backoff_ms", 3_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """`timeout_s` bounds one call with all its retries, `delivery_timeout_s` one message from send to answer
    and how long a consumer looks for a lost server."""

    servers: tuple[str, ...]
    timeout_s: float = CLIENT_CALL_TIMEOUT_S
    delivery_timeout_s: float = CLIENT_DELIVERY_TIMEOUT_S
    linger_ms: float = CLIENT_LINGER_MS_DEFAULT
    batch_bytes: int = CLIENT_BATCH_BYTES_DEFAULT
    buffer_bytes: int = CLIENT_BUFFER_BYTES_MAX
    producer_id: bytes = field(default_factory=lambda: os.urandom(16))
    producer_epoch: int = 0

    @property
    def first_epoch(self) -> int:
        return self.producer_epoch << OWN_EPOCH_BITS

    @property
    def last_epoch(self) -> int:
        """The epoch after it belongs to the next life of this producer."""
        return self.first_epoch + (1 << OWN_EPOCH_BITS) - 1

    def check(self) -> None:
        for name in ("timeout_s", "delivery_timeout_s"):
            if not 0 < getattr(self, name) <= 86_400:
                raise InvalidArgument(f"{name} is {getattr(self, name)}: give more than 0 and at most 86400 seconds")
        if not 0 <= self.linger_ms <= 60_000:
            raise InvalidArgument(f"linger_ms is {self.linger_ms}: give 0 to 60000")
        if not 1 <= self.batch_bytes <= BATCH_BYTES_MAX:
            raise InvalidArgument(f"batch_bytes is {self.batch_bytes}: give 1 to {BATCH_BYTES_MAX}")
        if self.buffer_bytes < BATCH_BYTES_MAX:
            raise InvalidArgument(f"buffer_bytes is {self.buffer_bytes}: give at least {BATCH_BYTES_MAX}")
        if not 1 <= len(self.producer_id) <= PRODUCER_ID_BYTES_MAX:
            raise InvalidArgument(
                f"the producer id has {len(self.producer_id)} bytes: give 1 to {PRODUCER_ID_BYTES_MAX}"
            )
        if not 0 <= self.producer_epoch <= PRODUCER_EPOCH_MAX:
            raise InvalidArgument(f"producer_epoch is {self.producer_epoch}: give 0 to {PRODUCER_EPOCH_MAX}")


def make_settings(
    servers: str,
    *,
    timeout_s: float = CLIENT_CALL_TIMEOUT_S,
    delivery_timeout_s: float = CLIENT_DELIVERY_TIMEOUT_S,
    linger_ms: float = CLIENT_LINGER_MS_DEFAULT,
    batch_bytes: int = CLIENT_BATCH_BYTES_DEFAULT,
    buffer_bytes: int = CLIENT_BUFFER_BYTES_MAX,
    producer_id: str | bytes | None = None,
    producer_epoch: int | None = None,
) -> Settings:
    """Checked settings; without `producer_id` the client takes a random one.

    A fixed `producer_id` names a producer across restarts. Each new life needs a higher `producer_epoch`, which fences
    the earlier one off; numbers start from 1 in every epoch, so a life with the old epoch would have its messages
    taken for repeats.
    """
    if (producer_id is None) != (producer_epoch is None):
        raise InvalidArgument("producer_id and producer_epoch go together: give both (a higher epoch at each start)")
    identity = producer_id.encode() if isinstance(producer_id, str) else producer_id
    settings = Settings(
        servers=parse_servers(servers),
        timeout_s=timeout_s,
        delivery_timeout_s=delivery_timeout_s,
        linger_ms=linger_ms,
        batch_bytes=batch_bytes,
        buffer_bytes=buffer_bytes,
        producer_epoch=producer_epoch or 0,
        **({} if identity is None else {"producer_id": identity}),
    )
    settings.check()
    return settings


def parse_servers(servers: str) -> tuple[str, ...]:
    """`"a:1,b:2"` as addresses, each checked for a host and a port."""
    addresses = tuple(part.strip() for part in servers.split(",") if part.strip())
    if not addresses:
        raise InvalidArgument(f"servers is {servers!r}: give HOST:PORT, or several with commas between")
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise InvalidArgument(f"server {address!r} is not HOST:PORT: give for instance 127.0.0.1:7400")
    return addresses
