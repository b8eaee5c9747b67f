"""A topic: a named log with shards, replicas, tails, a mode and a retention."""

import re
from dataclasses import dataclass, field
from enum import StrEnum

from kayos.errors import InvalidArgument
from kayos.limits import (
    NAME_PATTERN,
    REPLICAS_MAX,
    SHARDS_MAX,
    TOMBSTONE_RETENTION_MS_DEFAULT,
    TTL_MS_MAX,
)

_NAME = re.compile(NAME_PATTERN)


class Mode(StrEnum):
    COMPACT = "compact"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class Retention:
    """When the head removes messages; 0 means never. Ages in ms, `max_bytes` and `max_messages` per shard
    and only in mode `log`; `tombstone_ms` only in mode `compact`."""

    max_age_ms: int = 0
    max_bytes: int = 0
    max_messages: int = 0
    tombstone_ms: int = TOMBSTONE_RETENTION_MS_DEFAULT

    def check(self, mode: Mode) -> None:
        for name in ("max_age_ms", "tombstone_ms"):
            value = getattr(self, name)
            if not 0 <= value <= TTL_MS_MAX:
                raise InvalidArgument(f"{name} is {value}: give 0 (never) to {TTL_MS_MAX} ms")
        for name in ("max_bytes", "max_messages"):
            value = getattr(self, name)
            if not 0 <= value < 2**63:
                raise InvalidArgument(f"{name} is {value}: give 0 (no limit) or a positive number")
            if value and mode is not Mode.LOG:
                raise InvalidArgument(f"{name} needs a topic of mode 'log': in mode 'compact' use max_age_ms")


@dataclass(frozen=True, slots=True)
class Topic:
    """`topic_id` names directories; the name never does."""

    name: str
    topic_id: str
    shards: int = 1
    replicas: int = 1
    tails: int = 1
    min_durable: int = 1
    min_replicas: int = 1
    mode: Mode = Mode.COMPACT
    retention: Retention = field(default_factory=Retention)
    created_ms: int = 0

    def check(self) -> None:
        check_name("topic", self.name)
        if not 1 <= self.shards <= SHARDS_MAX:
            raise InvalidArgument(f"shards is {self.shards}: give 1 to {SHARDS_MAX}")
        if not 1 <= self.replicas <= REPLICAS_MAX:
            raise InvalidArgument(f"replicas is {self.replicas}: give 1 to {REPLICAS_MAX}")
        for name in ("tails", "min_durable", "min_replicas"):
            value = getattr(self, name)
            if not 1 <= value <= self.replicas:
                raise InvalidArgument(f"{name} is {value}: give 1 to the number of replicas, {self.replicas}")
        self.retention.check(self.mode)


def check_name(what: str, name: str) -> None:
    """Names of topics, consumers and pins: safe in a path, a URL, a shell and a label."""
    if not _NAME.fullmatch(name):
        shown = name if len(name) <= 80 else name[:80] + "…"
        raise InvalidArgument(
            f"{what} name {shown!r} is not allowed: use 1 to 63 of a-z, 0-9, '.', '_', '-', "
            "beginning with a letter or digit"
        )
