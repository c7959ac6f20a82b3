from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNSPECIFIED: _ClassVar[Reason]
    REASON_INVALID_ARGUMENT: _ClassVar[Reason]
    REASON_UNAVAILABLE: _ClassVar[Reason]
    REASON_OUTCOME_UNKNOWN: _ClassVar[Reason]
    REASON_HELD: _ClassVar[Reason]
    REASON_QUEUED: _ClassVar[Reason]
    REASON_LOCK_DELAY: _ClassVar[Reason]
    REASON_REVOKING: _ClassVar[Reason]
    REASON_QUIET_TIME: _ClassVar[Reason]
    REASON_STALE_TOKEN: _ClassVar[Reason]
    REASON_NOT_HOLDER: _ClassVar[Reason]
    REASON_NOT_WAITING: _ClassVar[Reason]
    REASON_SESSION_EXPIRED: _ClassVar[Reason]
    REASON_WRONG_SECRET: _ClassVar[Reason]
    REASON_STALE_REQUEST: _ClassVar[Reason]
    REASON_REQUEST_MISMATCH: _ClassVar[Reason]
    REASON_REQUEST_VOIDED: _ClassVar[Reason]
    REASON_LIMIT: _ClassVar[Reason]
    REASON_OPEN_TOO_OLD: _ClassVar[Reason]
    REASON_OPEN_ID_USED: _ClassVar[Reason]
    REASON_STALE_SETTINGS: _ClassVar[Reason]
    REASON_CLUSTER_CHANGED: _ClassVar[Reason]
    REASON_COMPACTED: _ClassVar[Reason]
    REASON_WAIT_TIMEOUT: _ClassVar[Reason]
    REASON_CANCELLED: _ClassVar[Reason]
    REASON_ENDED: _ClassVar[Reason]
    REASON_MEMBERSHIP: _ClassVar[Reason]
    REASON_NOT_FOUND: _ClassVar[Reason]
    REASON_FAULT: _ClassVar[Reason]
    REASON_POSITION_UNKNOWN: _ClassVar[Reason]
    REASON_UNAUTHENTICATED: _ClassVar[Reason]
    REASON_PERMISSION_DENIED: _ClassVar[Reason]
    REASON_STALE_ACCESS: _ClassVar[Reason]

class PodSeen(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POD_SEEN_UNSPECIFIED: _ClassVar[PodSeen]
    POD_SEEN_GONE: _ClassVar[PodSeen]
    POD_SEEN_SUCCEEDED: _ClassVar[PodSeen]
    POD_SEEN_FAILED: _ClassVar[PodSeen]
    POD_SEEN_NODE_OUT_OF_SERVICE: _ClassVar[PodSeen]
    POD_SEEN_RESTARTED: _ClassVar[PodSeen]
REASON_UNSPECIFIED: Reason
REASON_INVALID_ARGUMENT: Reason
REASON_UNAVAILABLE: Reason
REASON_OUTCOME_UNKNOWN: Reason
REASON_HELD: Reason
REASON_QUEUED: Reason
REASON_LOCK_DELAY: Reason
REASON_REVOKING: Reason
REASON_QUIET_TIME: Reason
REASON_STALE_TOKEN: Reason
REASON_NOT_HOLDER: Reason
REASON_NOT_WAITING: Reason
REASON_SESSION_EXPIRED: Reason
REASON_WRONG_SECRET: Reason
REASON_STALE_REQUEST: Reason
REASON_REQUEST_MISMATCH: Reason
REASON_REQUEST_VOIDED: Reason
REASON_LIMIT: Reason
REASON_OPEN_TOO_OLD: Reason
REASON_OPEN_ID_USED: Reason
REASON_STALE_SETTINGS: Reason
REASON_CLUSTER_CHANGED: Reason
REASON_COMPACTED: Reason
REASON_WAIT_TIMEOUT: Reason
REASON_CANCELLED: Reason
REASON_ENDED: Reason
REASON_MEMBERSHIP: Reason
REASON_NOT_FOUND: Reason
REASON_FAULT: Reason
REASON_POSITION_UNKNOWN: Reason
REASON_UNAUTHENTICATED: Reason
REASON_PERMISSION_DENIED: Reason
REASON_STALE_ACCESS: Reason
POD_SEEN_UNSPECIFIED: PodSeen
POD_SEEN_GONE: PodSeen
POD_SEEN_SUCCEEDED: PodSeen
POD_SEEN_FAILED: PodSeen
POD_SEEN_NODE_OUT_OF_SERVICE: PodSeen
POD_SEEN_RESTARTED: PodSeen

class SessionHandle(_message.Message):
    __slots__ = ("session", "secret")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    session: int
    secret: bytes
    def __init__(self, session: _Optional[int] = ..., secret: _Optional[bytes] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("name", "token", "session", "identity", "data", "request", "index", "since_unix_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    token: int
    session: int
    identity: str
    data: bytes
    request: int
    index: int
    since_unix_ms: int
    def __init__(self, name: _Optional[str] = ..., token: _Optional[int] = ..., session: _Optional[int] = ..., identity: _Optional[str] = ..., data: _Optional[bytes] = ..., request: _Optional[int] = ..., index: _Optional[int] = ..., since_unix_ms: _Optional[int] = ...) -> None: ...

class EndCause(_message.Message):
    __slots__ = ("kind", "operator", "reason", "to_session", "pod_uid", "pod_seen")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[EndCause.Kind]
        RELEASED: _ClassVar[EndCause.Kind]
        EXPIRED: _ClassVar[EndCause.Kind]
        CLOSED: _ClassVar[EndCause.Kind]
        REVOKED: _ClassVar[EndCause.Kind]
        EVICTED: _ClassVar[EndCause.Kind]
        TRANSFERRED: _ClassVar[EndCause.Kind]
        POD_ENDED: _ClassVar[EndCause.Kind]
    KIND_UNSPECIFIED: EndCause.Kind
    RELEASED: EndCause.Kind
    EXPIRED: EndCause.Kind
    CLOSED: EndCause.Kind
    REVOKED: EndCause.Kind
    EVICTED: EndCause.Kind
    TRANSFERRED: EndCause.Kind
    POD_ENDED: EndCause.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TO_SESSION_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    POD_SEEN_FIELD_NUMBER: _ClassVar[int]
    kind: EndCause.Kind
    operator: str
    reason: str
    to_session: int
    pod_uid: str
    pod_seen: PodSeen
    def __init__(self, kind: _Optional[_Union[EndCause.Kind, str]] = ..., operator: _Optional[str] = ..., reason: _Optional[str] = ..., to_session: _Optional[int] = ..., pod_uid: _Optional[str] = ..., pod_seen: _Optional[_Union[PodSeen, str]] = ...) -> None: ...

class SessionEnd(_message.Message):
    __slots__ = ("kind", "operator", "reason", "pod_uid", "pod_seen")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[SessionEnd.Kind]
        CLOSED: _ClassVar[SessionEnd.Kind]
        EXPIRED: _ClassVar[SessionEnd.Kind]
        EVICTED: _ClassVar[SessionEnd.Kind]
        POD_ENDED: _ClassVar[SessionEnd.Kind]
    KIND_UNSPECIFIED: SessionEnd.Kind
    CLOSED: SessionEnd.Kind
    EXPIRED: SessionEnd.Kind
    EVICTED: SessionEnd.Kind
    POD_ENDED: SessionEnd.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    POD_SEEN_FIELD_NUMBER: _ClassVar[int]
    kind: SessionEnd.Kind
    operator: str
    reason: str
    pod_uid: str
    pod_seen: PodSeen
    def __init__(self, kind: _Optional[_Union[SessionEnd.Kind, str]] = ..., operator: _Optional[str] = ..., reason: _Optional[str] = ..., pod_uid: _Optional[str] = ..., pod_seen: _Optional[_Union[PodSeen, str]] = ...) -> None: ...

class Pod(_message.Message):
    __slots__ = ("namespace", "name", "uid", "container")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    uid: str
    container: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., container: _Optional[str] = ...) -> None: ...

class LostGrant(_message.Message):
    __slots__ = ("name", "token", "cause")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    name: str
    token: int
    cause: EndCause
    def __init__(self, name: _Optional[str] = ..., token: _Optional[int] = ..., cause: _Optional[_Union[EndCause, _Mapping]] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("cluster_id", "index", "n", "term")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    cluster_id: bytes
    index: int
    n: int
    term: int
    def __init__(self, cluster_id: _Optional[bytes] = ..., index: _Optional[int] = ..., n: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "message", "metadata", "retry_after_ms")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    reason: Reason
    message: str
    metadata: _containers.ScalarMap[str, str]
    retry_after_ms: int
    def __init__(self, reason: _Optional[_Union[Reason, str]] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class ReadOptions(_message.Message):
    __slots__ = ("max_staleness_ms",)
    MAX_STALENESS_MS_FIELD_NUMBER: _ClassVar[int]
    max_staleness_ms: int
    def __init__(self, max_staleness_ms: _Optional[int] = ...) -> None: ...

class ReadPoint(_message.Message):
    __slots__ = ("index", "cluster_time_ms", "age_ms")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    index: int
    cluster_time_ms: int
    age_ms: int
    def __init__(self, index: _Optional[int] = ..., cluster_time_ms: _Optional[int] = ..., age_ms: _Optional[int] = ...) -> None: ...
