from ringfence._proto import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpenRequest(_message.Message):
    __slots__ = ("id", "secret", "seen_cluster_time_ms", "ttl_ms", "identity", "pod")
    ID_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    SEEN_CLUSTER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    secret: bytes
    seen_cluster_time_ms: int
    ttl_ms: int
    identity: str
    pod: _types_pb2.Pod
    def __init__(self, id: _Optional[bytes] = ..., secret: _Optional[bytes] = ..., seen_cluster_time_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., identity: _Optional[str] = ..., pod: _Optional[_Union[_types_pb2.Pod, _Mapping]] = ...) -> None: ...

class OpenResponse(_message.Message):
    __slots__ = ("session", "ttl_ms", "cluster_time_ms", "cluster_id")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    session: int
    ttl_ms: int
    cluster_time_ms: int
    cluster_id: bytes
    def __init__(self, session: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., cluster_time_ms: _Optional[int] = ..., cluster_id: _Optional[bytes] = ...) -> None: ...

class KeepAliveRequest(_message.Message):
    __slots__ = ("id", "sessions", "acknowledged")
    ID_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    id: int
    sessions: _containers.RepeatedCompositeFieldContainer[_types_pb2.SessionHandle]
    acknowledged: _containers.RepeatedCompositeFieldContainer[Acknowledged]
    def __init__(self, id: _Optional[int] = ..., sessions: _Optional[_Iterable[_Union[_types_pb2.SessionHandle, _Mapping]]] = ..., acknowledged: _Optional[_Iterable[_Union[Acknowledged, _Mapping]]] = ...) -> None: ...

class Acknowledged(_message.Message):
    __slots__ = ("session", "token")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    session: int
    token: int
    def __init__(self, session: _Optional[int] = ..., token: _Optional[int] = ...) -> None: ...

class KeepAliveResponse(_message.Message):
    __slots__ = ("id", "ended", "lost", "cluster_time_ms", "refusal", "untold")
    ID_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    UNTOLD_FIELD_NUMBER: _ClassVar[int]
    id: int
    ended: _containers.RepeatedCompositeFieldContainer[SessionState]
    lost: _containers.RepeatedCompositeFieldContainer[SessionLosses]
    cluster_time_ms: int
    refusal: _types_pb2.Refusal
    untold: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[int] = ..., ended: _Optional[_Iterable[_Union[SessionState, _Mapping]]] = ..., lost: _Optional[_Iterable[_Union[SessionLosses, _Mapping]]] = ..., cluster_time_ms: _Optional[int] = ..., refusal: _Optional[_Union[_types_pb2.Refusal, _Mapping]] = ..., untold: _Optional[_Iterable[int]] = ...) -> None: ...

class SessionState(_message.Message):
    __slots__ = ("session", "reason", "cause")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    session: int
    reason: _types_pb2.Reason
    cause: _types_pb2.SessionEnd
    def __init__(self, session: _Optional[int] = ..., reason: _Optional[_Union[_types_pb2.Reason, str]] = ..., cause: _Optional[_Union[_types_pb2.SessionEnd, _Mapping]] = ...) -> None: ...

class SessionLosses(_message.Message):
    __slots__ = ("session", "grants")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    session: int
    grants: _containers.RepeatedCompositeFieldContainer[_types_pb2.LostGrant]
    def __init__(self, session: _Optional[int] = ..., grants: _Optional[_Iterable[_Union[_types_pb2.LostGrant, _Mapping]]] = ...) -> None: ...

class CloseRequest(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: _types_pb2.SessionHandle
    def __init__(self, session: _Optional[_Union[_types_pb2.SessionHandle, _Mapping]] = ...) -> None: ...

class CloseResponse(_message.Message):
    __slots__ = ("cause", "cluster_time_ms")
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    cause: _types_pb2.SessionEnd
    cluster_time_ms: int
    def __init__(self, cause: _Optional[_Union[_types_pb2.SessionEnd, _Mapping]] = ..., cluster_time_ms: _Optional[int] = ...) -> None: ...

class EvictRequest(_message.Message):
    __slots__ = ("session", "reason", "operator")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    session: int
    reason: str
    operator: str
    def __init__(self, session: _Optional[int] = ..., reason: _Optional[str] = ..., operator: _Optional[str] = ...) -> None: ...

class EvictResponse(_message.Message):
    __slots__ = ("cluster_time_ms",)
    CLUSTER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    cluster_time_ms: int
    def __init__(self, cluster_time_ms: _Optional[int] = ...) -> None: ...

class GetSessionRequest(_message.Message):
    __slots__ = ("session", "read")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    session: int
    read: _types_pb2.ReadOptions
    def __init__(self, session: _Optional[int] = ..., read: _Optional[_Union[_types_pb2.ReadOptions, _Mapping]] = ...) -> None: ...

class GetSessionResponse(_message.Message):
    __slots__ = ("session", "at")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    session: Session
    at: _types_pb2.ReadPoint
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ..., at: _Optional[_Union[_types_pb2.ReadPoint, _Mapping]] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ("session", "identity", "ttl_ms", "remaining_ms", "leases", "waits", "pod")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    session: int
    identity: str
    ttl_ms: int
    remaining_ms: int
    leases: _containers.RepeatedCompositeFieldContainer[HeldName]
    waits: int
    pod: _types_pb2.Pod
    def __init__(self, session: _Optional[int] = ..., identity: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., remaining_ms: _Optional[int] = ..., leases: _Optional[_Iterable[_Union[HeldName, _Mapping]]] = ..., waits: _Optional[int] = ..., pod: _Optional[_Union[_types_pb2.Pod, _Mapping]] = ...) -> None: ...

class HeldName(_message.Message):
    __slots__ = ("name", "token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    token: int
    def __init__(self, name: _Optional[str] = ..., token: _Optional[int] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ("page_size", "after", "read")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    after: int
    read: _types_pb2.ReadOptions
    def __init__(self, page_size: _Optional[int] = ..., after: _Optional[int] = ..., read: _Optional[_Union[_types_pb2.ReadOptions, _Mapping]] = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("sessions", "more", "at")
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[Session]
    more: bool
    at: _types_pb2.ReadPoint
    def __init__(self, sessions: _Optional[_Iterable[_Union[Session, _Mapping]]] = ..., more: bool = ..., at: _Optional[_Union[_types_pb2.ReadPoint, _Mapping]] = ...) -> None: ...
