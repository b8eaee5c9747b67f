"""Control records: changes of a shard's tables that travel through the log like messages.

Each takes a sequence, so that every replica applies it at the same place, but leaves no row in the log: its
effect is in the tables, which a catch-up carries whole. The head alone decides on them; replicas never act
on their own clock.
"""

from dataclasses import dataclass

from kayos.model.mark import Mark


@dataclass(frozen=True, slots=True)
class CommitMark:
    """Move a consumer's mark forward (or, with `forced`, anywhere: an operator's reset)."""

    consumer: str
    mark: Mark
    forced: bool = False


@dataclass(frozen=True, slots=True)
class DropMark:
    consumer: str


@dataclass(frozen=True, slots=True)
class CreatePin:
    """Pin the snapshot at this record's own sequence."""

    pin_id: str
    lease_ms: int


@dataclass(frozen=True, slots=True)
class RenewPin:
    pin_id: str
    lease_ms: int


@dataclass(frozen=True, slots=True)
class EndPin:
    pin_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Purge:
    """Remove the tombstones at or below `through_seq`; readers below it must start again."""

    through_seq: int


@dataclass(frozen=True, slots=True)
class Trim:
    """Remove the front of a topic of mode `log`, up to and with `through_seq`."""

    through_seq: int


@dataclass(frozen=True, slots=True)
class Expire:
    """Remove what is past its time: messages whose (`expires_at_ms`, `seq`) is at or below
    (`through_ms`, `through_expiry_seq`), and all at or below `aged_seq`.

    The head turns expired keyed messages into tombstones in the same commit, so that consumers learn of
    them; the control itself removes the unkeyed ones, which nobody needs to be told of.
    """

    through_ms: int
    through_expiry_seq: int
    aged_seq: int


@dataclass(frozen=True, slots=True)
class ForgetProducers:
    """Forget the producers whose last write is at or below `through_seq`."""

    through_seq: int


Control = CommitMark | DropMark | CreatePin | RenewPin | EndPin | Purge | Trim | Expire | ForgetProducers
