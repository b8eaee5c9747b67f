from kayos.wire.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RefusalCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFUSAL_CODE_UNSPECIFIED: _ClassVar[RefusalCode]
    REFUSAL_CODE_STALE_EPOCH: _ClassVar[RefusalCode]
    REFUSAL_CODE_NOT_IN_CHAIN: _ClassVar[RefusalCode]
REFUSAL_CODE_UNSPECIFIED: RefusalCode
REFUSAL_CODE_STALE_EPOCH: RefusalCode
REFUSAL_CODE_NOT_IN_CHAIN: RefusalCode

class FollowRequest(_message.Message):
    __slots__ = ("session", "epoch", "hello", "ack", "ask_piece", "ask_records", "part", "checksum")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    ASK_PIECE_FIELD_NUMBER: _ClassVar[int]
    ASK_RECORDS_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    session: int
    epoch: int
    hello: Hello
    ack: Ack
    ask_piece: AskPiece
    ask_records: AskRecords
    part: Part
    checksum: int
    def __init__(self, session: _Optional[int] = ..., epoch: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., ask_piece: _Optional[_Union[AskPiece, _Mapping]] = ..., ask_records: _Optional[_Union[AskRecords, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ..., checksum: _Optional[int] = ...) -> None: ...

class FollowResponse(_message.Message):
    __slots__ = ("session", "epoch", "continue_from", "catch_up", "roll_back", "reset", "wedge", "refuse", "sent", "progress", "piece", "records", "bye", "part", "checksum")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_FROM_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    ROLL_BACK_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    WEDGE_FIELD_NUMBER: _ClassVar[int]
    REFUSE_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BYE_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    session: int
    epoch: int
    continue_from: Continue
    catch_up: CatchUp
    roll_back: RollBack
    reset: Reset
    wedge: Wedge
    refuse: Refuse
    sent: Sent
    progress: Progress
    piece: Piece
    records: Records
    bye: Bye
    part: Part
    checksum: int
    def __init__(self, session: _Optional[int] = ..., epoch: _Optional[int] = ..., continue_from: _Optional[_Union[Continue, _Mapping]] = ..., catch_up: _Optional[_Union[CatchUp, _Mapping]] = ..., roll_back: _Optional[_Union[RollBack, _Mapping]] = ..., reset: _Optional[_Union[Reset, _Mapping]] = ..., wedge: _Optional[_Union[Wedge, _Mapping]] = ..., refuse: _Optional[_Union[Refuse, _Mapping]] = ..., sent: _Optional[_Union[Sent, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ..., records: _Optional[_Union[Records, _Mapping]] = ..., bye: _Optional[_Union[Bye, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ..., checksum: _Optional[int] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("data", "last")
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    last: bool
    def __init__(self, data: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...

class ShardKey(_message.Message):
    __slots__ = ("topic_id", "shard")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    shard: int
    def __init__(self, topic_id: _Optional[str] = ..., shard: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("shard", "node", "incarnation", "takeover", "high_seq", "commit_point", "purge_seq", "removal_seq", "catching_up")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TAKEOVER_FIELD_NUMBER: _ClassVar[int]
    HIGH_SEQ_FIELD_NUMBER: _ClassVar[int]
    COMMIT_POINT_FIELD_NUMBER: _ClassVar[int]
    PURGE_SEQ_FIELD_NUMBER: _ClassVar[int]
    REMOVAL_SEQ_FIELD_NUMBER: _ClassVar[int]
    CATCHING_UP_FIELD_NUMBER: _ClassVar[int]
    shard: ShardKey
    node: str
    incarnation: bytes
    takeover: _containers.RepeatedCompositeFieldContainer[_types_pb2.TakeoverRow]
    high_seq: int
    commit_point: int
    purge_seq: int
    removal_seq: int
    catching_up: CatchUpState
    def __init__(self, shard: _Optional[_Union[ShardKey, _Mapping]] = ..., node: _Optional[str] = ..., incarnation: _Optional[bytes] = ..., takeover: _Optional[_Iterable[_Union[_types_pb2.TakeoverRow, _Mapping]]] = ..., high_seq: _Optional[int] = ..., commit_point: _Optional[int] = ..., purge_seq: _Optional[int] = ..., removal_seq: _Optional[int] = ..., catching_up: _Optional[_Union[CatchUpState, _Mapping]] = ...) -> None: ...

class CatchUpState(_message.Message):
    __slots__ = ("start_seq", "through_seq", "end_seq", "first_end_seq", "source_history")
    START_SEQ_FIELD_NUMBER: _ClassVar[int]
    THROUGH_SEQ_FIELD_NUMBER: _ClassVar[int]
    END_SEQ_FIELD_NUMBER: _ClassVar[int]
    FIRST_END_SEQ_FIELD_NUMBER: _ClassVar[int]
    SOURCE_HISTORY_FIELD_NUMBER: _ClassVar[int]
    start_seq: int
    through_seq: int
    end_seq: int
    first_end_seq: int
    source_history: bytes
    def __init__(self, start_seq: _Optional[int] = ..., through_seq: _Optional[int] = ..., end_seq: _Optional[int] = ..., first_end_seq: _Optional[int] = ..., source_history: _Optional[bytes] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("synced_seq", "durable")
    class DurableEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SYNCED_SEQ_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    synced_seq: int
    durable: _containers.ScalarMap[str, int]
    def __init__(self, synced_seq: _Optional[int] = ..., durable: _Optional[_Mapping[str, int]] = ...) -> None: ...

class AskPiece(_message.Message):
    __slots__ = ("after_seq", "start_seq", "min_end_seq", "all_retained")
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    START_SEQ_FIELD_NUMBER: _ClassVar[int]
    MIN_END_SEQ_FIELD_NUMBER: _ClassVar[int]
    ALL_RETAINED_FIELD_NUMBER: _ClassVar[int]
    after_seq: int
    start_seq: int
    min_end_seq: int
    all_retained: bool
    def __init__(self, after_seq: _Optional[int] = ..., start_seq: _Optional[int] = ..., min_end_seq: _Optional[int] = ..., all_retained: _Optional[bool] = ...) -> None: ...

class AskRecords(_message.Message):
    __slots__ = ("keys", "through_seq")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    THROUGH_SEQ_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    through_seq: int
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ..., through_seq: _Optional[int] = ...) -> None: ...

class Continue(_message.Message):
    __slots__ = ("takeover",)
    TAKEOVER_FIELD_NUMBER: _ClassVar[int]
    takeover: _containers.RepeatedCompositeFieldContainer[_types_pb2.TakeoverRow]
    def __init__(self, takeover: _Optional[_Iterable[_Union[_types_pb2.TakeoverRow, _Mapping]]] = ...) -> None: ...

class CatchUp(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RollBack(_message.Message):
    __slots__ = ("seq",)
    SEQ_FIELD_NUMBER: _ClassVar[int]
    seq: int
    def __init__(self, seq: _Optional[int] = ...) -> None: ...

class Reset(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Wedge(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Refuse(_message.Message):
    __slots__ = ("code", "reason")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    code: RefusalCode
    reason: str
    def __init__(self, code: _Optional[_Union[RefusalCode, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class Sent(_message.Message):
    __slots__ = ("batch", "durable")
    class DurableEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    BATCH_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    batch: Batch
    durable: _containers.ScalarMap[str, int]
    def __init__(self, batch: _Optional[_Union[Batch, _Mapping]] = ..., durable: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("epoch", "previous_seq", "last_seq", "timestamp_ms", "records", "producers")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    previous_seq: int
    last_seq: int
    timestamp_ms: int
    records: _containers.RepeatedScalarFieldContainer[bytes]
    producers: ProducerColumns
    def __init__(self, epoch: _Optional[int] = ..., previous_seq: _Optional[int] = ..., last_seq: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., records: _Optional[_Iterable[bytes]] = ..., producers: _Optional[_Union[ProducerColumns, _Mapping]] = ...) -> None: ...

class ProducerColumns(_message.Message):
    __slots__ = ("producer_ids", "producer_epochs", "counts", "numbers", "first_seqs", "last_seqs", "timestamps_ms")
    PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_MS_FIELD_NUMBER: _ClassVar[int]
    producer_ids: _containers.RepeatedScalarFieldContainer[bytes]
    producer_epochs: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    first_seqs: _containers.RepeatedScalarFieldContainer[int]
    last_seqs: _containers.RepeatedScalarFieldContainer[int]
    timestamps_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, producer_ids: _Optional[_Iterable[bytes]] = ..., producer_epochs: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ..., numbers: _Optional[_Iterable[int]] = ..., first_seqs: _Optional[_Iterable[int]] = ..., last_seqs: _Optional[_Iterable[int]] = ..., timestamps_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("sent_seq", "durable")
    class DurableEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SENT_SEQ_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    sent_seq: int
    durable: _containers.ScalarMap[str, int]
    def __init__(self, sent_seq: _Optional[int] = ..., durable: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("history_id", "after_seq", "through_seq", "end_seq", "records", "complete", "tables")
    HISTORY_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    THROUGH_SEQ_FIELD_NUMBER: _ClassVar[int]
    END_SEQ_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    history_id: bytes
    after_seq: int
    through_seq: int
    end_seq: int
    records: _containers.RepeatedScalarFieldContainer[bytes]
    complete: bool
    tables: CatchUpTables
    def __init__(self, history_id: _Optional[bytes] = ..., after_seq: _Optional[int] = ..., through_seq: _Optional[int] = ..., end_seq: _Optional[int] = ..., records: _Optional[_Iterable[bytes]] = ..., complete: _Optional[bool] = ..., tables: _Optional[_Union[CatchUpTables, _Mapping]] = ...) -> None: ...

class CatchUpTables(_message.Message):
    __slots__ = ("retained_from_seq", "end_seq", "message_seq", "last_timestamp_ms", "epoch", "floors", "takeover", "consumers", "marks", "producers", "pins", "retained", "replaced_by")
    RETAINED_FROM_SEQ_FIELD_NUMBER: _ClassVar[int]
    END_SEQ_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FLOORS_FIELD_NUMBER: _ClassVar[int]
    TAKEOVER_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    REPLACED_BY_FIELD_NUMBER: _ClassVar[int]
    retained_from_seq: int
    end_seq: int
    message_seq: int
    last_timestamp_ms: int
    epoch: int
    floors: Floors
    takeover: _containers.RepeatedCompositeFieldContainer[_types_pb2.TakeoverRow]
    consumers: _containers.RepeatedScalarFieldContainer[str]
    marks: _containers.RepeatedCompositeFieldContainer[_types_pb2.Mark]
    producers: ProducerColumns
    pins: _containers.RepeatedCompositeFieldContainer[PinRow]
    retained: _containers.RepeatedScalarFieldContainer[bytes]
    replaced_by: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, retained_from_seq: _Optional[int] = ..., end_seq: _Optional[int] = ..., message_seq: _Optional[int] = ..., last_timestamp_ms: _Optional[int] = ..., epoch: _Optional[int] = ..., floors: _Optional[_Union[Floors, _Mapping]] = ..., takeover: _Optional[_Iterable[_Union[_types_pb2.TakeoverRow, _Mapping]]] = ..., consumers: _Optional[_Iterable[str]] = ..., marks: _Optional[_Iterable[_Union[_types_pb2.Mark, _Mapping]]] = ..., producers: _Optional[_Union[ProducerColumns, _Mapping]] = ..., pins: _Optional[_Iterable[_Union[PinRow, _Mapping]]] = ..., retained: _Optional[_Iterable[bytes]] = ..., replaced_by: _Optional[_Iterable[int]] = ...) -> None: ...

class Floors(_message.Message):
    __slots__ = ("purge_seq", "trim_seq", "aged_seq", "expired_ms", "expired_seq", "removal_seq")
    PURGE_SEQ_FIELD_NUMBER: _ClassVar[int]
    TRIM_SEQ_FIELD_NUMBER: _ClassVar[int]
    AGED_SEQ_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_SEQ_FIELD_NUMBER: _ClassVar[int]
    REMOVAL_SEQ_FIELD_NUMBER: _ClassVar[int]
    purge_seq: int
    trim_seq: int
    aged_seq: int
    expired_ms: int
    expired_seq: int
    removal_seq: int
    def __init__(self, purge_seq: _Optional[int] = ..., trim_seq: _Optional[int] = ..., aged_seq: _Optional[int] = ..., expired_ms: _Optional[int] = ..., expired_seq: _Optional[int] = ..., removal_seq: _Optional[int] = ...) -> None: ...

class PinRow(_message.Message):
    __slots__ = ("pin", "ended_seq")
    PIN_FIELD_NUMBER: _ClassVar[int]
    ENDED_SEQ_FIELD_NUMBER: _ClassVar[int]
    pin: _types_pb2.Pin
    ended_seq: int
    def __init__(self, pin: _Optional[_Union[_types_pb2.Pin, _Mapping]] = ..., ended_seq: _Optional[int] = ...) -> None: ...

class Records(_message.Message):
    __slots__ = ("history_id", "end_seq", "answered", "records")
    HISTORY_ID_FIELD_NUMBER: _ClassVar[int]
    END_SEQ_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    history_id: bytes
    end_seq: int
    answered: int
    records: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, history_id: _Optional[bytes] = ..., end_seq: _Optional[int] = ..., answered: _Optional[int] = ..., records: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Bye(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...
