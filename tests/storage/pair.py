"""An LMDB store and its in-memory twin, told the same and compared at every word."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from kayos.errors import KayosError
from kayos.model.catch_up import CatchUpPiece, CatchUpTables
from kayos.model.record import record_seq
from kayos.model.write import Batch, Request
from kayos.storage.check import check_store
from kayos.storage.interface import CommitResult, Identity, Store, StoreState
from kayos.storage.lmdb_store import LmdbStore, StoreOptions
from kayos.storage.memory import MemoryStore

Answer = TypeVar("Answer")
OPTIONS = StoreOptions(map_bytes=1 << 28)


class Pair:
    def __init__(self, directory: Path, identity: Identity) -> None:
        self.directory = directory
        self.identity = identity
        self.lmdb = LmdbStore.open(directory, identity, OPTIONS)
        self.twin = MemoryStore(identity)

    def both(self, call: Callable[[Store], Answer]) -> Answer | KayosError:
        """Ask both; the answers must be equal, an error must be the same error. Gives the twin's."""
        expected, found = answer_of(self.twin, call), answer_of(self.lmdb, call)
        assert shown(found) == shown(expected)
        return expected

    def commit(self, requests: Sequence[Request], now_ms: int) -> Batch | None:
        forwarded: list[Batch] = []
        result = self.both(lambda store: store.commit(requests, now_ms=now_ms, forward=forwarded.append))
        assert isinstance(result, CommitResult)
        assert [shown(batch) for batch in forwarded] == ([shown(result.batch)] * 2 if result.batch else [])
        # The head's own batch goes on to replicas, not the twin's.
        return forwarded[1] if forwarded else None

    def compare(self) -> None:
        assert list(self.lmdb.dump()) == list(self.twin.dump())
        assert without_incarnation(self.lmdb.state) == without_incarnation(self.twin.state)

    def reopen(self) -> None:
        before = self.lmdb.state
        self.close()
        self.lmdb = LmdbStore.open(self.directory, self.identity, OPTIONS)
        assert without_incarnation(self.lmdb.state) == without_incarnation(before)
        assert self.lmdb.state.incarnation != before.incarnation

    def crash(self) -> None:
        """The process ends: both go on with what is durable, which is not what a copy had come to."""
        self.close()
        self.lmdb = LmdbStore.open(self.directory, self.identity, OPTIONS)
        self.twin = self.twin.copy()
        self.compare()

    def close(self) -> None:
        self.lmdb.close()
        assert check_store(self.directory).problems == ()


def answer_of(store: Store, call: Callable[[Store], Answer]) -> Answer | KayosError:
    try:
        return call(store)
    except KayosError as error:
        return error


def shown(answer: object) -> object:
    """An answer without what may differ: wording, delays, the order of what has none."""
    match answer:
        case KayosError():
            fields = {name: value for name, value in answer.fields.items() if name != "retry_delay_ms"}
            return type(answer), fields
        case CommitResult():
            return [shown(each) for each in answer.answers], shown(answer.batch)
        case Batch():
            return replace(answer, producers=tuple(sorted(answer.producers, key=lambda row: row.producer_id)))
        case CatchUpPiece():
            return replace(answer, tables=shown(answer.tables))
        case CatchUpTables():
            ends = [pin.seq for pin in answer.pins if pin.is_alive]
            needed = [
                row for row in answer.retained if any(record_seq(row.record) <= end < row.replaced_by for end in ends)
            ]
            return replace(answer, retained=tuple(sorted(needed, key=lambda row: record_seq(row.record))))
        case _:
            return answer


def without_incarnation(state: StoreState) -> StoreState:
    return replace(state, incarnation=b"")
