"""The requests that wait for a reply: which are on the stream, which wait for another try, and what
is known of each one's fate. Bookkeeping only: no clock, no I/O, and the caller holds the lock.

Futures are not resolved here, since their callbacks would run under that lock: each method appends
what is to be resolved to the list that it is given.
"""

from __future__ import annotations

import enum
import heapq
import itertools
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Union

from ringfence import _refusal
from ringfence._proto import connection_pb2
from ringfence._refusal import Meaning
from ringfence.errors import OutcomeUnknown, RingfenceError, Unavailable

# The most requests that may wait for a reply at one time.
CALLS_MAX = 65_536
# How many timers may be left over from calls that have ended.
TIMERS_SPARE = 128


@dataclass
class Answer:
    """A reply, and when its request was first given to the stream, in nanoseconds."""

    body: Any
    sent: int


# What is to be resolved, and with what.
Resolved = list[tuple["Future[Any]", Union[Answer, RingfenceError]]]


class Mode(enum.Enum):
    """How a request is treated."""

    PROMPT = "it is answered at once, and repeated until it is"
    WAITING = "it may rightly be answered late, since it waits in a queue; repeated too"
    ONCE = "it is not repeated: a newer one takes its place"


class CallFuture(Future[Any]):
    """Where the reply goes. No waiter can cancel it: what was asked is taken back by a request."""

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()
        # The call that it belongs to; 0: none.
        self.number = 0


class State(enum.Enum):
    """Where a request is."""

    READY = "it waits for a stream"
    SENT = "it is on the present stream"
    PAUSING = "it waits until a moment for another try"


@dataclass
class Call:
    """One request."""

    request: str
    body: Any
    mode: Mode
    sent: int
    deadline: int
    future: CallFuture
    state: State = State.READY
    # Since when it has been on the stream, or until when it pauses.
    moment: int = 0
    # It was on a stream that broke, or its reply left its outcome open. Never cleared: a later
    # refusal of another try does not prove the first one void.
    maybe_done: bool = False
    tries: int = 0
    last_error: str | None = None


@dataclass
class Hint:
    """A try was in vain; the leader that the refusal names, if it names one."""

    leader: str | None


@dataclass
class Calls:
    """All calls of a client."""

    calls: dict[int, Call] = field(default_factory=dict)
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    timers: list[tuple[int, int]] = field(default_factory=list)

    def insert(self, call: Call, resolved: Resolved) -> int | None:
        """Takes a request in; None if there are too many."""
        if len(self.calls) >= CALLS_MAX:
            why = f"{CALLS_MAX} requests of this client wait for replies already"
            resolved.append((call.future, Unavailable(why)))
            return None
        # In one step: a handler of a signal may come between two, and send a request of its own.
        number = next(self.ids)
        self.calls[number] = call
        call.future.number = number
        heapq.heappush(self.timers, (call.deadline, number))
        return number

    def frame(self, number: int, now: int) -> connection_pb2.ClientFrame | None:
        """The frame of a call that is ready, now given to the stream."""
        call = self.calls.get(number)
        if call is None or call.state is not State.READY:
            return None
        call.state, call.moment = State.SENT, now
        call.tries += 1
        return connection_pb2.ClientFrame(id=number, **{call.request: call.body})

    def ready(self) -> list[int]:
        """The calls that are ready, in the order in which they were made."""
        return sorted(n for n, call in self.calls.items() if call.state is State.READY)

    def answer(
        self, frame: connection_pb2.ServerFrame, now: int, resolved: Resolved
    ) -> Hint | None:
        """Takes a reply from the stream; a hint if the try was in vain."""
        number = frame.id
        call = self.calls.get(number)
        if call is None:
            return None
        kind = frame.WhichOneof("body")
        refusal = frame.refusal if kind == "refusal" else None
        # A refused keep-alive says so inside its reply.
        if kind == "keep_alive" and frame.keep_alive.HasField("refusal"):
            refusal = frame.keep_alive.refusal
        if refusal is not None:
            return self._refused(number, call, refusal, now, resolved)
        if kind == call.request:
            self._finish(number, Answer(getattr(frame, kind), call.sent), resolved)
            return None
        why = "the server's reply does not fit the request"
        if call.mode is Mode.ONCE:
            self._finish(number, OutcomeUnknown(why), resolved)
            return None
        self._pause(number, call, now, True, why, None)
        return Hint(None)

    def _refused(
        self, number: int, call: Call, wire: Any, now: int, resolved: Resolved
    ) -> Hint | None:
        refusal = _refusal.of_wire(wire)
        if refusal is None:
            # A reason of a newer cluster: repeating would bring the same.
            self._finish(number, OutcomeUnknown(wire.message), resolved)
            return None
        means = _refusal.meaning(refusal)
        # This try is refused for good, but an earlier one may sit in the log of a deposed leader.
        # Only if the refusal covers that one too may the caller learn that nothing was done.
        final = means is Meaning.FINAL
        if final and call.maybe_done and not _refusal.covers_earlier_tries(refusal, call.request):
            why = f"an earlier try was sent, then one was refused: {refusal.message}"
            unknown = OutcomeUnknown(why)
            unknown.__cause__ = refusal
            self._finish(number, unknown, resolved)
            return None
        if final or call.mode is Mode.ONCE:
            self._finish(number, refusal, resolved)
        else:
            after = refusal.retry_after
            self._pause(number, call, now, means is Meaning.OPEN, refusal.message, after)
        return None if final else Hint(refusal.details.get("leader"))

    def stream_lost(self, why: str, resolved: Resolved) -> None:
        """The stream is gone: what was on it may have been done, and waits for the next one."""
        for number, call in list(self.calls.items()):
            if call.state is State.SENT:
                call.maybe_done, call.last_error = True, why
                if call.mode is Mode.ONCE:
                    self._finish(number, OutcomeUnknown(why), resolved)
                    continue
            # A pause ends early, too: it was to spare the server of that stream.
            call.state = State.READY

    def no_stream(self, why: str) -> None:
        """Says to those without a stream why there is none."""
        for call in self.calls.values():
            if call.state is State.READY:
                call.last_error = why

    def due(self, now: int, resolved: Resolved) -> list[int]:
        """Fails what is past its deadline; returns what is ready for another try."""
        ready = []
        while self.timers and self.timers[0][0] <= now:
            moment, number = heapq.heappop(self.timers)
            call = self.calls.get(number)
            if call is None:
                continue
            if call.deadline <= now:
                self._expire(number, call, resolved)
            elif call.state is State.PAUSING and call.moment == moment:
                call.state = State.READY
                ready.append(number)
        return ready

    def next_due(self) -> int | None:
        """When `due` has to be called next."""
        while self.timers and self.timers[0][1] not in self.calls:
            heapq.heappop(self.timers)
        return self.timers[0][0] if self.timers else None

    def oldest_unanswered(self) -> int | None:
        """Since when the oldest request has been on the stream that should have been answered."""
        on_stream = (
            call.moment
            for call in self.calls.values()
            if call.state is State.SENT and call.mode is not Mode.WAITING
        )
        return min(on_stream, default=None)

    def abandon(self, number: int) -> None:
        """No caller waits for it any more: it is not sent again. The caller sees to its end."""
        self._forget(number)

    def fail_all(self, why: str, resolved: Resolved) -> None:
        """The client ends: what never left was not done, of the rest nothing is known."""
        for number, call in list(self.calls.items()):
            call.last_error = why
            self._expire(number, call, resolved)

    def _pause(
        self, number: int, call: Call, now: int, is_open: bool, why: str, asked: float | None
    ) -> None:
        until = now + _refusal.pause(call.tries, asked)
        call.maybe_done = call.maybe_done or is_open
        call.last_error = why
        call.state, call.moment = State.PAUSING, until
        # A pause that outlasts the deadline ends with it.
        if until < call.deadline:
            heapq.heappush(self.timers, (until, number))

    def _expire(self, number: int, call: Call, resolved: Resolved) -> None:
        # Even a call that is on the stream for the first time may have been applied: its reply can
        # be on the way. Only a call that never left, or was refused each time, is surely not done.
        error: RingfenceError
        if call.maybe_done or call.state is State.SENT:
            error = OutcomeUnknown(call.last_error or "no reply before the deadline")
        else:
            error = Unavailable(call.last_error or "no connection before the deadline")
        self._finish(number, error, resolved)

    def _finish(
        self, number: int, result: Answer | RingfenceError, resolved: Resolved
    ) -> None:
        call = self._forget(number)
        if call is not None:
            resolved.append((call.future, result))

    def _forget(self, number: int) -> Call | None:
        call = self.calls.pop(number, None)
        # A deadline may be hours away: it is not left to come. A call has a few timers at most, so this
        # goes through them once for as many calls.
        if len(self.timers) > TIMERS_SPARE + 4 * len(self.calls):
            self.timers = [timer for timer in self.timers if timer[1] in self.calls]
            heapq.heapify(self.timers)
        return call
