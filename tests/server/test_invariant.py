"""Writers keep x + y constant in transactions; no consumer meets a boundary where it is not."""

import asyncio
import random

from kayos.wire.v1 import log_pb2
from tests.nodes import NodeProcess
from tests.server.calls import TIMEOUT_S, Calls, apply, shard

TOTAL = 1_000
TRANSACTIONS = 3_000
WRITERS = 4
CONSUMERS = 4


async def test_x_plus_y_is_constant_at_every_boundary(node: NodeProcess, calls: Calls, topic: str) -> None:
    await calls.put(topic, {b"x": b"%d" % TOTAL, b"y": b"0"})
    done = asyncio.Event()
    last_seq = 0

    async def write(seed: int) -> None:
        nonlocal last_seq
        chosen = random.Random(seed)

        async def requests():  # type: ignore[no-untyped-def]
            for _ in range(TRANSACTIONS // WRITERS):
                x = chosen.randrange(TOTAL)
                # Other keys come along, so that snapshots differ in size and order.
                keys = [b"x", b"noise%d" % chosen.randrange(50), b"y"]
                yield log_pb2.ProduceRequest(
                    shard=shard(topic), keys=keys, values=[b"%d" % x, b"-", b"%d" % (TOTAL - x)]
                )

        async for answer in calls.ProduceStream(requests(), timeout=60):
            assert not answer.error
            last_seq = max(last_seq, answer.last_seq)

    async def consume() -> int:
        boundaries = 0
        async with Calls(node.address) as own:
            state: dict[bytes, bytes] = {}
            async for snapshot in own.subscribe(topic, after_seq=0, timeout=60):
                apply(state, snapshot)
                boundaries += 1
                assert int(state[b"x"]) + int(state[b"y"]) == TOTAL, f"at {snapshot.end_seq}"
                if done.is_set() and snapshot.end_seq >= last_seq:
                    return boundaries
        raise AssertionError("the stream ended early")

    consumers = [asyncio.ensure_future(consume()) for _ in range(CONSUMERS)]
    await asyncio.gather(*(write(seed) for seed in range(WRITERS)))
    done.set()
    # One more message, so that everybody meets a boundary after the last transaction.
    last_seq = (await calls.put(topic, {b"end": b"1"})).last_seq
    boundaries = await asyncio.wait_for(asyncio.gather(*consumers), TIMEOUT_S)
    assert min(boundaries) > 3, boundaries
