"""A transaction while its block runs: writes gathered for one shard, sent as one request at the end."""

from kayos.client.core.batch import Draft
from kayos.client.core.delivery import BatchDelivery, Delivery
from kayos.client.core.route import View, shard_of
from kayos.client.core.write import Write, check_request_size
from kayos.errors import FailedPrecondition, InvalidArgument
from kayos.limits import BATCH_COUNT_MAX


class TransactionDraft:
    """`shard` is fixed by `route`, or else by the first key; None while only unkeyed messages were added."""

    def __init__(self, view: View, *, route: bytes | None, durability: int) -> None:
        self._view = view
        self._routed = route is not None
        self._outcome: tuple[Delivery, ...] | None = None
        self.shard = None if route is None else shard_of(route, view.shards)
        self.draft = Draft(durability, 0.0)

    @property
    def topic(self) -> str:
        return self._view.topic.name

    def add(self, write: Write) -> None:
        if self._outcome is not None:
            raise FailedPrecondition("this transaction has ended: begin another one")
        if write.key and not self._routed:
            shard = shard_of(write.key, self._view.shards)
            if self.shard is not None and shard != self.shard:
                raise InvalidArgument(
                    f"key {write.key!r} belongs to shard {shard} of topic {self.topic!r}, the transaction to shard "
                    f"{self.shard}: a transaction has one shard, pass route= to put its keys together"
                )
            self.shard = shard
        check_request_size(self.draft.size + write.size)
        if self.draft.count >= BATCH_COUNT_MAX:
            raise InvalidArgument(f"a transaction holds at most {BATCH_COUNT_MAX} messages: use several")
        self.draft.add(write, write.size)

    def finish(self, delivery: BatchDelivery | None) -> None:
        self._outcome = () if delivery is None else tuple(delivery.messages())

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """One per write, in order; there once the block has ended well."""
        if self._outcome is None:
            raise FailedPrecondition("the transaction is not committed: its result is there after the block")
        return self._outcome
