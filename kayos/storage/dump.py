"""The logical content of a store, row by row in one fixed order: equal copies give equal dumps."""

from collections.abc import Iterator

from kayos.storage.changes import live_kind
from kayos.storage.environment import Environment
from kayos.storage.layout import unpack_mark, unpack_pin, unpack_producer, unpack_retained
from kayos.storage.meta import Meta
from kayos.storage.reader import decode_verified, read_record
from kayos.storage.transaction import Transaction


def dump_rows(txn: Transaction, env: Environment, meta: Meta) -> Iterator[tuple[str, object]]:
    """What incarnation, sync phase and commit point add is this copy's own, and left out."""
    tables, state = env.tables, meta.state
    yield (
        "state",
        (
            meta.identity,
            state.high_seq,
            state.message_seq,
            state.last_timestamp_ms,
            state.floors,
            meta.takeover,
            state.epoch,
        ),
    )
    for seq_key, stored in txn.cursor(tables.log):
        decode_verified(seq_key, stored)
        yield "log", stored
    yield from _dump_keys(txn, env)
    for key, row in txn.cursor(tables.marks):
        yield "mark", (key.decode(), unpack_mark(key, row))
    for key, row in txn.cursor(tables.producers):
        yield "producer", unpack_producer(key, row)
    pins = [unpack_pin(key, row) for key, row in txn.cursor(tables.pins)]
    for pin in pins:
        yield "pin", pin
    living = [pin.seq for pin in pins if pin.is_alive]
    for seq_key, row in txn.cursor(tables.retained):
        replaced_by, record = unpack_retained(seq_key, row)
        seq = int.from_bytes(seq_key, "big")
        if any(seq <= pin_seq < replaced_by for pin_seq in living):
            yield "retained", (seq, replaced_by, record)


def _dump_keys(txn: Transaction, env: Environment) -> Iterator[tuple[str, object]]:
    """Keys in their own order: long ones stand in the table under a digest."""
    entries = []
    for _, row in txn.cursor(env.tables.keys):
        seq, kind = live_kind(row)
        record = read_record(txn, env.tables, row[:8])
        entries.append((record.key, seq, kind))
    for entry in sorted(entries):
        yield "key", entry
