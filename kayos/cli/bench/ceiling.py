"""What the machine can do at all: bare LMDB with the same tables, commits and fsyncs, and a bare gRPC call.

No checksums, no idempotence, no pins, no network: the loop below is the least that a de-duplicating log can do.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import lmdb

_MAP_BYTES = 1 << 36
ECHO_METHOD = "/kayos.bench.Echo/Echo"

ECHO_SERVER = """
import asyncio, sys
import grpc
from grpc import aio
async def echo(request, context):
    return request
async def main():
    server = aio.server()
    handler = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("kayos.bench.Echo", {"Echo": handler}),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)
try:
    import uvloop
    uvloop.run(main())
except ImportError:
    asyncio.run(main())
"""


class BareLog:
    """seq → record and key → seq, committed with fsync, as the store does it."""

    def __init__(self, directory: Path) -> None:
        self._env = lmdb.open(str(directory), map_size=_MAP_BYTES, max_dbs=2)
        self._log = self._env.open_db(b"log")
        self._keys = self._env.open_db(b"keys")
        self._seq = 0

    def commit(self, keys: Sequence[bytes], value: bytes) -> None:
        """One transaction: each key's older record goes, the new one comes."""
        with self._env.begin(write=True) as txn:
            for key in keys:
                self._seq += 1
                seq = self._seq.to_bytes(8, "big")
                older = txn.get(key, db=self._keys)
                if older is not None:
                    txn.delete(older, db=self._log)
                txn.put(seq, key + value, db=self._log, append=True)
                txn.put(key, seq, db=self._keys)

    def scan(self) -> int:
        """Read every record once; how many."""
        with self._env.begin() as txn:
            return sum(1 for _ in txn.cursor(self._log))

    def close(self) -> None:
        self._env.close()


@contextmanager
def open_bare_log(directory: Path) -> Iterator[BareLog]:
    log = BareLog(directory)
    try:
        yield log
    finally:
        log.close()


def time_commits(log: BareLog, batches: Sequence[Sequence[bytes]], value: bytes) -> float:
    """Messages a second."""
    begun = time.perf_counter()
    for batch in batches:
        log.commit(batch, value)
    return sum(map(len, batches)) / (time.perf_counter() - begun)


@contextmanager
def open_echo() -> Iterator[Callable[[bytes], bytes]]:
    """A bare gRPC server in another process that gives back what it gets."""
    process = subprocess.Popen(
        [sys.executable, "-c", ECHO_SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.unary_unary(ECHO_METHOD)
            yield call
    finally:
        process.communicate(timeout=30)
