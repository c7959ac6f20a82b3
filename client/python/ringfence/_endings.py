"""What a client has given up, but the cluster may still grant it: releases and cancels that are under
way, and grants that were lost here first.

An acquire of a name waits until what is unsettled of that name is settled: requests in flight together
have no order, so it could pass the release, and new work must have a new token.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from ringfence import _clock, _refusal
from ringfence._calls import Mode
from ringfence._numbers import Kind
from ringfence._proto import leases_pb2
from ringfence._waiting import Wait, either, log, new_future, settle, spawn
from ringfence.errors import NotDone, OutcomeUnknown, Refused, RingfenceError, Unavailable

if TYPE_CHECKING:
    from ringfence._session import SessionCore

# The most that is remembered. What is forgotten is granted until its session ends.
ENDINGS_MAX = 65_536
# Between two tries: as long as after so many in a row.
PAUSE_STEP = 3


class Ending:
    """Something to be ended at the cluster: a grant by its token, or an acquire by its number."""

    def __init__(self, session: SessionCore, name: str, token: int | None, request: int) -> None:
        self.session = session
        self.name = name
        self.token = token
        self.request = request
        self.done = False
        self._lock = threading.RLock()
        self._running = False
        self._stopped: Future[None] = new_future()

    def claim(self) -> bool:
        """Takes over the work, unless a task has: two would release under two request numbers."""
        with self._lock:
            if self._running or self.done:
                return False
            self._running = True
            return True

    def is_running(self) -> bool:
        """Whether a task works on it."""
        with self._lock:
            return self._running

    def stop(self, done: bool) -> None:
        """No task works on it from now on."""
        with self._lock:
            self._running, self.done = False, done
            stopped, self._stopped = self._stopped, new_future()
        settle(stopped, None)

    def stopped(self) -> Future[None]:
        """Done when no task works on it."""
        with self._lock:
            if self._running:
                return self._stopped
        idle = new_future()
        settle(idle, None)
        return idle


class Endings:
    """All of a client's endings, by name."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._names: dict[str, list[Ending]] = {}
        self._count = 0

    def note_release(self, session: SessionCore, name: str, token: int) -> Ending:
        """Remembers that a grant was given up here that the cluster may still grant."""
        return self._add(Ending(session, name, token, 0))

    def note_request(self, session: SessionCore, name: str, number: int) -> Ending:
        """Remembers that an acquire is to be taken back, whatever became of it."""
        return self._add(Ending(session, name, None, number))

    def _add(self, ending: Ending) -> Ending:
        with self._lock:
            # Beyond the limit it is still worked on. It only holds back no later acquire.
            if self._count < ENDINGS_MAX:
                self._count += 1
                self._names.setdefault(ending.name, []).append(ending)
        return ending

    def session_over(self, session: SessionCore) -> None:
        """The session is known to have ended: nothing of it is granted any more."""
        with self._lock:
            for name, endings in list(self._names.items()):
                kept = [ending for ending in endings if ending.session is not session]
                self._count -= len(endings) - len(kept)
                if kept:
                    self._names[name] = kept
                else:
                    del self._names[name]

    def in_background(self, ending: Ending) -> None:
        """Works on it as long as its session lives."""
        self._start(ending, self._work(ending, None))

    async def settle(self, name: str, deadline: int) -> None:
        """Waits until nothing of `name` is unsettled, and works on what no task works on; raises
        Unavailable at the deadline."""
        while True:
            with self._lock:
                endings = self._names.get(name)
                ending = endings[0] if endings else None
            if ending is None:
                return
            await self.settle_one(ending, deadline)
            over = _clock.now() >= deadline or ending.session.client.is_stopped
            if not ending.done and over:
                raise Unavailable(f"an earlier grant or request of {name} is not settled yet")

    async def settle_one(self, ending: Ending, deadline: int) -> None:
        """Works on one until the deadline, or waits for the task that does."""
        if ending.is_running():
            await Wait(either(ending.stopped(), ending.session.transport.sleep_until(deadline)))
        else:
            await Wait(self._start(ending, self._work(ending, deadline)))

    def _start(self, ending: Ending, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Begins it on the timer thread, where no handler of a signal interrupts it: an ending that was
        claimed and never stopped would hold back its name until its session is over."""
        return spawn(work, ending.session.transport.sleep_until(0))

    async def _work(self, ending: Ending, deadline: int | None) -> None:
        if not ending.claim():
            return
        done = False
        try:
            done = await _end(ending, deadline)
        finally:
            self._finish(ending, done)

    async def release(self, ending: Ending, close_session: bool) -> None:
        """Releases a grant, belief in which has ended. It goes on in the background if it is not
        answered in time, or if the caller does not wait."""
        await Wait(self._start(ending, self._release(ending, close_session)))

    async def _release(self, ending: Ending, close_session: bool) -> None:
        if not ending.claim():
            return
        settled = False
        try:
            deadline = ending.session.transport.deadline()
            await _release(ending, deadline, close_session)
            settled = True
        except Refused as refusal:
            settled = _settles(refusal)
            raise
        finally:
            self._finish(ending, settled)
            if not settled:
                self.in_background(ending)

    def _finish(self, ending: Ending, done: bool) -> None:
        if done:
            with self._lock:
                endings = self._names.get(ending.name, [])
                if ending in endings:
                    endings.remove(ending)
                    self._count -= 1
                if not endings:
                    self._names.pop(ending.name, None)
        ending.stop(done)


def _settles(refusal: Refused) -> bool:
    """Whether it says that there is nothing to be ended any more. Who asks speaks of one try: the
    session lives on, and another token may be shown soon."""
    return _refusal.covers_earlier_tries(refusal, "release")


async def _end(ending: Ending, deadline: int | None) -> bool:
    """Repeats the ending until the cluster has answered it; with a deadline until then, without one
    as long as the session lives. Says whether it is settled: a refusal settles it as well."""
    session = ending.session
    try:
        token = ending.token
        if token is None:
            token = await _cancel(ending, deadline)
            session.confirm(ending.request)
            if token is None:
                return True
            # The grant crossed the cancel, and was never believed in here.
            session.forget_grant(token)
            ending.token = token
        await _release(ending, deadline, False)
    except Refused as refusal:
        if not _settles(refusal):
            log.debug("%s is not settled: %s", ending.name, refusal)
            return False
        if ending.token is None:
            session.confirm(ending.request)
        return True
    except RingfenceError as error:
        log.debug("%s is not settled: %s", ending.name, error)
        return False
    return True


async def _cancel(ending: Ending, deadline: int | None) -> int | None:
    """Takes a request back; returns the token that it was granted, if it was."""
    session = ending.session

    def body(number: int, lowest: int) -> Any:
        return leases_pb2.CancelRequest(
            session=session.handle(), number=number, lowest=lowest, target=ending.request
        )

    reply = await repeat(session, "cancel", body, deadline)
    granted = reply.result == leases_pb2.CancelResponse.GRANTED
    return reply.token if granted and reply.token else None


async def _release(ending: Ending, deadline: int | None, close_session: bool) -> None:
    session = ending.session

    def body(number: int, lowest: int) -> Any:
        return leases_pb2.ReleaseRequest(
            session=session.handle(),
            number=number,
            lowest=lowest,
            name=ending.name,
            token=ending.token,
            close_session=close_session,
        )

    await repeat(session, "release", body, deadline)


async def repeat(
    session: SessionCore, request: str, body: Callable[[int, int], Any], deadline: int | None
) -> Any:
    """Sends a request until it is answered, under one number; with a deadline until then, without
    one as long as the session lives. The request names what it ends, so that sending it once more
    under another number does no harm."""
    transport = session.transport
    number: tuple[int, int] | None = None
    taken: list[int] = []
    # A try under a number that was given up may have been done: then no later refusal to send says
    # that it was not.
    maybe_done: RingfenceError | None = None
    try:
        while True:
            until = deadline if deadline is not None else transport.deadline()
            error: RingfenceError
            after: float | None = None
            try:
                if number is None:
                    number = await session.next_number(Kind.ENDING, until, taken)
                answer = await Wait(transport.call(request, body(*number), Mode.PROMPT, until))
                return answer.body
            except Refused as refusal:
                session.apply_refusal(refusal)
                error, after = refusal, refusal.retry_after
                if refusal.reason in ("STALE_REQUEST", "REQUEST_MISMATCH", "LIMIT"):
                    # Other requests of this session spend its numbers, or hold them up.
                    while taken:
                        session.confirm(taken.pop())
                    number = None
                elif _settles(refusal):
                    raise
            except OutcomeUnknown as unknown:
                error = maybe_done = unknown
            except NotDone as unavailable:
                error = unavailable
            over = session.loss() is not None if deadline is None else _clock.now() >= deadline
            # A client that is closed sends nothing, and does not sleep either.
            if over or session.client.is_stopped:
                raise maybe_done or error
            await Wait(transport.sleep(_refusal.pause(PAUSE_STEP, after)))
    finally:
        while taken:
            session.confirm(taken.pop())
