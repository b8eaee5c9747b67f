"""What a snapshot that is being read says about itself; each shell adds the reading and the commit."""

from kayos.client.core.guard import Unpicklable
from kayos.client.core.snapshot import SnapshotHead
from kayos.errors import FailedPrecondition
from kayos.model.mark import Mark


class Boundary(Unpicklable):
    """The range (`start_seq`, `end_seq`] of one shard, and the mark at its end once that was reached."""

    def __init__(self, head: SnapshotHead) -> None:
        self._head = head
        self._mark: Mark | None = None

    def __repr__(self) -> str:
        state = "whole" if self.is_whole else "unread"
        return f"<Snapshot {self.topic}/{self.shard} ({self.start_seq}, {self.end_seq}] {state}>"

    @property
    def topic(self) -> str:
        return self._head.topic

    @property
    def shard(self) -> int:
        return self._head.shard

    @property
    def start_seq(self) -> int:
        return self._head.start_seq

    @property
    def end_seq(self) -> int:
        return self._head.end_seq

    @property
    def purge_seq(self) -> int:
        """Up to here deletes or messages were removed for good."""
        return self._head.purge_seq

    @property
    def is_whole(self) -> bool:
        """Whether every message was read and the end verified."""
        return self._mark is not None

    @property
    def mark(self) -> Mark:
        """The boundary, to be stored with the data. Refused until every message was read."""
        if self._mark is None:
            raise FailedPrecondition(
                f"the snapshot to {self.end_seq} of {self.topic}/{self.shard} is not read to its end: "
                "read all its messages before you commit"
            )
        return self._mark
