"""A server in this process that does what a test tells it: one node that keeps sessions and leases in
memory, and whose answers a test can hold back or replace."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ringfence._grpc import grpc
from ringfence._proto import connection_pb2, leases_pb2, sessions_pb2, types_pb2

Frame = connection_pb2.ServerFrame


def refusal(reason: str, message: str = "no", **details: str) -> Any:
    number = types_pb2.Reason.Value(f"REASON_{reason}")
    return types_pb2.Refusal(reason=number, message=message, metadata=details)


class Scripted(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Listens on `endpoint` until `stop`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.last = 0
        self.sessions: dict[int, dict[int, Any]] = {}
        self.grants: dict[str, Any] = {}
        # Asked first about each request, by its name and body: a frame without a number to say that,
        # None to do what a node does, or False to say nothing.
        self.answer: Callable[[str, Any], Any] = lambda request, body: None
        self._server = grpc.server(ThreadPoolExecutor(32), handlers=(self,))
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait(5)

    def service(self, details: Any) -> Any:
        if details.method != "/ringfence.v1.Connection/Stream":
            return None
        return grpc.stream_stream_rpc_method_handler(
            self._stream,
            connection_pb2.ClientMessage.FromString,
            connection_pb2.ServerMessage.SerializeToString,
        )

    def _stream(self, messages: Iterator[Any], context: Any) -> Iterator[Any]:
        greeting = connection_pb2.Greeting(cluster_id=b"c" * 16, cluster_time_ms=1_000)
        yield connection_pb2.ServerMessage(frames=[Frame(greeting=greeting)])
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def read() -> None:
            try:
                for message in messages:
                    for frame in message.frames:
                        name = frame.WhichOneof("body")
                        body = getattr(frame, name)
                        said = self.answer(name, body)
                        if said is None:
                            with self.lock:
                                said = getattr(self, name)(body)
                        if said is not False:
                            said.id = frame.id
                            answers.put(said)
            except Exception:
                pass  # The client has gone.
            answers.put(None)

        threading.Thread(target=read, daemon=True).start()
        while True:
            said = answers.get()
            if said is None:
                return
            yield connection_pb2.ServerMessage(frames=[said])

    # What a node does, without waits, without time, and without a memory of answers.

    def open(self, body: Any) -> Any:
        self.last += 1
        self.sessions[self.last] = {}
        return Frame(open=sessions_pb2.OpenResponse(session=self.last, ttl_ms=body.ttl_ms))

    def keep_alive(self, body: Any) -> Any:
        return Frame(keep_alive=sessions_pb2.KeepAliveResponse())

    def acquire(self, body: Any) -> Any:
        if body.session.session not in self.sessions:
            return Frame(refusal=refusal("SESSION_EXPIRED"))
        if body.name in self.grants:
            return Frame(refusal=refusal("HELD"))
        self.last += 1
        grant = types_pb2.Grant(name=body.name, token=self.last, session=body.session.session)
        self.grants[body.name] = grant
        self.sessions[body.session.session][body.number] = grant
        return Frame(acquire=leases_pb2.AcquireResponse(grant=grant))

    def cancel(self, body: Any) -> Any:
        requests = self.sessions.get(body.session.session)
        if requests is None:
            return Frame(refusal=refusal("SESSION_EXPIRED"))
        grant = requests.get(body.target)
        results = leases_pb2.CancelResponse
        if grant is None:
            return Frame(cancel=results(result=results.VOIDED))
        return Frame(cancel=results(result=results.GRANTED, token=grant.token))

    def release(self, body: Any) -> Any:
        if body.session.session not in self.sessions:
            return Frame(refusal=refusal("SESSION_EXPIRED"))
        grant = self.grants.get(body.name)
        if body.close_session:
            self._end(body.session.session)
        if grant is None or grant.token != body.token:
            return Frame(refusal=refusal("STALE_TOKEN"))
        self.grants.pop(body.name, None)
        return Frame(release=leases_pb2.ReleaseResponse())

    def close(self, body: Any) -> Any:
        self._end(body.session.session)
        return Frame(close=sessions_pb2.CloseResponse())

    def get(self, body: Any) -> Any:
        return Frame(get=leases_pb2.GetResponse(lease=leases_pb2.Lease(name=body.name)))

    def _end(self, session: int) -> None:
        self.sessions.pop(session, None)
        self.grants = {n: g for n, g in self.grants.items() if g.session != session}
