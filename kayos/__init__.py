"""Kayos: a durable, ordered, de-duplicating message log.

    with kayos.connect("127.0.0.1:7400") as client:
        client.produce("orders", b"v", key=b"k")
        with client.transaction("orders") as transaction:
            transaction.put(b"k", b"v")
        for snapshot in client.consume("orders", consumer="warehouse"):
            for message in snapshot:
                ...
            snapshot.commit()

`kayos.aio.connect` is the same, awaited. `kayos.errors` holds every error. `kayos.Start` says where a consumer begins.

The client's modules are loaded when one of these names is first used: a node, a store or a process that forks
imports this package too and has no need of a gRPC client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kayos import errors

if TYPE_CHECKING:
    from kayos import aio
    from kayos.client.blocking.client import Client, connect
    from kayos.client.blocking.consumer import Consumer
    from kayos.client.blocking.messages import MessageConsumer
    from kayos.client.blocking.snapshot import Snapshot
    from kayos.client.blocking.transaction import Transaction
    from kayos.client.core.bulk import BulkDelivery
    from kayos.client.core.delivery import BatchDelivery, Delivery
    from kayos.client.core.marks import MarkChange, MarkInfo
    from kayos.client.core.message import Message
    from kayos.client.core.pins import ShardPin
    from kayos.client.core.start import Start
    from kayos.client.core.topics import NodeStatus, ShardStatus, TopicDescription
    from kayos.errors import KayosError
    from kayos.model.mark import Mark
    from kayos.model.topic import Topic

__version__ = "0.2.0"

__all__ = [
    "BatchDelivery",
    "BulkDelivery",
    "Client",
    "Consumer",
    "Delivery",
    "KayosError",
    "Mark",
    "MarkChange",
    "MarkInfo",
    "Message",
    "MessageConsumer",
    "NodeStatus",
    "ShardPin",
    "ShardStatus",
    "Snapshot",
    "Start",
    "Topic",
    "TopicDescription",
    "Transaction",
    "aio",
    "connect",
    "errors",
]

_HOMES = {
    "BatchDelivery": "kayos.client.core.delivery",
    "BulkDelivery": "kayos.client.core.bulk",
    "Client": "kayos.client.blocking.client",
    "Consumer": "kayos.client.blocking.consumer",
    "Delivery": "kayos.client.core.delivery",
    "KayosError": "kayos.errors",
    "Mark": "kayos.model.mark",
    "MarkChange": "kayos.client.core.marks",
    "MarkInfo": "kayos.client.core.marks",
    "Message": "kayos.client.core.message",
    "MessageConsumer": "kayos.client.blocking.messages",
    "NodeStatus": "kayos.client.core.topics",
    "ShardPin": "kayos.client.core.pins",
    "ShardStatus": "kayos.client.core.topics",
    "Snapshot": "kayos.client.blocking.snapshot",
    "Start": "kayos.client.core.start",
    "Topic": "kayos.model.topic",
    "TopicDescription": "kayos.client.core.topics",
    "Transaction": "kayos.client.blocking.transaction",
    "connect": "kayos.client.blocking.client",
}


def __getattr__(name: str) -> Any:
    if name == "aio":
        return import_module("kayos.aio")
    if name not in _HOMES:
        raise AttributeError(f"module 'kayos' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
