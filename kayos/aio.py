"""Kayos for asyncio: the names and signatures of `kayos`, awaited.

async with kayos.aio.connect("127.0.0.1:7400") as client:
    await client.produce("orders", b"v", key=b"k")
    async with client.transaction("orders") as transaction:
        transaction.put(b"k", b"v")
    async for snapshot in client.consume("orders", consumer="warehouse"):
        async for message in snapshot:
            ...
        await snapshot.commit()
"""

from kayos.client.aio.client import Client, connect
from kayos.client.aio.consumer import Consumer
from kayos.client.aio.messages import MessageConsumer
from kayos.client.aio.snapshot import Snapshot
from kayos.client.aio.transaction import Transaction

__all__ = ["Client", "Consumer", "MessageConsumer", "Snapshot", "Transaction", "connect"]
