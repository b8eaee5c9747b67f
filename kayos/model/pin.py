"""A pin: a named snapshot at sequence `seq` that every replica can serve until its lease ends."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pin:
    """`ended` is empty while the pin lives, then the reason; ended rows are kept for a while so that a
    reader is told "expired" and not "unknown"."""

    pin_id: str
    seq: int
    created_ms: int
    lease_until_ms: int
    ended: str = ""
    ended_seq: int = 0

    @property
    def is_alive(self) -> bool:
        return not self.ended
