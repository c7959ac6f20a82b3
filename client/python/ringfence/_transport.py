"""The way to the cluster that all sessions of one client share: its threads, its connection, and what
is known of the cluster at the other end. It knows no session, except as what it serves.

The thread `ringfence-connection` keeps one stream open, for ever: it connects, follows the leader, and
hands replies to their callers. The thread `ringfence-timer` looks at the clock: deadlines, retries,
windows, keep-alives that are due, connections that are silent.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, Protocol

from ringfence import _clock, _refusal
from ringfence._calls import Call, CallFuture, Calls, Hint, Mode, Resolved
from ringfence._clock import NS_PER_MS, NS_PER_S, seconds
from ringfence._connection import Attempt, Options, Stream, describe, race
from ringfence._endpoints import Endpoints
from ringfence._grpc import grpc
from ringfence._waiting import fail, is_of_a_client, log, new_future, settle
from ringfence.errors import ConnectError, RingfenceError, Unavailable

# How long the leader has to answer when another member names it; that member serves as well.
LEADER_CONNECT_TIMEOUT = 250 * NS_PER_MS
# A member that only refuses for this long may be cut off from the rest: try another one.
REFUSING_MAX = NS_PER_S
SILENCE_MIN = 200 * NS_PER_MS
# A stream that lived for less than this was of little use, whatever it answered.
USEFUL_STREAM_MIN = 500 * NS_PER_MS
# Timers of the system stand still while the machine is suspended, so the clock is asked again after
# at most this time.
LOOK_MAX = 500 * NS_PER_MS


class Served(Protocol):
    """What the transport works for."""

    def is_idle(self) -> bool:
        """Whether there is no session that another cluster would end."""

    def shortest_ttl(self) -> int | None:
        """The shortest TTL among the sessions, in nanoseconds."""

    def cluster_changed(self) -> None:
        """The cluster is another one, which knows no session of this client."""

    def connected(self, now: int) -> None:
        """There is a new stream, so perhaps a new leader."""

    def poll(self, now: int) -> int | None:
        """Looks at windows and sends what is due; returns when to look again."""


class Transport:
    """See the module."""

    def __init__(self, endpoints: list[str], options: Options, served: Served) -> None:
        self.options = options
        self._served = served
        self._lock = threading.RLock()
        self._calls = Calls()
        self._stream: Stream | None = None
        self._endpoints = Endpoints(endpoints, random.randrange(len(endpoints)))
        self._cluster = b""
        self._cluster_time_ms = 0
        self._last_received = 0
        self._last_error = ""
        self._stopped = False
        self._stop = threading.Event()
        # The timer thread: who sleeps until when, and a wake-up call.
        self._wake = threading.Condition()
        self._woken = False
        self._sleepers: list[tuple[int, int, Future[Any]]] = []
        self._order = itertools.count()
        self.greeted: Future[None] = new_future()
        self._threads = [
            threading.Thread(target=self._connect_for_ever, name="ringfence-connection", daemon=True),
            threading.Thread(target=self._look_at_the_clock, name="ringfence-timer", daemon=True),
        ]

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()
        token = self.options.credential.follow(self._token_replaced)
        if token is not None:
            self._threads.append(token)

    def stop(self) -> None:
        """Ends the threads. Requests without an answer fail."""
        with self._lock:
            self._stopped = True
            stream = self._stream
        self._stop.set()
        self.options.credential.stop()
        if stream is not None:
            stream.end("the client is closed")
        self.wake()
        resolved: Resolved = []
        with self._lock:
            self._calls.fail_all("the client is closed", resolved)
        _resolve(resolved)

    def threads(self) -> list[threading.Thread]:
        """Those that have not ended yet, without the present one."""
        present = threading.current_thread()
        return [thread for thread in self._threads if thread.is_alive() and thread is not present]

    @property
    def endpoint(self) -> str | None:
        """The address of the member that the stream is connected to, if it is connected."""
        stream = self._stream
        return stream.endpoint if stream is not None else None

    @property
    def is_connected(self) -> bool:
        return self._stream is not None

    @property
    def last_error(self) -> str:
        """Why there is no stream."""
        return self._last_error

    @property
    def cluster_time_ms(self) -> int:
        """The newest cluster time seen; 0 before the first greeting."""
        return self._cluster_time_ms

    def deadline(self) -> int:
        """Until when a request that begins now is tried."""
        return _clock.now() + self.options.request_timeout

    def wake(self) -> None:
        """The timer thread looks at once."""
        with self._wake:
            self._woken = True
            self._wake.notify()

    def sleep_until(self, moment: int) -> Future[None]:
        """Done at that moment, also if the machine was suspended meanwhile, and when the client is
        closed."""
        future = new_future()
        with self._wake:
            if self._stopped:
                settle(future, None)
                return future
            heapq.heappush(self._sleepers, (moment, next(self._order), future))
            self._woken = True
            self._wake.notify()
        return future

    def sleep(self, duration: int) -> Future[None]:
        """The same, counted from now."""
        return self.sleep_until(_clock.now() + duration)

    def call(self, request: str, body: Any, mode: Mode, deadline: int) -> CallFuture:
        """Sends a request until it is answered or the deadline has passed. `request` is the name of
        its field in a frame. Fails with Refused, Unavailable or OutcomeUnknown."""
        # Before the request can reach the stream: windows count from here.
        sent = _clock.now()
        future = CallFuture()
        resolved: Resolved = []
        with self._lock:
            if self._stopped:
                resolved.append((future, Unavailable("the client is closed")))
            else:
                call = Call(request, body, mode, sent, deadline, future)
                number = self._calls.insert(call, resolved)
                if number is not None and self._stream is not None:
                    self._send([number], self._stream, sent)
        _resolve(resolved)
        # Its deadline, or the end of its connection's silence, may be the next thing that is due.
        self.wake()
        return future

    def abandon(self, future: CallFuture) -> None:
        """No caller waits for this reply any more."""
        with self._lock:
            self._calls.abandon(future.number)

    def _send(self, numbers: list[int], stream: Stream, now: int) -> None:
        for number in numbers:
            frame = self._calls.frame(number, now)
            if frame is not None:
                stream.outbound.put(frame)

    # The connection.

    def _connect_for_ever(self) -> None:
        is_of_a_client()
        short_streams = 0
        while not self._stopped:
            try:
                opened = self._establish()
                if opened is None:
                    return
                stream, messages = opened
                since = _clock.now()
                self._connected(stream)
                why, failed = self._read(stream, messages)
                self._disconnected(stream, why, failed)
            except Exception:  # A fault here must end no client.
                log.exception("the connection thread goes on behind a fault")
                since = _clock.now()
            # The first short stream is followed by another at once, since leaders die; later ones
            # after pauses, or a server that breaks every stream would be connected to as fast as it
            # can take it.
            useful = _clock.now() - since >= USEFUL_STREAM_MIN
            short_streams = 0 if useful else short_streams + 1
            if short_streams >= 2:
                self._stop.wait(seconds(_refusal.pause(short_streams - 2)))

    def _connected(self, stream: Stream) -> None:
        now = _clock.now()
        with self._lock:
            self._stream, self._last_received = stream, now
            if self._stopped:
                stream.end("the client is closed")
            self._send(self._calls.ready(), stream, now)
        log.debug("connected to %s", stream.endpoint)
        settle(self.greeted, None)
        self._served.connected(now)
        self.wake()

    def _disconnected(self, stream: Stream, why: str, failed: bool) -> None:
        resolved: Resolved = []
        with self._lock:
            self._stream = None
            self._last_error = f"{stream.endpoint}: {why}"
            self._calls.stream_lost(self._last_error, resolved)
            if failed:
                self._endpoints.failed(stream.endpoint, _clock.now())
        log.debug("disconnected from %s: %s", stream.endpoint, why)
        _resolve(resolved)
        stream.close()

    def _establish(self) -> tuple[Stream, Iterator[Any]] | None:
        """Connects to a member, the leader if it can be reached; None when the client is closed."""
        tries = 0
        adopt_other_cluster = False
        while not self._stopped:
            with self._lock:
                candidates = self._endpoints.candidates(_clock.now())
            raced = race(candidates, self.options, tries, self._stop)
            errors = []
            for endpoint, why in raced.failed:
                with self._lock:
                    self._endpoints.failed(endpoint, _clock.now())
                errors.append(f"{endpoint}: {why}")
            if raced.winner is not None:
                stream = raced.winner[0]
                fault = self._accept(stream, adopt_other_cluster)
                if fault is None:
                    return self._prefer_leader(raced.winner)
                # Adopted only if a second round finds no node of the cluster that was known: one
                # round may hit a single restored node while the others are briefly unreachable.
                adopt_other_cluster = tries > 0
                with self._lock:
                    self._endpoints.failed(stream.endpoint, _clock.now())
                errors.append(f"{stream.endpoint}: {fault}")
                stream.close()
            with self._lock:
                self._last_error = "; ".join(errors)
                self._calls.no_stream(self._last_error)
            self._stop.wait(seconds(_refusal.pause(tries)))
            tries += 1
        return None

    def _accept(self, stream: Stream, adopt_other_cluster: bool) -> str | None:
        """What is wrong with the cluster that greeted; None if nothing is."""
        greeting = stream.greeting
        cluster = greeting.cluster_id
        if len(cluster) != 16:
            return "it belongs to no cluster yet"
        other = self._cluster not in (b"", cluster)
        if other and not self._served.is_idle() and not adopt_other_cluster:
            return "it belongs to another cluster than before"
        self._cluster = cluster
        if other:
            self._cluster_time_ms = greeting.cluster_time_ms
            self._served.cluster_changed()
        self.saw_cluster_time(greeting.cluster_time_ms)
        with self._lock:
            self._endpoints.greeted(stream.endpoint)
        return None

    def _prefer_leader(self, opened: tuple[Stream, Iterator[Any]]) -> tuple[Stream, Iterator[Any]]:
        """Goes to the leader that the greeting names, if it answers quickly."""
        stream, _ = opened
        named = stream.greeting.leader_client_address
        with self._lock:
            leader = self._endpoints.hint(named, stream.endpoint, _clock.now())
        if leader is None:
            return opened
        attempt = Attempt(leader, self.options)
        direct = None
        try:
            direct = attempt.result.result(timeout=seconds(LEADER_CONNECT_TIMEOUT))
        except Exception:
            attempt.discard()
        if direct is not None:
            greeting = direct[0].greeting
            if greeting.cluster_id == stream.greeting.cluster_id:
                self.saw_cluster_time(greeting.cluster_time_ms)
                with self._lock:
                    self._endpoints.greeted(leader)
                stream.close()
                return direct
            direct[0].close()
        # A leader that has just died is named for seconds. Marking the address keeps every hint of
        # that time from costing another detour.
        with self._lock:
            self._endpoints.failed(leader, _clock.now())
        return opened

    def _read(self, stream: Stream, messages: Iterator[Any]) -> tuple[str, bool]:
        """Hands replies out until the stream ends: why, and whether to avoid the address for a
        while."""
        refusing_since: int | None = None
        try:
            for message in messages:
                now = self._last_received = _clock.now()
                leaving: str | None = None
                answered = 0
                hints: list[Hint] = []
                resolved: Resolved = []
                with self._lock:
                    for frame in message.frames:
                        kind = frame.WhichOneof("body")
                        if kind == "going_away":
                            leaving = frame.going_away.leader_client_address
                        elif frame.id != 0:
                            time_ms = getattr(getattr(frame, kind or ""), "cluster_time_ms", 0) if kind else 0
                            self.saw_cluster_time(time_ms)
                            answered += 1
                            hint = self._calls.answer(frame, now, resolved)
                            if hint is not None:
                                hints.append(hint)
                # Before a going-away notice is obeyed: the server answers what it has done, and
                # those calls need no second try.
                _resolve(resolved)
                if hints:
                    self.wake()  # Pauses have begun.
                if leaving is not None:
                    with self._lock:
                        self._endpoints.hint(leaving, stream.endpoint, now)
                    return "the server is stopping", True
                # A reply that is no hint shows that this member can serve; a minority that is cut
                # off refuses everything.
                if len(hints) < answered:
                    refusing_since = None
                for hint in hints:
                    with self._lock:
                        named = hint.leader or ""
                        leader = self._endpoints.hint(named, stream.endpoint, now)
                    if leader is not None:
                        return f"the leader is {leader}", False
                if hints:
                    refusing_since = refusing_since if refusing_since is not None else now
                    if now - refusing_since > REFUSING_MAX:
                        return "it only refuses", True
        except grpc.RpcError as error:
            if stream.why is not None:
                return stream.why, stream.why != _NEW_TOKEN
            return describe(error), True
        return stream.why or "the server ended it", True

    def _token_replaced(self) -> None:
        stream = self._stream
        if stream is not None:
            stream.end(_NEW_TOKEN)

    def saw_cluster_time(self, time_ms: int) -> None:
        self._cluster_time_ms = max(self._cluster_time_ms, time_ms)

    # The clock.

    def _look_at_the_clock(self) -> None:
        is_of_a_client()
        while not self._stopped:
            with self._wake:
                self._woken = False
            now = _clock.now()
            try:
                due = self._tick(now)
            except Exception:  # A fault here must stop no keep-alive.
                log.exception("the timer thread goes on behind a fault")
                due = now + 100 * NS_PER_MS
            with self._wake:
                left = min(due - _clock.now(), LOOK_MAX)
                if not self._woken and left > 0:
                    self._wake.wait(seconds(left))
        with self._wake:
            sleepers = [future for _, _, future in self._sleepers]
            self._sleepers.clear()
        for future in sleepers:
            settle(future, None)

    def _tick(self, now: int) -> int:
        """Does what is due; returns when to look again."""
        due = now + LOOK_MAX
        resolved: Resolved = []
        with self._lock:
            ready = self._calls.due(now, resolved)
            if self._stream is not None:
                self._send(ready, self._stream, now)
            next_due = self._calls.next_due()
            if next_due is not None:
                due = min(due, next_due)
            silence = self._check_silence(now)
            if silence is not None:
                due = min(due, silence)
        _resolve(resolved)
        awake = []
        with self._wake:
            while self._sleepers and self._sleepers[0][0] <= now:
                awake.append(heapq.heappop(self._sleepers)[2])
            if self._sleepers:
                due = min(due, self._sleepers[0][0])
        for future in awake:
            settle(future, None)
        polled = self._served.poll(now)
        return due if polled is None else min(due, polled)

    def _check_silence(self, now: int) -> int | None:
        """Ends a connection that is dead: something was asked, and nothing at all was heard since.
        Returns when to look again."""
        stream = self._stream
        if stream is None:
            return None
        asked = self._calls.oldest_unanswered()
        if asked is None:
            return None
        # A quarter of the shortest TTL leaves the time to ask another member before a window ends.
        shortest = self._served.shortest_ttl()
        longest = self.options.silence_max
        if shortest is not None:
            longest = min(longest, shortest // 4)
        longest = max(longest, SILENCE_MIN)
        until = max(asked, self._last_received) + longest
        if now >= until:
            stream.end(f"no reply for {seconds(longest):.1f} s")
            return None
        return until

    def unreachable(self) -> RingfenceError:
        """Why no member has greeted yet."""
        refusal = self.options.credential.refusal
        if refusal is not None:
            error: RingfenceError = ConnectError(f"refused: {refusal}")
            error.__cause__ = refusal
            return error
        return ConnectError(self._last_error or "no member greeted in time")


_NEW_TOKEN = "there is another token to show"


def _resolve(resolved: Resolved) -> None:
    """Gives the results out, under no lock: what waits for them goes on here."""
    for future, result in resolved:
        if isinstance(result, RingfenceError):
            fail(future, result)
        else:
            settle(future, result)
