"""What readers behind the gate need of a store, as it is now or as it stood at a boundary of the past."""

from typing import Protocol

from kayos.model.mark import Mark
from kayos.model.record import Record
from kayos.model.snapshot import LogSlice


class Reads(Protocol):
    def get(self, key: bytes) -> Record | None: ...

    def find_mark(self, consumer: str) -> Mark | None: ...

    def list_marks(self) -> list[tuple[str, Mark]]: ...

    def read_log(
        self, after_seq: int, *, bytes_max: int, end_seq: int | None = None, tombstones: bool = True
    ) -> LogSlice: ...


class KeptReads(Reads, Protocol):
    """At the boundary `seq`."""

    seq: int
