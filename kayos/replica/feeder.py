"""The upstream's half of one conversation: what one downstream has been told, sent and has acknowledged."""

from collections import deque
from enum import Enum, auto

from kayos.limits import LINK_IN_FLIGHT_BYTES_MAX
from kayos.stream.messages import AskPiece, AskRecords, Hello
from kayos.stream.window import Window


class FeederState(Enum):
    GREETED = auto()  # said Hello; answered when this replica is sure of its own log
    STREAMING = auto()  # gets batches
    COPYING = auto()  # asks for records and pieces


class Feeder:
    """`sent_seq` is where the downstream's log ends once all that was sent has arrived."""

    __slots__ = ("_in_flight", "_in_flight_size", "acked_seq", "deferred", "hello", "sent_seq", "session", "state")

    def __init__(self, hello: Hello) -> None:
        self.hello = hello
        self.session = hello.session
        self.state = FeederState.GREETED
        self.sent_seq = hello.high_seq
        self.acked_seq = 0
        # A question that waits until enough is fsynced here.
        self.deferred: AskPiece | AskRecords | None = None
        self._in_flight: deque[tuple[int, int]] = deque()
        self._in_flight_size = 0

    @property
    def has_room(self) -> bool:
        return self._in_flight_size < LINK_IN_FLIGHT_BYTES_MAX

    def note_sent(self, last_seq: int, size: int) -> None:
        self.sent_seq = last_seq
        self._in_flight.append((last_seq, size))
        self._in_flight_size += size

    def note_acked(self, seq: int) -> None:
        self.acked_seq = max(self.acked_seq, seq)
        while self._in_flight and self._in_flight[0][0] <= seq:
            self._in_flight_size -= self._in_flight.popleft()[1]

    def is_behind(self, window: Window) -> bool:
        """What it needs next is no longer in memory."""
        return not window.reaches(self.sent_seq)
