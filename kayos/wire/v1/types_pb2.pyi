from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Mark(_message.Message):
    __slots__ = ("history_id", "seq", "snapshot_start_seq", "snapshot_end_seq")
    HISTORY_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_START_SEQ_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_END_SEQ_FIELD_NUMBER: _ClassVar[int]
    history_id: bytes
    seq: int
    snapshot_start_seq: int
    snapshot_end_seq: int
    def __init__(self, history_id: _Optional[bytes] = ..., seq: _Optional[int] = ..., snapshot_start_seq: _Optional[int] = ..., snapshot_end_seq: _Optional[int] = ...) -> None: ...

class TakeoverRow(_message.Message):
    __slots__ = ("history_id", "start_seq", "epoch")
    HISTORY_ID_FIELD_NUMBER: _ClassVar[int]
    START_SEQ_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    history_id: bytes
    start_seq: int
    epoch: int
    def __init__(self, history_id: _Optional[bytes] = ..., start_seq: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class IndexedHeaders(_message.Message):
    __slots__ = ("index", "headers")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    index: int
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    def __init__(self, index: _Optional[int] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ...) -> None: ...

class Pin(_message.Message):
    __slots__ = ("pin_id", "seq", "created_ms", "lease_until_ms", "ended")
    PIN_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    pin_id: str
    seq: int
    created_ms: int
    lease_until_ms: int
    ended: str
    def __init__(self, pin_id: _Optional[str] = ..., seq: _Optional[int] = ..., created_ms: _Optional[int] = ..., lease_until_ms: _Optional[int] = ..., ended: _Optional[str] = ...) -> None: ...

class MessageColumns(_message.Message):
    __slots__ = ("seqs", "timestamps_ms", "kinds", "keys", "values", "headers")
    SEQS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_MS_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    seqs: _containers.RepeatedScalarFieldContainer[int]
    timestamps_ms: _containers.RepeatedScalarFieldContainer[int]
    kinds: bytes
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    headers: _containers.RepeatedCompositeFieldContainer[IndexedHeaders]
    def __init__(self, seqs: _Optional[_Iterable[int]] = ..., timestamps_ms: _Optional[_Iterable[int]] = ..., kinds: _Optional[bytes] = ..., keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., headers: _Optional[_Iterable[_Union[IndexedHeaders, _Mapping]]] = ...) -> None: ...
