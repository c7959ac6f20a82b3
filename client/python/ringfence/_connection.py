"""One connection: a channel to a member and the stream on it; and a race for the first that greets."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ringfence import _clock, _refusal
from ringfence._clock import NS_PER_MS, NS_PER_S, seconds
from ringfence._credential import TLS, Credential
from ringfence._endpoints import LOCAL
from ringfence._grpc import grpc
from ringfence._proto import connection_pb2
from ringfence._version import VERSION
from ringfence._waiting import fail, is_of_a_client, new_future, settle
from ringfence.errors import AccessDenied, ConnectError

# The largest message taken from a server.
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
# What is put into one message to a server, which takes 1 MiB and 4,096 frames.
FRAMES_MAX = 256
BATCH_BYTES_MAX = 256 * 1024
# How long one address has for itself before the next is tried beside it: one that swallows packets
# must not hold up the others.
STAGGER = 200 * NS_PER_MS
# How long one address has altogether.
CONNECT_TIMEOUT = 2 * NS_PER_S
# How often it is looked whether the client was closed.
STOP_LOOK = 100 * NS_PER_MS
# Both double with each round that found no server, this often.
DOUBLED_MAX = 2

_METHOD = "/ringfence.v1.Connection/Stream"


@dataclass(frozen=True)
class Options:
    """What the parts of a client need to know. Times are nanoseconds."""

    connect_timeout: int
    request_timeout: int
    # How often an idle connection is probed, and how long the answer may take.
    probe_interval: int
    probe_timeout: int
    credential: Credential
    tls: TLS | None

    @property
    def silence_max(self) -> int:
        """How long a connection may be silent on something asked before it counts as dead."""
        return self.probe_interval + self.probe_timeout


class Outbound:
    """The frames that go to a server, batched. Ends with `close`."""

    def __init__(self) -> None:
        self._frames: queue.SimpleQueue[connection_pb2.ClientFrame | None] = queue.SimpleQueue()

    def put(self, frame: connection_pb2.ClientFrame) -> None:
        self._frames.put(frame)

    def close(self) -> None:
        self._frames.put(None)

    def __iter__(self) -> Iterator[connection_pb2.ClientMessage]:
        is_of_a_client()  # A thread of grpcio that does nothing else.
        while True:
            frame = self._frames.get()
            batch: list[connection_pb2.ClientFrame] = []
            size = 0
            while frame is not None:
                batch.append(frame)
                size += frame.ByteSize()
                if len(batch) >= FRAMES_MAX or size >= BATCH_BYTES_MAX:
                    break
                try:
                    frame = self._frames.get_nowait()
                except queue.Empty:
                    break
            if batch:
                yield connection_pb2.ClientMessage(frames=batch)
            if frame is None:
                return


class Stream:
    """A stream to a member."""

    def __init__(self, endpoint: str, options: Options) -> None:
        self.endpoint = endpoint
        self.outbound = Outbound()
        self.greeting: Any = None
        settings: list[tuple[str, Any]] = [
            # Connections are replaced because something is wrong with them: none is shared.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
            ("grpc.keepalive_time_ms", options.probe_interval // NS_PER_MS),
            ("grpc.keepalive_timeout_ms", options.probe_timeout // NS_PER_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
            ("grpc.primary_user_agent", f"ringfence-python/{VERSION}"),
        ]
        if endpoint.startswith(LOCAL):
            # Otherwise the path is the authority, and no server takes it for one.
            settings.append(("grpc.default_authority", "localhost"))
        tls = None if endpoint.startswith(LOCAL) else options.tls
        if tls is None:
            self._channel = grpc.insecure_channel(endpoint, options=settings)
        else:
            if tls.server_name is not None:
                settings.append(("grpc.ssl_target_name_override", tls.server_name))
            self._channel = grpc.secure_channel(endpoint, tls.credentials(), options=settings)
        open_stream = self._channel.stream_stream(
            _METHOD,
            request_serializer=connection_pb2.ClientMessage.SerializeToString,
            response_deserializer=connection_pb2.ServerMessage.FromString,
        )
        self._call = open_stream(iter(self.outbound), metadata=options.credential.metadata())
        # Why this side ended it, if it did.
        self.why: str | None = None

    def messages(self) -> Iterator[Any]:
        """What the server says; raises grpc.RpcError when the stream breaks."""
        yield from self._call

    def end(self, why: str) -> None:
        """Ends it from any thread: the one that reads wakes up."""
        self.why = self.why or why
        self._call.cancel()

    def close(self) -> None:
        """Gives up what it is made of."""
        self.outbound.close()
        self._call.cancel()
        self._channel.close()


def describe(error: grpc.RpcError) -> str:
    """A failed call in one line."""
    code = error.code() if hasattr(error, "code") else None
    name = code.name if code is not None else type(error).__name__
    details = error.details() if hasattr(error, "details") else ""
    return f"{name}: {details}" if details else str(name)


def refusal_of(error: grpc.RpcError) -> AccessDenied | None:
    """What a stream was refused for, if it was for who the client is."""
    metadata = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    for key, value in metadata or ():
        if key == "grpc-status-details-bin":
            refusal = _refusal.of_status_details(value)
            return refusal if isinstance(refusal, AccessDenied) else None
    return None


class Attempt:
    """Tries one address, on a thread of its own. The result is a stream that was greeted; its
    messages are read on from `messages`."""

    def __init__(self, endpoint: str, options: Options) -> None:
        self.endpoint = endpoint
        self.result: Future[tuple[Stream, Iterator[Any]]] = new_future()
        self._options = options
        self._stream: Stream | None = None
        self._given_up = threading.Event()
        name = f"ringfence-connect-{endpoint}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def give_up(self, why: str) -> None:
        """Ends it, unless it has a result; a stream that comes too late is closed."""
        self._given_up.set()
        stream = self._stream
        if fail(self.result, ConnectError(why)) and stream is not None:
            stream.end(why)

    def discard(self) -> None:
        """Ends it, whatever it has found: another address was faster."""
        self.give_up("another address was faster")
        if self.result.exception() is None:
            self.result.result()[0].close()

    def _run(self) -> None:
        is_of_a_client()
        stream = None
        try:
            stream = self._stream = Stream(self.endpoint, self._options)
            if self._given_up.is_set():
                stream.end("it took too long")
            messages = stream.messages()
            first = next(messages, None)
            if first is None or not first.frames or first.frames[0].WhichOneof("body") != "greeting":
                text = "it did not begin with a greeting; is it a Ringfence client port?"
                raise ConnectError(text)
            stream.greeting = first.frames[0].greeting
            if settle(self.result, (stream, messages)):
                return
            error: Exception = ConnectError("it took too long")
        except grpc.RpcError as broken:
            refusal = refusal_of(broken)
            self._options.credential.refusal = refusal
            if refusal is not None:
                self._options.credential.refused()
            error = ConnectError(describe(broken))
        except Exception as fault:  # Whatever it is, another address may work.
            error = fault
        if stream is not None:
            stream.close()
        fail(self.result, error)


@dataclass
class Race:
    """What came of trying all candidates."""

    winner: tuple[Stream, Iterator[Any]] | None
    # Those that failed, and why.
    failed: list[tuple[str, str]]


def race(candidates: list[str], options: Options, tries: int, stop: threading.Event) -> Race:
    """Tries the candidates in order, each a little after the one before, until one greets or `stop` is
    set; `tries` rounds have found no server."""
    doubled = 1 << min(tries, DOUBLED_MAX)
    stagger, timeout = STAGGER * doubled, CONNECT_TIMEOUT * doubled
    finished: queue.SimpleQueue[Attempt] = queue.SimpleQueue()
    waiting = list(candidates)
    running: dict[Attempt, int] = {}
    failed: list[tuple[str, str]] = []
    while waiting or running:
        if stop.is_set():
            for attempt in running:
                attempt.discard()
            break
        now = _clock.now()
        if waiting:
            attempt = Attempt(waiting.pop(0), options)
            running[attempt] = now + timeout
            attempt.result.add_done_callback(lambda _, done=attempt: finished.put(done))  # type: ignore[misc]
        until = min(running.values()) if running else now
        if waiting:
            until = min(until, now + stagger)
        until = min(until, now + STOP_LOOK)
        try:
            done = finished.get(timeout=max(0.0, seconds(until - now)))
        except queue.Empty:
            now = _clock.now()
            for attempt, deadline in running.items():
                if deadline <= now:
                    attempt.give_up("no greeting in time")
            continue
        if running.pop(done, None) is None:
            continue
        error = done.result.exception()
        if error is None:
            for other in running:
                other.discard()
            return Race(done.result.result(), failed)
        failed.append((done.endpoint, str(error)))
    return Race(None, failed)
