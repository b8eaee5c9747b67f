from kayos.wire.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ShardRef(_message.Message):
    __slots__ = ("topic", "shard", "epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    shard: int
    epoch: int
    def __init__(self, topic: _Optional[str] = ..., shard: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class Producer(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "number")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    producer_id: bytes
    producer_epoch: int
    number: int
    def __init__(self, producer_id: _Optional[bytes] = ..., producer_epoch: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("index", "expected_seq")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_SEQ_FIELD_NUMBER: _ClassVar[int]
    index: int
    expected_seq: int
    def __init__(self, index: _Optional[int] = ..., expected_seq: _Optional[int] = ...) -> None: ...

class IndexedTtl(_message.Message):
    __slots__ = ("index", "ttl_ms")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    index: int
    ttl_ms: int
    def __init__(self, index: _Optional[int] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class ProduceRequest(_message.Message):
    __slots__ = ("shard", "producer", "durability", "keys", "values", "kinds", "headers", "ttls", "conditions", "correlation")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TTLS_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_FIELD_NUMBER: _ClassVar[int]
    shard: ShardRef
    producer: Producer
    durability: int
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    kinds: bytes
    headers: _containers.RepeatedCompositeFieldContainer[_types_pb2.IndexedHeaders]
    ttls: _containers.RepeatedCompositeFieldContainer[IndexedTtl]
    conditions: _containers.RepeatedCompositeFieldContainer[Condition]
    correlation: int
    def __init__(self, shard: _Optional[_Union[ShardRef, _Mapping]] = ..., producer: _Optional[_Union[Producer, _Mapping]] = ..., durability: _Optional[int] = ..., keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., kinds: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[_types_pb2.IndexedHeaders, _Mapping]]] = ..., ttls: _Optional[_Iterable[_Union[IndexedTtl, _Mapping]]] = ..., conditions: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ..., correlation: _Optional[int] = ...) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("history_id", "first_seq", "last_seq", "timestamp_ms", "copies", "duplicate", "correlation", "error")
    HISTORY_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    history_id: bytes
    first_seq: int
    last_seq: int
    timestamp_ms: int
    copies: int
    duplicate: bool
    correlation: int
    error: bytes
    def __init__(self, history_id: _Optional[bytes] = ..., first_seq: _Optional[int] = ..., last_seq: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., copies: _Optional[int] = ..., duplicate: _Optional[bool] = ..., correlation: _Optional[int] = ..., error: _Optional[bytes] = ...) -> None: ...

class WaitRequest(_message.Message):
    __slots__ = ("shard", "history_id", "seq", "until", "copies")
    class Until(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNTIL_UNSPECIFIED: _ClassVar[WaitRequest.Until]
        UNTIL_COPIES: _ClassVar[WaitRequest.Until]
        UNTIL_ANY_TAIL: _ClassVar[WaitRequest.Until]
        UNTIL_ALL_TAILS: _ClassVar[WaitRequest.Until]
    UNTIL_UNSPECIFIED: WaitRequest.Until
    UNTIL_COPIES: WaitRequest.Until
    UNTIL_ANY_TAIL: WaitRequest.Until
    UNTIL_ALL_TAILS: WaitRequest.Until
    SHARD_FIELD_NUMBER: _ClassVar[int]
    HISTORY_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    shard: ShardRef
    history_id: bytes
    seq: int
    until: WaitRequest.Until
    copies: int
    def __init__(self, shard: _Optional[_Union[ShardRef, _Mapping]] = ..., history_id: _Optional[bytes] = ..., seq: _Optional[int] = ..., until: _Optional[_Union[WaitRequest.Until, str]] = ..., copies: _Optional[int] = ...) -> None: ...

class WaitResponse(_message.Message):
    __slots__ = ("copies",)
    COPIES_FIELD_NUMBER: _ClassVar[int]
    copies: int
    def __init__(self, copies: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("shard", "mark", "consumer", "after_seq", "from_time_ms", "latest", "stop_at_end", "batch_bytes")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    FROM_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    STOP_AT_END_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    shard: ShardRef
    mark: _types_pb2.Mark
    consumer: str
    after_seq: int
    from_time_ms: int
    latest: bool
    stop_at_end: bool
    batch_bytes: int
    def __init__(self, shard: _Optional[_Union[ShardRef, _Mapping]] = ..., mark: _Optional[_Union[_types_pb2.Mark, _Mapping]] = ..., consumer: _Optional[str] = ..., after_seq: _Optional[int] = ..., from_time_ms: _Optional[int] = ..., latest: _Optional[bool] = ..., stop_at_end: _Optional[bool] = ..., batch_bytes: _Optional[int] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("begin", "columns", "end", "at_end")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    AT_END_FIELD_NUMBER: _ClassVar[int]
    begin: SnapshotBegin
    columns: bytes
    end: SnapshotEnd
    at_end: AtEnd
    def __init__(self, begin: _Optional[_Union[SnapshotBegin, _Mapping]] = ..., columns: _Optional[bytes] = ..., end: _Optional[_Union[SnapshotEnd, _Mapping]] = ..., at_end: _Optional[_Union[AtEnd, _Mapping]] = ...) -> None: ...

class SnapshotBegin(_message.Message):
    __slots__ = ("start_seq", "end_seq", "purge_seq", "takeover")
    START_SEQ_FIELD_NUMBER: _ClassVar[int]
    END_SEQ_FIELD_NUMBER: _ClassVar[int]
    PURGE_SEQ_FIELD_NUMBER: _ClassVar[int]
    TAKEOVER_FIELD_NUMBER: _ClassVar[int]
    start_seq: int
    end_seq: int
    purge_seq: int
    takeover: _containers.RepeatedCompositeFieldContainer[_types_pb2.TakeoverRow]
    def __init__(self, start_seq: _Optional[int] = ..., end_seq: _Optional[int] = ..., purge_seq: _Optional[int] = ..., takeover: _Optional[_Iterable[_Union[_types_pb2.TakeoverRow, _Mapping]]] = ...) -> None: ...

class SnapshotEnd(_message.Message):
    __slots__ = ("mark", "count", "checksum")
    MARK_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    mark: _types_pb2.Mark
    count: int
    checksum: int
    def __init__(self, mark: _Optional[_Union[_types_pb2.Mark, _Mapping]] = ..., count: _Optional[int] = ..., checksum: _Optional[int] = ...) -> None: ...

class AtEnd(_message.Message):
    __slots__ = ("mark",)
    MARK_FIELD_NUMBER: _ClassVar[int]
    mark: _types_pb2.Mark
    def __init__(self, mark: _Optional[_Union[_types_pb2.Mark, _Mapping]] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("shard", "key", "min_seq")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    shard: ShardRef
    key: bytes
    min_seq: int
    def __init__(self, shard: _Optional[_Union[ShardRef, _Mapping]] = ..., key: _Optional[bytes] = ..., min_seq: _Optional[int] = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ("found", "seq", "timestamp_ms", "value", "headers")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    found: bool
    seq: int
    timestamp_ms: int
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[_types_pb2.Header]
    def __init__(self, found: _Optional[bool] = ..., seq: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[_types_pb2.Header, _Mapping]]] = ...) -> None: ...

class CommitMarkRequest(_message.Message):
    __slots__ = ("shard", "consumer", "mark")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    shard: ShardRef
    consumer: str
    mark: _types_pb2.Mark
    def __init__(self, shard: _Optional[_Union[ShardRef, _Mapping]] = ..., consumer: _Optional[str] = ..., mark: _Optional[_Union[_types_pb2.Mark, _Mapping]] = ...) -> None: ...

class CommitMarkResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetMarkRequest(_message.Message):
    __slots__ = ("shard", "consumer")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    shard: ShardRef
    consumer: str
    def __init__(self, shard: _Optional[_Union[ShardRef, _Mapping]] = ..., consumer: _Optional[str] = ...) -> None: ...

class GetMarkResponse(_message.Message):
    __slots__ = ("mark", "high_seq", "message_seq")
    MARK_FIELD_NUMBER: _ClassVar[int]
    HIGH_SEQ_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_SEQ_FIELD_NUMBER: _ClassVar[int]
    mark: _types_pb2.Mark
    high_seq: int
    message_seq: int
    def __init__(self, mark: _Optional[_Union[_types_pb2.Mark, _Mapping]] = ..., high_seq: _Optional[int] = ..., message_seq: _Optional[int] = ...) -> None: ...

class ListMarksRequest(_message.Message):
    __slots__ = ("shard",)
    SHARD_FIELD_NUMBER: _ClassVar[int]
    shard: ShardRef
    def __init__(self, shard: _Optional[_Union[ShardRef, _Mapping]] = ...) -> None: ...

class ListMarksResponse(_message.Message):
    __slots__ = ("marks", "high_seq", "message_seq")
    class Entry(_message.Message):
        __slots__ = ("consumer", "mark")
        CONSUMER_FIELD_NUMBER: _ClassVar[int]
        MARK_FIELD_NUMBER: _ClassVar[int]
        consumer: str
        mark: _types_pb2.Mark
        def __init__(self, consumer: _Optional[str] = ..., mark: _Optional[_Union[_types_pb2.Mark, _Mapping]] = ...) -> None: ...
    MARKS_FIELD_NUMBER: _ClassVar[int]
    HIGH_SEQ_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_SEQ_FIELD_NUMBER: _ClassVar[int]
    marks: _containers.RepeatedCompositeFieldContainer[ListMarksResponse.Entry]
    high_seq: int
    message_seq: int
    def __init__(self, marks: _Optional[_Iterable[_Union[ListMarksResponse.Entry, _Mapping]]] = ..., high_seq: _Optional[int] = ..., message_seq: _Optional[int] = ...) -> None: ...

class ResetMarkRequest(_message.Message):
    __slots__ = ("shard", "consumer", "seq", "time_ms", "latest", "drop", "dry_run")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    shard: ShardRef
    consumer: str
    seq: int
    time_ms: int
    latest: bool
    drop: bool
    dry_run: bool
    def __init__(self, shard: _Optional[_Union[ShardRef, _Mapping]] = ..., consumer: _Optional[str] = ..., seq: _Optional[int] = ..., time_ms: _Optional[int] = ..., latest: _Optional[bool] = ..., drop: _Optional[bool] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class ResetMarkResponse(_message.Message):
    __slots__ = ("before", "after")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    before: _types_pb2.Mark
    after: _types_pb2.Mark
    def __init__(self, before: _Optional[_Union[_types_pb2.Mark, _Mapping]] = ..., after: _Optional[_Union[_types_pb2.Mark, _Mapping]] = ...) -> None: ...

class CreatePinRequest(_message.Message):
    __slots__ = ("shard", "pin_id", "lease_ms")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    PIN_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    shard: ShardRef
    pin_id: str
    lease_ms: int
    def __init__(self, shard: _Optional[_Union[ShardRef, _Mapping]] = ..., pin_id: _Optional[str] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class CreatePinResponse(_message.Message):
    __slots__ = ("pin", "history_id")
    PIN_FIELD_NUMBER: _ClassVar[int]
    HISTORY_ID_FIELD_NUMBER: _ClassVar[int]
    pin: _types_pb2.Pin
    history_id: bytes
    def __init__(self, pin: _Optional[_Union[_types_pb2.Pin, _Mapping]] = ..., history_id: _Optional[bytes] = ...) -> None: ...

class ListPinsRequest(_message.Message):
    __slots__ = ("shard",)
    SHARD_FIELD_NUMBER: _ClassVar[int]
    shard: ShardRef
    def __init__(self, shard: _Optional[_Union[ShardRef, _Mapping]] = ...) -> None: ...

class ListPinsResponse(_message.Message):
    __slots__ = ("pins",)
    PINS_FIELD_NUMBER: _ClassVar[int]
    pins: _containers.RepeatedCompositeFieldContainer[_types_pb2.Pin]
    def __init__(self, pins: _Optional[_Iterable[_Union[_types_pb2.Pin, _Mapping]]] = ...) -> None: ...

class RenewPinRequest(_message.Message):
    __slots__ = ("shard", "pin_id", "lease_ms")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    PIN_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    shard: ShardRef
    pin_id: str
    lease_ms: int
    def __init__(self, shard: _Optional[_Union[ShardRef, _Mapping]] = ..., pin_id: _Optional[str] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class RenewPinResponse(_message.Message):
    __slots__ = ("pin",)
    PIN_FIELD_NUMBER: _ClassVar[int]
    pin: _types_pb2.Pin
    def __init__(self, pin: _Optional[_Union[_types_pb2.Pin, _Mapping]] = ...) -> None: ...

class ReleasePinRequest(_message.Message):
    __slots__ = ("shard", "pin_id")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    PIN_ID_FIELD_NUMBER: _ClassVar[int]
    shard: ShardRef
    pin_id: str
    def __init__(self, shard: _Optional[_Union[ShardRef, _Mapping]] = ..., pin_id: _Optional[str] = ...) -> None: ...

class ReleasePinResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReadPinRequest(_message.Message):
    __slots__ = ("shard", "pin_id", "after_seq", "end_seq", "batch_bytes", "tombstones", "min_seq")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    PIN_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    END_SEQ_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    shard: ShardRef
    pin_id: str
    after_seq: int
    end_seq: int
    batch_bytes: int
    tombstones: bool
    min_seq: int
    def __init__(self, shard: _Optional[_Union[ShardRef, _Mapping]] = ..., pin_id: _Optional[str] = ..., after_seq: _Optional[int] = ..., end_seq: _Optional[int] = ..., batch_bytes: _Optional[int] = ..., tombstones: _Optional[bool] = ..., min_seq: _Optional[int] = ...) -> None: ...

class ReadPinResponse(_message.Message):
    __slots__ = ("columns", "end")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    columns: bytes
    end: ReadPinEnd
    def __init__(self, columns: _Optional[bytes] = ..., end: _Optional[_Union[ReadPinEnd, _Mapping]] = ...) -> None: ...

class ReadPinEnd(_message.Message):
    __slots__ = ("count", "checksum")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    count: int
    checksum: int
    def __init__(self, count: _Optional[int] = ..., checksum: _Optional[int] = ...) -> None: ...
