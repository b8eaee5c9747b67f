"""Short words for stories about stores."""

from collections.abc import Iterable

from kayos.errors import KayosError
from kayos.model.catch_up import Rollback
from kayos.model.control import Control
from kayos.model.producer import ProducerStamp
from kayos.model.record import Kind, Record, pack_headers, verify_and_decode
from kayos.model.takeover import TakeoverRow
from kayos.model.topic import Mode
from kayos.model.write import ControlRequest, Request, WriteRequest, WriteResult
from kayos.storage.interface import Identity, Store
from kayos.storage.memory import MemoryStore

COMPACT = Identity("topic-1", 0, Mode.COMPACT)
LOG = Identity("topic-2", 3, Mode.LOG)
HISTORY = b"history-one-0001"
NEXT_HISTORY = b"history-two-0002"
EVERYTHING = 1 << 40


def new_memory(identity: Identity = COMPACT) -> MemoryStore:
    store = MemoryStore(identity)
    store.take_over(TakeoverRow(HISTORY, 0, 1))
    return store


def put(*pairs: tuple[str, str], producer: ProducerStamp | None = None, **columns: dict[int, int]) -> WriteRequest:
    """A request of PUTs; an empty key is an unkeyed message."""
    return WriteRequest(
        keys=[key.encode() for key, _ in pairs],
        values=[value.encode() for _, value in pairs],
        producer=producer,
        **columns,
    )


def delete(*keys: str, producer: ProducerStamp | None = None, **columns: dict[int, int]) -> WriteRequest:
    return WriteRequest(
        keys=[key.encode() for key in keys],
        values=[b""] * len(keys),
        kinds=bytes([Kind.DELETE]) * len(keys),
        producer=producer,
        **columns,
    )


def with_headers(request: WriteRequest, **headers: str) -> WriteRequest:
    packed = pack_headers((name, value.encode()) for name, value in headers.items())
    return WriteRequest(request.keys, request.values, request.kinds, headers={0: packed})


def wrap(request: WriteRequest | Control) -> Request:
    return request if isinstance(request, WriteRequest) else ControlRequest(request)


def commit(store: Store, *requests: WriteRequest | Control, now_ms: int = 1000) -> list[WriteResult | KayosError]:
    """Commit one group and give the answers, errors among them."""
    return list(store.commit([wrap(request) for request in requests], now_ms=now_ms).answers)


def write(store: Store, *requests: WriteRequest | Control, now_ms: int = 1000) -> list[WriteResult]:
    """Commit one group in which everything must be taken."""
    answers = commit(store, *requests, now_ms=now_ms)
    results = [answer for answer in answers if isinstance(answer, WriteResult)]
    assert len(results) == len(answers), answers
    return results


def refuse(store: Store, request: WriteRequest | Control, now_ms: int = 1000) -> KayosError:
    """Commit one request that must be refused and change nothing."""
    before = list(store.dump())
    (answer,) = commit(store, request, now_ms=now_ms)
    assert isinstance(answer, KayosError), answer
    assert list(store.dump()) == before
    return answer


def decoded(records: Iterable[bytes]) -> list[Record]:
    return [verify_and_decode(stored) for stored in records]


def brief(records: Iterable[bytes]) -> list[str]:
    """Records as words: `3 a=x` for a PUT, `4 -a` for a DELETE, `5 control` for a control."""
    words = []
    for record in decoded(records):
        match record.kind:
            case Kind.PUT:
                words.append(f"{record.seq} {record.key.decode()}={record.value.decode()}")
            case Kind.DELETE:
                words.append(f"{record.seq} -{record.key.decode()}")
            case _:
                words.append(f"{record.seq} control")
    return words


def log_of(store: Store, after_seq: int = 0) -> list[str]:
    return brief(store.read_log(after_seq, bytes_max=EVERYTHING).records)


def pin_rows(store: Store, pin_id: str) -> list[str]:
    return brief(store.read_pin(pin_id, 0, bytes_max=EVERYTHING).records)


def retained_of(store: Store) -> list[tuple[int, int]]:
    """(sequence, replaced by) of each row that a living pin needs."""
    return [row[:2] for table, row in store.dump() if table == "retained"]


def catch_up(store: Store, upstream: Store, *, bytes_max: int = 60, all_retained: bool = False) -> None:
    """Take pieces until the copy is whole."""
    while True:
        state, sync = store.state, store.state.sync
        after_seq = state.high_seq if sync.is_ready else sync.through_seq
        start_seq = state.high_seq if sync.is_ready else sync.start_seq
        piece = upstream.read_catch_up(after_seq, start_seq=start_seq, bytes_max=bytes_max, all_retained=all_retained)
        store.apply_catch_up(piece)
        if piece.tables is not None:
            return


def find_rollback(store: Store, upstream: Store, to_seq: int, *, bytes_max: int = EVERYTHING) -> Rollback:
    """What takes a store back, asked of its upstream as the replicas do."""
    keys = store.find_diverged(to_seq, rows_max=EVERYTHING)
    assert keys is not None
    records: list[bytes] = []
    while True:
        found = upstream.find_restorable(keys, to_seq, bytes_max=bytes_max)
        records += found.records
        keys = keys[found.answered :]
        if not keys:
            return Rollback(to_seq, tuple(records), found.history_id, found.end_seq)
