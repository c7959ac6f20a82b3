from ringfence._proto import sessions_pb2 as _sessions_pb2
from ringfence._proto import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AcquireRequest(_message.Message):
    __slots__ = ("session", "open", "number", "lowest", "name", "wait_ms", "data", "lock_delay_ms")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LOWEST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LOCK_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    session: _types_pb2.SessionHandle
    open: _sessions_pb2.OpenRequest
    number: int
    lowest: int
    name: str
    wait_ms: int
    data: bytes
    lock_delay_ms: int
    def __init__(self, session: _Optional[_Union[_types_pb2.SessionHandle, _Mapping]] = ..., open: _Optional[_Union[_sessions_pb2.OpenRequest, _Mapping]] = ..., number: _Optional[int] = ..., lowest: _Optional[int] = ..., name: _Optional[str] = ..., wait_ms: _Optional[int] = ..., data: _Optional[bytes] = ..., lock_delay_ms: _Optional[int] = ...) -> None: ...

class AcquireResponse(_message.Message):
    __slots__ = ("grant", "opened", "cluster_time_ms")
    GRANT_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    grant: _types_pb2.Grant
    opened: _sessions_pb2.OpenResponse
    cluster_time_ms: int
    def __init__(self, grant: _Optional[_Union[_types_pb2.Grant, _Mapping]] = ..., opened: _Optional[_Union[_sessions_pb2.OpenResponse, _Mapping]] = ..., cluster_time_ms: _Optional[int] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("session", "number", "lowest", "target")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LOWEST_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    session: _types_pb2.SessionHandle
    number: int
    lowest: int
    target: int
    def __init__(self, session: _Optional[_Union[_types_pb2.SessionHandle, _Mapping]] = ..., number: _Optional[int] = ..., lowest: _Optional[int] = ..., target: _Optional[int] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("result", "name", "token", "cluster_time_ms")
    class Result(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RESULT_UNSPECIFIED: _ClassVar[CancelResponse.Result]
        REMOVED: _ClassVar[CancelResponse.Result]
        GRANTED: _ClassVar[CancelResponse.Result]
        SETTLED: _ClassVar[CancelResponse.Result]
        VOIDED: _ClassVar[CancelResponse.Result]
    RESULT_UNSPECIFIED: CancelResponse.Result
    REMOVED: CancelResponse.Result
    GRANTED: CancelResponse.Result
    SETTLED: CancelResponse.Result
    VOIDED: CancelResponse.Result
    RESULT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    result: CancelResponse.Result
    name: str
    token: int
    cluster_time_ms: int
    def __init__(self, result: _Optional[_Union[CancelResponse.Result, str]] = ..., name: _Optional[str] = ..., token: _Optional[int] = ..., cluster_time_ms: _Optional[int] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("session", "number", "lowest", "name", "token", "close_session")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LOWEST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    CLOSE_SESSION_FIELD_NUMBER: _ClassVar[int]
    session: _types_pb2.SessionHandle
    number: int
    lowest: int
    name: str
    token: int
    close_session: bool
    def __init__(self, session: _Optional[_Union[_types_pb2.SessionHandle, _Mapping]] = ..., number: _Optional[int] = ..., lowest: _Optional[int] = ..., name: _Optional[str] = ..., token: _Optional[int] = ..., close_session: bool = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ("cluster_time_ms",)
    CLUSTER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    cluster_time_ms: int
    def __init__(self, cluster_time_ms: _Optional[int] = ...) -> None: ...

class TransferRequest(_message.Message):
    __slots__ = ("session", "number", "lowest", "name", "token", "to_session")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LOWEST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TO_SESSION_FIELD_NUMBER: _ClassVar[int]
    session: _types_pb2.SessionHandle
    number: int
    lowest: int
    name: str
    token: int
    to_session: int
    def __init__(self, session: _Optional[_Union[_types_pb2.SessionHandle, _Mapping]] = ..., number: _Optional[int] = ..., lowest: _Optional[int] = ..., name: _Optional[str] = ..., token: _Optional[int] = ..., to_session: _Optional[int] = ...) -> None: ...

class TransferResponse(_message.Message):
    __slots__ = ("to_session", "token", "cluster_time_ms")
    TO_SESSION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    to_session: int
    token: int
    cluster_time_ms: int
    def __init__(self, to_session: _Optional[int] = ..., token: _Optional[int] = ..., cluster_time_ms: _Optional[int] = ...) -> None: ...

class RevokeRequest(_message.Message):
    __slots__ = ("name", "token", "now", "reason", "operator")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    token: int
    now: bool
    reason: str
    operator: str
    def __init__(self, name: _Optional[str] = ..., token: _Optional[int] = ..., now: bool = ..., reason: _Optional[str] = ..., operator: _Optional[str] = ...) -> None: ...

class RevokeResponse(_message.Message):
    __slots__ = ("cluster_time_ms",)
    CLUSTER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    cluster_time_ms: int
    def __init__(self, cluster_time_ms: _Optional[int] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("name", "read")
    NAME_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    name: str
    read: _types_pb2.ReadOptions
    def __init__(self, name: _Optional[str] = ..., read: _Optional[_Union[_types_pb2.ReadOptions, _Mapping]] = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ("lease", "at")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    at: _types_pb2.ReadPoint
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., at: _Optional[_Union[_types_pb2.ReadPoint, _Mapping]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("name", "holder", "ttl_ms", "remaining_ms", "waiters", "floor", "blocked_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    WAITERS_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    holder: _types_pb2.Grant
    ttl_ms: int
    remaining_ms: int
    waiters: int
    floor: int
    blocked_ms: int
    def __init__(self, name: _Optional[str] = ..., holder: _Optional[_Union[_types_pb2.Grant, _Mapping]] = ..., ttl_ms: _Optional[int] = ..., remaining_ms: _Optional[int] = ..., waiters: _Optional[int] = ..., floor: _Optional[int] = ..., blocked_ms: _Optional[int] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("prefix", "page_size", "page_token", "read")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    page_size: int
    page_token: str
    read: _types_pb2.ReadOptions
    def __init__(self, prefix: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., read: _Optional[_Union[_types_pb2.ReadOptions, _Mapping]] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("leases", "next_page_token", "at")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    next_page_token: str
    at: _types_pb2.ReadPoint
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., at: _Optional[_Union[_types_pb2.ReadPoint, _Mapping]] = ...) -> None: ...

class CheckRequest(_message.Message):
    __slots__ = ("name", "token", "read")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    name: str
    token: int
    read: _types_pb2.ReadOptions
    def __init__(self, name: _Optional[str] = ..., token: _Optional[int] = ..., read: _Optional[_Union[_types_pb2.ReadOptions, _Mapping]] = ...) -> None: ...

class CheckResponse(_message.Message):
    __slots__ = ("verdict", "newest", "at")
    class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        VERDICT_UNSPECIFIED: _ClassVar[CheckResponse.Verdict]
        CURRENT: _ClassVar[CheckResponse.Verdict]
        SUPERSEDED: _ClassVar[CheckResponse.Verdict]
        ENDED: _ClassVar[CheckResponse.Verdict]
        UNKNOWN: _ClassVar[CheckResponse.Verdict]
    VERDICT_UNSPECIFIED: CheckResponse.Verdict
    CURRENT: CheckResponse.Verdict
    SUPERSEDED: CheckResponse.Verdict
    ENDED: CheckResponse.Verdict
    UNKNOWN: CheckResponse.Verdict
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    verdict: CheckResponse.Verdict
    newest: int
    at: _types_pb2.ReadPoint
    def __init__(self, verdict: _Optional[_Union[CheckResponse.Verdict, str]] = ..., newest: _Optional[int] = ..., at: _Optional[_Union[_types_pb2.ReadPoint, _Mapping]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("prefix",)
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    def __init__(self, prefix: _Optional[str] = ..., **kwargs) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("events", "position", "compacted")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[WatchEvent]
    position: _types_pb2.Position
    compacted: bool
    def __init__(self, events: _Optional[_Iterable[_Union[WatchEvent, _Mapping]]] = ..., position: _Optional[_Union[_types_pb2.Position, _Mapping]] = ..., compacted: bool = ...) -> None: ...

class WatchEvent(_message.Message):
    __slots__ = ("granted", "ended", "present", "position")
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    granted: _types_pb2.Grant
    ended: GrantEnded
    present: Lease
    position: _types_pb2.Position
    def __init__(self, granted: _Optional[_Union[_types_pb2.Grant, _Mapping]] = ..., ended: _Optional[_Union[GrantEnded, _Mapping]] = ..., present: _Optional[_Union[Lease, _Mapping]] = ..., position: _Optional[_Union[_types_pb2.Position, _Mapping]] = ...) -> None: ...

class GrantEnded(_message.Message):
    __slots__ = ("name", "token", "session", "identity", "cause", "at_unix_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    token: int
    session: int
    identity: str
    cause: _types_pb2.EndCause
    at_unix_ms: int
    def __init__(self, name: _Optional[str] = ..., token: _Optional[int] = ..., session: _Optional[int] = ..., identity: _Optional[str] = ..., cause: _Optional[_Union[_types_pb2.EndCause, _Mapping]] = ..., at_unix_ms: _Optional[int] = ...) -> None: ...

class WatchFloorsRequest(_message.Message):
    __slots__ = ("prefix",)
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    def __init__(self, prefix: _Optional[str] = ...) -> None: ...

class WatchFloorsResponse(_message.Message):
    __slots__ = ("forgotten", "floors", "position", "complete")
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    FLOORS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    forgotten: int
    floors: _containers.RepeatedCompositeFieldContainer[Floor]
    position: _types_pb2.Position
    complete: bool
    def __init__(self, forgotten: _Optional[int] = ..., floors: _Optional[_Iterable[_Union[Floor, _Mapping]]] = ..., position: _Optional[_Union[_types_pb2.Position, _Mapping]] = ..., complete: bool = ...) -> None: ...

class Floor(_message.Message):
    __slots__ = ("name", "token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    token: int
    def __init__(self, name: _Optional[str] = ..., token: _Optional[int] = ...) -> None: ...

class HistoryRequest(_message.Message):
    __slots__ = ("name", "token", "limit")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    name: str
    token: int
    limit: int
    def __init__(self, name: _Optional[str] = ..., token: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class HistoryResponse(_message.Message):
    __slots__ = ("records", "covered")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    COVERED_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[HistoryRecord]
    covered: _containers.RepeatedCompositeFieldContainer[IndexRange]
    def __init__(self, records: _Optional[_Iterable[_Union[HistoryRecord, _Mapping]]] = ..., covered: _Optional[_Iterable[_Union[IndexRange, _Mapping]]] = ...) -> None: ...

class IndexRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class HistoryRecord(_message.Message):
    __slots__ = ("grant", "cause", "ended_index", "ended_unix_ms")
    GRANT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    ENDED_INDEX_FIELD_NUMBER: _ClassVar[int]
    ENDED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    grant: _types_pb2.Grant
    cause: _types_pb2.EndCause
    ended_index: int
    ended_unix_ms: int
    def __init__(self, grant: _Optional[_Union[_types_pb2.Grant, _Mapping]] = ..., cause: _Optional[_Union[_types_pb2.EndCause, _Mapping]] = ..., ended_index: _Optional[int] = ..., ended_unix_ms: _Optional[int] = ...) -> None: ...
