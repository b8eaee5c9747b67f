"""A transaction while its block runs: writes gathered for one shard, sent as one request at the end."""

from enum import Enum, auto

from kayos.client.core.batch import Draft
from kayos.client.core.delivery import BatchDelivery, Delivery
from kayos.client.core.route import View, check_route, shard_of
from kayos.client.core.write import Write, check_request_size
from kayos.errors import FailedPrecondition, InvalidArgument
from kayos.limits import BATCH_COUNT_MAX


class State(Enum):
    NEW = auto()
    OPEN = auto()
    ENDED = auto()


class TransactionDraft:
    """`shard` is fixed by `route`, or else by the first key; None while only unkeyed messages were added."""

    def __init__(self, topic: str, *, route: bytes | None, durability: int) -> None:
        check_route(route)
        self._route = route
        self._state = State.NEW
        self._outcome: tuple[Delivery, ...] | None = None
        self.topic = topic
        self.shards = 0
        self.shard: int | None = None
        self.draft = Draft(durability, 0.0)

    def begin(self, view: View) -> None:
        if self._state is not State.NEW:
            raise FailedPrecondition("this transaction was used already: begin another one")
        self._state = State.OPEN
        self.shards = view.shards
        if self._route is not None:
            self.shard = shard_of(self._route, view.shards)

    def add(self, write: Write) -> None:
        if self._state is State.NEW:
            raise FailedPrecondition("this transaction has not begun: use it in a with block")
        if self._state is State.ENDED:
            raise FailedPrecondition("this transaction has ended: begin another one")
        check_request_size(self.draft.size + write.size)
        if self.draft.count >= BATCH_COUNT_MAX:
            raise InvalidArgument(f"a transaction holds at most {BATCH_COUNT_MAX} messages: use several")
        if write.key and self._route is None:
            self._check_shard(write.key)
        self.draft.add(write, write.size)

    def _check_shard(self, key: bytes) -> None:
        shard = shard_of(key, self.shards)
        if self.shard is not None and shard != self.shard:
            raise InvalidArgument(
                f"key {key!r} belongs to shard {shard} of topic {self.topic!r}, the transaction to shard "
                f"{self.shard}: a transaction has one shard, pass route= to put its keys together"
            )
        self.shard = shard

    def end(self) -> None:
        self._state = State.ENDED

    def abandon(self) -> None:
        """The block raised: nothing is sent."""
        self.end()
        self.draft = Draft(0, 0.0)

    def finish(self, delivery: BatchDelivery | None) -> None:
        self._outcome = () if delivery is None else tuple(delivery.messages())

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """One per write, in order; there once the block has ended well."""
        if self._outcome is None:
            raise FailedPrecondition("the transaction is not committed: its result is there after the block")
        return self._outcome
