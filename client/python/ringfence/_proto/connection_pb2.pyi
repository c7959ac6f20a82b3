from ringfence._proto import leases_pb2 as _leases_pb2
from ringfence._proto import sessions_pb2 as _sessions_pb2
from ringfence._proto import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClientMessage(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[ClientFrame]
    def __init__(self, frames: _Optional[_Iterable[_Union[ClientFrame, _Mapping]]] = ...) -> None: ...

class ClientFrame(_message.Message):
    __slots__ = ("id", "open", "keep_alive", "close", "acquire", "cancel", "release", "transfer", "get", "check", "traceparent")
    ID_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    KEEP_ALIVE_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    ACQUIRE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    GET_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    id: int
    open: _sessions_pb2.OpenRequest
    keep_alive: _sessions_pb2.KeepAliveRequest
    close: _sessions_pb2.CloseRequest
    acquire: _leases_pb2.AcquireRequest
    cancel: _leases_pb2.CancelRequest
    release: _leases_pb2.ReleaseRequest
    transfer: _leases_pb2.TransferRequest
    get: _leases_pb2.GetRequest
    check: _leases_pb2.CheckRequest
    traceparent: str
    def __init__(self, id: _Optional[int] = ..., open: _Optional[_Union[_sessions_pb2.OpenRequest, _Mapping]] = ..., keep_alive: _Optional[_Union[_sessions_pb2.KeepAliveRequest, _Mapping]] = ..., close: _Optional[_Union[_sessions_pb2.CloseRequest, _Mapping]] = ..., acquire: _Optional[_Union[_leases_pb2.AcquireRequest, _Mapping]] = ..., cancel: _Optional[_Union[_leases_pb2.CancelRequest, _Mapping]] = ..., release: _Optional[_Union[_leases_pb2.ReleaseRequest, _Mapping]] = ..., transfer: _Optional[_Union[_leases_pb2.TransferRequest, _Mapping]] = ..., get: _Optional[_Union[_leases_pb2.GetRequest, _Mapping]] = ..., check: _Optional[_Union[_leases_pb2.CheckRequest, _Mapping]] = ..., traceparent: _Optional[str] = ...) -> None: ...

class ServerMessage(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[ServerFrame]
    def __init__(self, frames: _Optional[_Iterable[_Union[ServerFrame, _Mapping]]] = ...) -> None: ...

class ServerFrame(_message.Message):
    __slots__ = ("id", "greeting", "refusal", "open", "keep_alive", "close", "acquire", "cancel", "release", "transfer", "get", "check", "going_away")
    ID_FIELD_NUMBER: _ClassVar[int]
    GREETING_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    KEEP_ALIVE_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    ACQUIRE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    GET_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    GOING_AWAY_FIELD_NUMBER: _ClassVar[int]
    id: int
    greeting: Greeting
    refusal: _types_pb2.Refusal
    open: _sessions_pb2.OpenResponse
    keep_alive: _sessions_pb2.KeepAliveResponse
    close: _sessions_pb2.CloseResponse
    acquire: _leases_pb2.AcquireResponse
    cancel: _leases_pb2.CancelResponse
    release: _leases_pb2.ReleaseResponse
    transfer: _leases_pb2.TransferResponse
    get: _leases_pb2.GetResponse
    check: _leases_pb2.CheckResponse
    going_away: GoingAway
    def __init__(self, id: _Optional[int] = ..., greeting: _Optional[_Union[Greeting, _Mapping]] = ..., refusal: _Optional[_Union[_types_pb2.Refusal, _Mapping]] = ..., open: _Optional[_Union[_sessions_pb2.OpenResponse, _Mapping]] = ..., keep_alive: _Optional[_Union[_sessions_pb2.KeepAliveResponse, _Mapping]] = ..., close: _Optional[_Union[_sessions_pb2.CloseResponse, _Mapping]] = ..., acquire: _Optional[_Union[_leases_pb2.AcquireResponse, _Mapping]] = ..., cancel: _Optional[_Union[_leases_pb2.CancelResponse, _Mapping]] = ..., release: _Optional[_Union[_leases_pb2.ReleaseResponse, _Mapping]] = ..., transfer: _Optional[_Union[_leases_pb2.TransferResponse, _Mapping]] = ..., get: _Optional[_Union[_leases_pb2.GetResponse, _Mapping]] = ..., check: _Optional[_Union[_leases_pb2.CheckResponse, _Mapping]] = ..., going_away: _Optional[_Union[GoingAway, _Mapping]] = ...) -> None: ...

class Greeting(_message.Message):
    __slots__ = ("cluster_id", "node_id", "cluster_time_ms", "leader_id", "leader_client_address", "term")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_CLIENT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    cluster_id: bytes
    node_id: int
    cluster_time_ms: int
    leader_id: int
    leader_client_address: str
    term: int
    def __init__(self, cluster_id: _Optional[bytes] = ..., node_id: _Optional[int] = ..., cluster_time_ms: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_client_address: _Optional[str] = ..., term: _Optional[int] = ...) -> None: ...

class GoingAway(_message.Message):
    __slots__ = ("leader_client_address",)
    LEADER_CLIENT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    leader_client_address: str
    def __init__(self, leader_client_address: _Optional[str] = ...) -> None: ...
