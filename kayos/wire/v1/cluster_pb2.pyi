from kayos.wire.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_UNSPECIFIED: _ClassVar[Mode]
    MODE_COMPACT: _ClassVar[Mode]
    MODE_LOG: _ClassVar[Mode]

class MemberState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMBER_STATE_UNSPECIFIED: _ClassVar[MemberState]
    MEMBER_STATE_WAITING: _ClassVar[MemberState]
    MEMBER_STATE_SYNCING: _ClassVar[MemberState]
    MEMBER_STATE_SERVING: _ClassVar[MemberState]
MODE_UNSPECIFIED: Mode
MODE_COMPACT: Mode
MODE_LOG: Mode
MEMBER_STATE_UNSPECIFIED: MemberState
MEMBER_STATE_WAITING: MemberState
MEMBER_STATE_SYNCING: MemberState
MEMBER_STATE_SERVING: MemberState

class Retention(_message.Message):
    __slots__ = ("max_age_ms", "max_bytes", "max_messages", "tombstone_ms")
    MAX_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONE_MS_FIELD_NUMBER: _ClassVar[int]
    max_age_ms: int
    max_bytes: int
    max_messages: int
    tombstone_ms: int
    def __init__(self, max_age_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ..., max_messages: _Optional[int] = ..., tombstone_ms: _Optional[int] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name", "topic_id", "shards", "replicas", "tails", "min_durable", "min_replicas", "mode", "retention", "created_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    TAILS_FIELD_NUMBER: _ClassVar[int]
    MIN_DURABLE_FIELD_NUMBER: _ClassVar[int]
    MIN_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    shards: int
    replicas: int
    tails: int
    min_durable: int
    min_replicas: int
    mode: Mode
    retention: Retention
    created_ms: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., shards: _Optional[int] = ..., replicas: _Optional[int] = ..., tails: _Optional[int] = ..., min_durable: _Optional[int] = ..., min_replicas: _Optional[int] = ..., mode: _Optional[_Union[Mode, str]] = ..., retention: _Optional[_Union[Retention, _Mapping]] = ..., created_ms: _Optional[int] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "shards", "replicas", "tails", "min_durable", "min_replicas", "mode", "retention")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    TAILS_FIELD_NUMBER: _ClassVar[int]
    MIN_DURABLE_FIELD_NUMBER: _ClassVar[int]
    MIN_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    shards: int
    replicas: int
    tails: int
    min_durable: int
    min_replicas: int
    mode: Mode
    retention: Retention
    def __init__(self, name: _Optional[str] = ..., shards: _Optional[int] = ..., replicas: _Optional[int] = ..., tails: _Optional[int] = ..., min_durable: _Optional[int] = ..., min_replicas: _Optional[int] = ..., mode: _Optional[_Union[Mode, str]] = ..., retention: _Optional[_Union[Retention, _Mapping]] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topic", "created")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    created: bool
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., created: _Optional[bool] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ...) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DescribeTopicResponse(_message.Message):
    __slots__ = ("topic", "shards")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    shards: _containers.RepeatedCompositeFieldContainer[ShardStatus]
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., shards: _Optional[_Iterable[_Union[ShardStatus, _Mapping]]] = ...) -> None: ...

class AlterTopicRequest(_message.Message):
    __slots__ = ("name", "max_age_ms", "max_bytes", "max_messages", "tombstone_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONE_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    max_age_ms: int
    max_bytes: int
    max_messages: int
    tombstone_ms: int
    def __init__(self, name: _Optional[str] = ..., max_age_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ..., max_messages: _Optional[int] = ..., tombstone_ms: _Optional[int] = ...) -> None: ...

class AlterTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetViewRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetViewResponse(_message.Message):
    __slots__ = ("topic", "shards")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    shards: _containers.RepeatedCompositeFieldContainer[ShardView]
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., shards: _Optional[_Iterable[_Union[ShardView, _Mapping]]] = ...) -> None: ...

class ShardView(_message.Message):
    __slots__ = ("shard", "epoch", "chain", "tails", "members")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    TAILS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    epoch: int
    chain: _containers.RepeatedScalarFieldContainer[str]
    tails: _containers.RepeatedScalarFieldContainer[str]
    members: _containers.RepeatedCompositeFieldContainer[ChainMember]
    def __init__(self, shard: _Optional[int] = ..., epoch: _Optional[int] = ..., chain: _Optional[_Iterable[str]] = ..., tails: _Optional[_Iterable[str]] = ..., members: _Optional[_Iterable[_Union[ChainMember, _Mapping]]] = ...) -> None: ...

class ChainMember(_message.Message):
    __slots__ = ("node", "address", "incarnation", "state")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    node: str
    address: str
    incarnation: bytes
    state: MemberState
    def __init__(self, node: _Optional[str] = ..., address: _Optional[str] = ..., incarnation: _Optional[bytes] = ..., state: _Optional[_Union[MemberState, str]] = ...) -> None: ...

class Learner(_message.Message):
    __slots__ = ("node", "is_close", "is_ready")
    NODE_FIELD_NUMBER: _ClassVar[int]
    IS_CLOSE_FIELD_NUMBER: _ClassVar[int]
    IS_READY_FIELD_NUMBER: _ClassVar[int]
    node: str
    is_close: bool
    is_ready: bool
    def __init__(self, node: _Optional[str] = ..., is_close: _Optional[bool] = ..., is_ready: _Optional[bool] = ...) -> None: ...

class ShardStatus(_message.Message):
    __slots__ = ("topic", "shard", "epoch", "role", "high_seq", "durable_seq", "visible_seq", "purge_seq", "sync", "messages", "message_bytes", "keys", "tombstones", "retained", "retained_bytes", "marks", "producers", "pins", "file_bytes", "free_bytes", "takeover", "problem", "node", "incarnation", "following", "phase", "commit_point", "learner", "durable", "accepts_writes")
    class DurableEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    HIGH_SEQ_FIELD_NUMBER: _ClassVar[int]
    DURABLE_SEQ_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_SEQ_FIELD_NUMBER: _ClassVar[int]
    PURGE_SEQ_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    RETAINED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TAKEOVER_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FOLLOWING_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_POINT_FIELD_NUMBER: _ClassVar[int]
    LEARNER_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    ACCEPTS_WRITES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    shard: int
    epoch: int
    role: str
    high_seq: int
    durable_seq: int
    visible_seq: int
    purge_seq: int
    sync: str
    messages: int
    message_bytes: int
    keys: int
    tombstones: int
    retained: int
    retained_bytes: int
    marks: int
    producers: int
    pins: int
    file_bytes: int
    free_bytes: int
    takeover: _containers.RepeatedCompositeFieldContainer[_types_pb2.TakeoverRow]
    problem: str
    node: str
    incarnation: bytes
    following: str
    phase: str
    commit_point: int
    learner: Learner
    durable: _containers.ScalarMap[str, int]
    accepts_writes: bool
    def __init__(self, topic: _Optional[str] = ..., shard: _Optional[int] = ..., epoch: _Optional[int] = ..., role: _Optional[str] = ..., high_seq: _Optional[int] = ..., durable_seq: _Optional[int] = ..., visible_seq: _Optional[int] = ..., purge_seq: _Optional[int] = ..., sync: _Optional[str] = ..., messages: _Optional[int] = ..., message_bytes: _Optional[int] = ..., keys: _Optional[int] = ..., tombstones: _Optional[int] = ..., retained: _Optional[int] = ..., retained_bytes: _Optional[int] = ..., marks: _Optional[int] = ..., producers: _Optional[int] = ..., pins: _Optional[int] = ..., file_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., takeover: _Optional[_Iterable[_Union[_types_pb2.TakeoverRow, _Mapping]]] = ..., problem: _Optional[str] = ..., node: _Optional[str] = ..., incarnation: _Optional[bytes] = ..., following: _Optional[str] = ..., phase: _Optional[str] = ..., commit_point: _Optional[int] = ..., learner: _Optional[_Union[Learner, _Mapping]] = ..., durable: _Optional[_Mapping[str, int]] = ..., accepts_writes: _Optional[bool] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("node_id", "version", "address", "started_ms", "shards", "resident_bytes")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    version: str
    address: str
    started_ms: int
    shards: _containers.RepeatedCompositeFieldContainer[ShardStatus]
    resident_bytes: int
    def __init__(self, node_id: _Optional[str] = ..., version: _Optional[str] = ..., address: _Optional[str] = ..., started_ms: _Optional[int] = ..., shards: _Optional[_Iterable[_Union[ShardStatus, _Mapping]]] = ..., resident_bytes: _Optional[int] = ...) -> None: ...

class CompactShardRequest(_message.Message):
    __slots__ = ("topic", "shard")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    topic: str
    shard: int
    def __init__(self, topic: _Optional[str] = ..., shard: _Optional[int] = ...) -> None: ...

class CompactShardResponse(_message.Message):
    __slots__ = ("bytes_before", "bytes_after")
    BYTES_BEFORE_FIELD_NUMBER: _ClassVar[int]
    BYTES_AFTER_FIELD_NUMBER: _ClassVar[int]
    bytes_before: int
    bytes_after: int
    def __init__(self, bytes_before: _Optional[int] = ..., bytes_after: _Optional[int] = ...) -> None: ...

class TrimShardRequest(_message.Message):
    __slots__ = ("topic", "shard", "through_seq")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    THROUGH_SEQ_FIELD_NUMBER: _ClassVar[int]
    topic: str
    shard: int
    through_seq: int
    def __init__(self, topic: _Optional[str] = ..., shard: _Optional[int] = ..., through_seq: _Optional[int] = ...) -> None: ...

class TrimShardResponse(_message.Message):
    __slots__ = ("through_seq",)
    THROUGH_SEQ_FIELD_NUMBER: _ClassVar[int]
    through_seq: int
    def __init__(self, through_seq: _Optional[int] = ...) -> None: ...
