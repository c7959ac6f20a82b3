"""What a client does, written once for threads and event loops: sessions and their keep-alives, and
the requests to open, acquire, release, hand over and close."""

from __future__ import annotations

import logging
import os
import queue
import re
import secrets
import socket
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ringfence import _clock, _refusal
from ringfence._calls import Answer, CallFuture, Mode
from ringfence._clock import NS_PER_MS, NS_PER_S, nanos, seconds
from ringfence._connection import Options
from ringfence._endings import Ending, Endings, repeat
from ringfence._numbers import Kind
from ringfence._proto import leases_pb2, sessions_pb2, types_pb2
from ringfence._session import FORKED, Grant, SessionCore, cause_text
from ringfence._transport import Transport
from ringfence._waiting import Wait, either, new_future, settle, spawn
from ringfence.errors import (
    AcquireTimeout,
    Blocked,
    Held,
    InvalidRequest,
    LeaseLost,
    LimitReached,
    Loss,
    LossKind,
    NotDone,
    NotWaiting,
    OutcomeUnknown,
    Queued,
    Refused,
    RingfenceError,
    SessionLost,
    StaleToken,
    Unavailable,
)

log = logging.getLogger("ringfence")

# The most sessions in one keep-alive; the server takes 10,000, and a message has an end too.
KEEP_ALIVE_SESSIONS_MAX = 4_096
# Bytes.
NAME_MAX = 255
IDENTITY_MAX = 255
DATA_MAX = 1_024
# Seconds.
WAIT_MAX = 24 * 60 * 60.0
LOCK_DELAY_MAX = 60.0
TTL_MAX = 24 * 60 * 60.0
# How long one request of `lock` waits in the queue before another takes its place, in nanoseconds.
LOCK_WAIT = 12 * 60 * 60 * NS_PER_S
# How often a session is asked for again, under another id.
OPEN_TRIES = 5
# How long a client that is closed waits for the end of its threads, in nanoseconds.
THREADS_END = NS_PER_S
# Ends the thread of the hooks.
_NO_MORE_HOOKS = None

_SEGMENT = re.compile(r"[A-Za-z0-9._~:@-]+\Z")


def checked_name(name: str) -> str:
    """A lease name; raises InvalidRequest with what is wrong with it."""

    def wrong(fault: str) -> InvalidRequest:
        return InvalidRequest(f"lease name {name[:300]!r}: {fault}")

    if not name:
        raise wrong("it is empty")
    if len(name.encode("utf-8", "replace")) > NAME_MAX:
        raise wrong(f"it is longer than {NAME_MAX} bytes")
    for segment in name.split("/"):
        if not segment:
            raise wrong("empty segment; join segments by a single `/`")
        if segment in (".", ".."):
            raise wrong(f"`{segment}` is no segment")
        if not _SEGMENT.match(segment):
            raise wrong("a segment has A-Z a-z 0-9 . _ ~ : @ - only")
    return name


def checked_seconds(what: str, value: float, least: float, most: float) -> int:
    """A time in nanoseconds; raises InvalidRequest if it is out of range."""
    if not least <= value <= most:
        raise InvalidRequest(f"{what} is {value} s; expected {least:g} to {most:g} s")
    return nanos(value)


def unique_identity() -> str:
    """An identity that no other process has: the host's name, an underscore and a random UUID."""
    host = "".join(letter for letter in socket.gethostname() if letter.isprintable())[:64]
    return f"{host or 'host'}_{uuid.uuid4()}"


@dataclass(frozen=True)
class AcquireOptions:
    """What is asked for beside the name. Times are nanoseconds."""

    wait: int = 0
    data: bytes = b""
    lock_delay: int = 0

    @classmethod
    def checked(cls, wait: float, data: bytes, lock_delay: float) -> AcquireOptions:
        """From what a caller gave, in seconds; raises InvalidRequest."""
        if len(data) > DATA_MAX:
            raise InvalidRequest(f"the data has {len(data)} bytes; at most {DATA_MAX} are allowed")
        return cls(
            checked_seconds("the wait", wait, 0, WAIT_MAX),
            bytes(data),
            checked_seconds("the lock-delay", lock_delay, 0, LOCK_DELAY_MAX),
        )


@dataclass(frozen=True)
class Transferred:
    """What a hand-over brought."""

    # The session that holds the lease now.
    session: int
    # The new holder's token.
    token: int


class Claim:
    """An acquire until its lease has a caller. One that no variable refers to any more, since an
    interrupt has come at whatever line, is taken back: as in `Lease.__del__`, by the client's thread."""

    # Until it is made: an interrupt may come before that.
    settled = True

    def __init__(self, core: ClientCore, session: SessionCore, name: str) -> None:
        self.core, self.session, self.name = core, session, name
        # The session was opened for it alone.
        self.owns_session = False
        # The numbers of its request, and its grant once that is known.
        self.taken: list[int] = []
        self.granted: list[Grant] = []
        self.settled = False

    @property
    def grant(self) -> Grant:
        return self.granted[0]

    def answered(self) -> None:
        """The numbers are spent, and nothing is to be taken back under them."""
        while self.taken:
            self.session.confirm(self.taken[-1])
            self.taken.pop()

    def __del__(self) -> None:
        if not self.settled and (self.taken or self.granted) and os.getpid() == self.core.pid:
            core, session, name, owns = self.core, self.session, self.name, self.owns_session
            taken, granted = self.taken, self.granted
            core.leave(lambda: core.take_back(session, name, taken, granted, owns))


class Opening:
    """The opening of a session until that has a caller. One that no variable refers to any more, since
    an interrupt has come at whatever line, closes it: as in `Claim`."""

    settled = True

    def __init__(self, core: ClientCore) -> None:
        self.core = core
        # The session, once it is there.
        self.opened: list[SessionCore] = []
        self.settled = False

    @property
    def session(self) -> SessionCore:
        return self.opened[0]

    def __del__(self) -> None:
        if not self.settled and self.opened and os.getpid() == self.core.pid:
            self.core.close_soon(self.session)


class ClientCore:
    """What all sessions of a client share."""

    def __init__(self, endpoints: list[str], options: Options) -> None:
        self.pid = os.getpid()
        self.options = options
        self.endings = Endings()
        self.transport = Transport(endpoints, options, self)
        self.is_stopped = False
        self.closed = False
        self._lock = threading.RLock()
        self._sessions: dict[int, SessionCore] = {}
        self._hooks: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._hook_thread: threading.Thread | None = None
        # What finalizers leave behind: they may run at any point, also within a lock of this client.
        self._left: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    # Served by the transport.

    def sessions(self) -> list[SessionCore]:
        with self._lock:
            return list(self._sessions.values())

    def is_idle(self) -> bool:
        return not self._sessions

    def shortest_ttl(self) -> int | None:
        return min((session.ttl for session in self.sessions()), default=None)

    def cluster_changed(self) -> None:
        for session in self.sessions():
            session.lose(Loss(LossKind.CLUSTER_CHANGED))

    def connected(self, now: int) -> None:
        for session in self.sessions():
            session.renew_now()

    def poll(self, now: int) -> int | None:
        """Looks at windows, and sends the keep-alives that are due: one message for all sessions."""
        while True:
            try:
                self._left.get_nowait()()
            except queue.Empty:
                break
        connected = self.transport.is_connected
        sessions = self.sessions()
        upcoming: int | None = None
        is_due = False
        for session in sessions:
            looked = session.poll(now)
            if looked is None:
                continue
            look, due = looked
            # Without a stream nothing is sent: a keep-alive that would wait for the next stream
            # would be stale when it leaves. `connected` makes a new one.
            is_due = is_due or (connected and due <= now)
            wake = min(look, due) if connected else look
            upcoming = wake if upcoming is None else min(upcoming, wake)
        if is_due:
            self._send_keep_alives(sessions, now)
            return now + NS_PER_MS  # What was due has moved: look again.
        return upcoming

    def _send_keep_alives(self, sessions: list[SessionCore], now: int) -> None:
        batch: list[tuple[SessionCore, list[int]]] = []
        size = 0
        for session in sessions:
            acknowledged = session.join_keep_alive(now)
            if acknowledged is None:
                continue
            batch.append((session, acknowledged))
            size += 1 + len(acknowledged)
            if size >= KEEP_ALIVE_SESSIONS_MAX:
                self._send_keep_alive(batch)
                batch, size = [], 0
        if batch:
            self._send_keep_alive(batch)

    def _send_keep_alive(self, batch: list[tuple[SessionCore, list[int]]]) -> None:
        request = sessions_pb2.KeepAliveRequest(
            sessions=[session.handle() for session, _ in batch],
            acknowledged=[
                sessions_pb2.Acknowledged(session=session.number, token=token)
                for session, tokens in batch
                for token in tokens
            ],
        )
        # An answer that comes when the last window has passed is of no use.
        longest = max(session.ttl for session, _ in batch)
        deadline = _clock.now() + longest
        # Never repeated by the transport: a repeat would carry the `t_send` of the first try, and
        # the next keep-alive carries a later one.
        reply = self.transport.call("keep_alive", request, Mode.ONCE, deadline)

        def taken(future: Future[Any]) -> None:
            error = future.exception()
            if error is None:
                answer: Answer = future.result()
                _apply_keep_alive(answer.body, answer.sent, batch)
                self.transport.wake()
            elif isinstance(error, Refused) and error.reason == "UNAUTHENTICATED":
                self.options.credential.refused()

        reply.add_done_callback(taken)

    # Sessions come and go.

    def session_over(self, session: SessionCore, why: Loss, grants: Sequence[Grant]) -> None:
        """The session is over for this client, and belief in these grants has just ended."""
        with self._lock:
            self._sessions.pop(session.number, None)
        if why.kind in (LossKind.WINDOW_PASSED, LossKind.REPORTED, LossKind.CLOSED):
            # The cluster may still grant them.
            for grant in grants:
                self.endings.note_release(session, grant.name, grant.token)
        else:
            self.endings.session_over(session)

    def keep(self, session: SessionCore) -> None:
        """Keeps the session alive from now on; raises SessionLost if its window has passed."""
        with self._lock:
            self._sessions[session.number] = session
        loss = session.loss()
        if loss is not None:
            raise SessionLost(loss)
        self.transport.wake()

    def check_usable(self) -> None:
        """Raises if nothing can be asked by this client in this process."""
        if os.getpid() != self.pid:
            raise SessionLost(FORKED)
        if self.closed:
            raise Unavailable("the client is closed")

    # Hooks run on a thread of their own: what a program does in one must hold up no keep-alive.

    def call_hook(self, hook: Callable[[Any], object], value: object) -> None:
        """Calls it on the thread of the hooks."""
        self._hooks.put(lambda: hook(value))
        with self._lock:
            if self._hook_thread is None:
                self._hook_thread = threading.Thread(
                    target=self._run_hooks, name="ringfence-hooks", daemon=True
                )
                self._hook_thread.start()

    def _run_hooks(self) -> None:
        while True:
            call = self._hooks.get()
            if call is _NO_MORE_HOOKS:
                return
            try:
                call()
            except BaseException:  # Also one that exits: the other hooks are to be called.
                log.exception("a hook failed")

    def leave(self, what: Callable[[], None]) -> None:
        """Done soon on the timer thread. Safe in a finalizer: takes no lock of this client."""
        self._left.put(what)

    # Requests.

    async def greeted(self) -> None:
        """Waits for the first greeting; raises ConnectError at the connect timeout."""
        deadline = _clock.now() + self.options.connect_timeout
        await Wait(either(self.transport.greeted, self.transport.sleep_until(deadline)))
        if not self.transport.greeted.done():
            raise self.transport.unreachable()

    async def open_session(self, ttl: int, identity: str) -> Opening:
        """Opens a session and keeps it alive. If the caller gives up meanwhile, it is closed."""
        self.check_usable()
        if not identity or len(identity.encode()) > IDENTITY_MAX:
            raise InvalidRequest(
                f"the identity has {len(identity.encode())} bytes; expected 1 to {IDENTITY_MAX}"
            )
        opening = Opening(self)
        under_way = spawn(self._open(ttl, identity, opening))
        try:
            await Wait(under_way)
        except BaseException:
            under_way.add_done_callback(lambda _: _close_unwanted(opening))
            raise
        return opening

    async def _open(self, ttl: int, identity: str, opening: Opening) -> None:
        secret = secrets.token_bytes(16)
        tries = OPEN_TRIES
        while True:
            request = sessions_pb2.OpenRequest(
                id=secrets.token_bytes(16),
                secret=secret,
                seen_cluster_time_ms=self.transport.cluster_time_ms,
                ttl_ms=ttl // NS_PER_MS,
                identity=identity,
            )
            deadline = self.transport.deadline()
            try:
                reply = await Wait(self.transport.call("open", request, Mode.PROMPT, deadline))
            except Refused as refusal:
                tries -= 1
                # An earlier try opened it, its answer was lost, and no thread kept it alive: there is
                # nothing to keep, and another is asked for.
                if refusal.reason == "OPEN_ID_USED" and tries > 0:
                    continue
                # A client that has asked nothing for a minute knows no newer cluster time. The refusal
                # has no effect, and shows the present one.
                if refusal.reason == "OPEN_TOO_OLD" and tries > 0:
                    self.transport.saw_cluster_time(refusal.number("now") or 0)
                    continue
                raise
            break
        opened = reply.body
        if not opened.session:
            raise OutcomeUnknown("the server's reply makes no sense: no session number")
        if not 1 <= opened.ttl_ms <= TTL_MAX * 1_000:
            raise OutcomeUnknown(
                f"the server's reply makes no sense: a TTL of {opened.ttl_ms} ms; a cluster grants at most a day"
            )
        session = SessionCore(
            self, opened.session, secret, opened.ttl_ms * NS_PER_MS, reply.sent, identity
        )
        opening.opened.append(session)
        self.keep(session)
        if self.closed:
            await self.close_session(session)
            raise Unavailable("the client is closed")

    def take_back(
        self, session: SessionCore, name: str, taken: list[int], granted: list[Grant], owns: bool
    ) -> None:
        """Takes back what an acquire has asked for or was granted. Doing it twice does no harm."""
        if granted:
            for number in taken:
                session.confirm(number)
            session.end_belief(granted[0], Loss(LossKind.RELEASED))
            ending = self.endings.note_release(session, name, granted[0].token)
            self.endings.in_background(ending)
        else:
            for number in taken:
                self.endings.in_background(self.endings.note_request(session, name, number))
        if owns:
            self.close_in_background(session)

    async def acquire(self, session: SessionCore, name: str, options: AcquireOptions) -> Claim:
        """Acquires a lease under a session. However the caller leaves, no grant is left behind and no
        place in the queue.

        If this client held the name before and what became of that is not settled yet, that is
        settled first: the old grant is released by its token, so that new work has a new one."""
        self.check_usable()
        transport = self.transport
        deadline = transport.deadline() + options.wait
        await self.endings.settle(name, transport.deadline())
        kind, mode = (Kind.WAIT, Mode.WAITING) if options.wait else (Kind.ACQUIRE, Mode.PROMPT)
        while True:
            loss = session.loss()
            if loss is not None:
                raise SessionLost(loss)
            answered = False
            claim = Claim(self, session, name)
            call: CallFuture | None = None
            # From here on every way out, also an interrupt, either learns the outcome or cancels the
            # request under its number.
            try:
                number, lowest = await session.next_number(kind, deadline, claim.taken)
                call = transport.call(
                    "acquire",
                    leases_pb2.AcquireRequest(
                        session=session.handle(),
                        number=number,
                        lowest=lowest,
                        name=name,
                        wait_ms=options.wait // NS_PER_MS if options.wait else None,
                        data=options.data,
                        lock_delay_ms=options.lock_delay // NS_PER_MS,
                    ),
                    mode,
                    deadline,
                )
                reply = await Wait(call)
                grant = Grant(reply.body.grant)
                if grant.name != name or grant.session != session.number or not grant.token:
                    # Taken back, which says what it was.
                    raise OutcomeUnknown("the server's reply makes no sense: another grant")
                claim.granted.append(grant)
                answered = True
            except NotDone as not_done:
                answered = True
                claim.answered()
                if not isinstance(not_done, Refused):
                    raise
                session.apply_refusal(not_done)
                # The wait was confirmed before it arrived, or its end before its answer came back:
                # it holds nothing.
                if not_done.reason != "STALE_REQUEST" or _clock.now() >= deadline:
                    error = _acquire_error(session, name, not_done)
                    raise error from (None if error is not_done else not_done)
                continue
            finally:
                if call is not None and not answered:
                    transport.abandon(call)
                if not answered:
                    self.take_back(session, name, claim.taken, claim.granted, False)
                    claim.settled = True
            # The window is not moved: only a keep-alive's answer tells what was lost.
            loss = session.admit(grant)
            claim.answered()
            if loss is None:
                return claim
            claim.settled = True
            spawn(self.endings.settle(name, _clock.now() + session.ttl))
            raise LeaseLost(loss, f"{name}#{grant.token}")

    async def lock(
        self, name: str, limit: float | None, ttl: int, identity: str, options: AcquireOptions
    ) -> Claim:
        """Acquires a lease under a session of its own. `limit` is how long to wait, in seconds,
        outages included; None: as long as it takes; 0: not at all."""
        transport = self.transport
        until = None if limit is None else _clock.now() + nanos(limit)
        opening: Opening | None = None
        session: SessionCore | None = None
        tries = 0
        try:
            while True:
                pause = 0
                try:
                    if session is None or session.loss() is not None:
                        opening = await self.open_session(ttl, identity)
                        session = opening.session
                    # What is left of a wait is one, however little: its end is no refusal of one who asked
                    # not to wait.
                    least = NS_PER_MS if limit else 0
                    left = LOCK_WAIT if until is None else max(least, until - _clock.now())
                    wait = min(left, LOCK_WAIT) // NS_PER_MS * NS_PER_MS
                    with_wait = AcquireOptions(wait, options.data, options.lock_delay)
                    claim = await self.acquire(session, name, with_wait)
                    claim.owns_session = True
                    if opening is not None:
                        opening.settled = True
                    session = None
                    return claim
                except (Held, Queued, Blocked, AcquireTimeout) as error:
                    failed: RingfenceError = error
                except (LeaseLost, LimitReached, Unavailable, OutcomeUnknown) as error:
                    if self.closed or os.getpid() != self.pid:
                        raise
                    failed, pause = error, _refusal.pause(tries)
                if until is not None and _clock.now() + pause >= until:
                    raise failed
                if pause:
                    tries += 1
                    await Wait(transport.sleep(pause))
        finally:
            if session is not None:
                self.close_in_background(session)

    async def release(self, session: SessionCore, grant: Grant, close: bool) -> None:
        """Gives a lease back; belief in it ends before the request leaves. With `close` its session
        ends with it."""
        loss = session.loss_of(grant)
        released = Loss(LossKind.RELEASED)
        first = loss is None and session.end_belief(grant, released)
        if not first:
            loss = loss or grant.over or released
            if close and loss is not FORKED:
                await self.close_session(session)
            raise LeaseLost(loss, f"{grant.name}#{grant.token}")
        ending = self.endings.note_release(session, grant.name, grant.token)
        try:
            try:
                if close:
                    session.lose(Loss(LossKind.CLOSED))
                await self.endings.release(ending, close)
            except BaseException:
                self.endings.in_background(ending)
                raise
            finally:
                grant.is_told = True
        except Refused as refusal:
            if close:
                self.close_in_background(session)
            if refusal.reason in ("STALE_TOKEN", "SESSION_EXPIRED"):
                ended = LossKind.GRANT_ENDED
                if refusal.reason == "SESSION_EXPIRED":
                    ended = LossKind.SESSION_ENDED
                raise LeaseLost(Loss(ended), f"{grant.name}#{grant.token}") from refusal
            raise

    def release_unheard(self, session: SessionCore, grant: Grant, close: bool) -> None:
        """The same in the background, for a lease that no caller has any more."""
        if os.getpid() != self.pid:
            return
        ended = session.loss_of(grant) is None and session.end_belief(grant, Loss(LossKind.RELEASED))
        if ended or grant.is_untold():
            ending = self.endings.note_release(session, grant.name, grant.token)
            if close:
                spawn(self._release_and_close(session, ending))
            else:
                self.endings.in_background(ending)
            grant.is_told = True
        elif close:
            self.close_in_background(session)

    async def _release_and_close(self, session: SessionCore, ending: Ending) -> None:
        session.lose(Loss(LossKind.CLOSED))
        try:
            await self.endings.release(ending, True)
        except RingfenceError as error:
            log.debug("%s was not released, it will expire: %s", ending.name, error)

    def report_stale(self, session: SessionCore, grant: Grant) -> None:
        """A guard refused this grant's token: belief in it ends, and it is released at the cluster,
        or the session that lives on would hold it for no holder."""
        if session.loss_of(grant) is None and session.end_belief(grant, Loss(LossKind.REPORTED)):
            log.warning("lease %s#%d lost: a guard refused its token", grant.name, grant.token)
            self.endings.in_background(
                self.endings.note_release(session, grant.name, grant.token)
            )
            grant.is_told = True

    async def transfer(
        self, session: SessionCore, grant: Grant, to: int | None
    ) -> Transferred | Grant:
        """Hands a lease over to a session that waits for it, or to the head of the queue. Belief in
        it ends before the request leaves. If no such session waits, the grant comes back as a new
        belief; the old one stays ended for all that have seen its loss."""
        self.check_usable()
        loss = session.loss_of(grant)
        released = Loss(LossKind.RELEASED)
        if loss is not None or not session.end_belief(grant, released):
            raise LeaseLost(loss or grant.over or released, f"{grant.name}#{grant.token}")
        handing = spawn(self._hand_over(session, grant, to))
        grant.is_told = True
        try:
            return await Wait(handing)
        except BaseException:
            # A lease that comes back to no caller is released.
            handing.add_done_callback(lambda done: self._release_unwanted(session, done))
            raise

    async def _hand_over(
        self, session: SessionCore, grant: Grant, to: int | None
    ) -> Transferred | Grant:
        def body(number: int, lowest: int) -> Any:
            return leases_pb2.TransferRequest(
                session=session.handle(),
                number=number,
                lowest=lowest,
                name=grant.name,
                token=grant.token,
                to_session=to or 0,
            )

        text = f"{grant.name}#{grant.token}"
        try:
            reply = await repeat(session, "transfer", body, self.transport.deadline())
            return Transferred(reply.to_session, reply.token)
        except NotWaiting:
            wire = types_pb2.Grant(
                name=grant.name,
                token=grant.token,
                session=grant.session,
                data=grant.data,
                since_unix_ms=grant.granted_unix_ms,
            )
            again = Grant(wire)
            loss = session.admit(again)
            if loss is not None:
                raise LeaseLost(loss, text) from None
            session.take_back(again.token)
            return again
        except StaleToken as refusal:
            raise LeaseLost(Loss(LossKind.GRANT_ENDED), text) from refusal
        except RingfenceError:
            # If it was handed over after all, that is refused.
            self.endings.in_background(
                self.endings.note_release(session, grant.name, grant.token)
            )
            raise

    def _release_unwanted(self, session: SessionCore, done: Future[Transferred | Grant]) -> None:
        if done.exception() is None:
            result = done.result()
            if isinstance(result, Grant):
                self.release_unheard(session, result, False)

    async def close_session(self, session: SessionCore) -> bool:
        """Ends a session at the cluster, and what it holds; belief ends before the request leaves.
        Says whether the cluster has answered; if not, the session ends by its TTL."""
        session.lose(Loss(LossKind.CLOSED))
        # Where an interrupt has come into that: whatever was left, nothing is kept alive.
        with self._lock:
            self._sessions.pop(session.number, None)
        request = sessions_pb2.CloseRequest(session=session.handle())
        deadline = self.transport.deadline()
        try:
            await Wait(self.transport.call("close", request, Mode.PROMPT, deadline))
        except Refused as refusal:
            if refusal.reason != "SESSION_EXPIRED":
                log.debug("session %d was not closed, it will expire: %s", session.number, refusal)
                return False
        except RingfenceError as error:
            log.debug("session %d was not closed, it will expire: %s", session.number, error)
            return False
        self.endings.session_over(session)
        return True

    def close_in_background(self, session: SessionCore) -> None:
        """The same without a caller that waits."""
        spawn(self.close_session(session))

    def close_soon(self, session: SessionCore) -> None:
        """The same on the timer thread, for a caller that was interrupted."""
        self.leave(lambda: self.close_in_background(session))

    async def read(self, request: str, body: Any) -> Any:
        """Asks something that changes nothing."""
        self.check_usable()
        deadline = self.transport.deadline()
        reply = await Wait(self.transport.call(request, body, Mode.PROMPT, deadline))
        return reply.body

    async def close(self) -> None:
        """Closes all sessions of this client and ends its threads."""
        if os.getpid() != self.pid or self.is_stopped:
            return
        self.closed = True
        try:
            closing = [spawn(self.close_session(session)) for session in self.sessions()]
            for future in closing:
                await Wait(future)
        finally:
            self.stop()

    def stop(self) -> None:
        """Ends the threads."""
        self.closed = self.is_stopped = True
        self.transport.stop()
        self._hooks.put(_NO_MORE_HOOKS)

    def join(self) -> None:
        """Waits for a moment until the threads have ended."""
        if os.getpid() == self.pid:
            until = _clock.now() + THREADS_END
            for thread in self.transport.threads():
                thread.join(max(0.0, seconds(until - _clock.now())))


def _close_unwanted(opening: Opening) -> None:
    if opening.opened and not opening.settled:
        opening.settled = True
        opening.core.close_in_background(opening.session)


def _apply_keep_alive(
    reply: sessions_pb2.KeepAliveResponse, sent: int, batch: list[tuple[SessionCore, list[int]]]
) -> None:
    ended = {state.session: state for state in reply.ended}
    lost = {losses.session: losses for losses in reply.lost}
    untold = set(reply.untold)
    for session, acknowledged in batch:
        number = session.number
        end = ended.get(number)
        if end is not None:
            if end.reason == types_pb2.REASON_UNAUTHENTICATED:
                # The session lives until its window ends; the client asks again, with another token
                # perhaps.
                session.client.options.credential.refused()
            elif end.reason in (types_pb2.REASON_WRONG_SECRET, types_pb2.REASON_PERMISSION_DENIED):
                session.lose(Loss(LossKind.WRONG_SECRET))
            else:
                session.lose(Loss(LossKind.SESSION_ENDED, cause_text(end.cause)))
            continue
        # What was lost first, then what the reply extends: nothing for the lost.
        if number in lost:
            for grant in lost[number].grants:
                why = Loss(LossKind.GRANT_ENDED, cause_text(grant.cause))
                session.grant_lost(grant.token, why)
        # It may have lost anything: nothing is extended, and it asks again at once.
        if number in untold:
            session.ask_soon()
            continue
        session.acknowledge(sent, acknowledged)


def _acquire_error(session: SessionCore, name: str, refusal: Refused) -> RingfenceError:
    """Sorts a refusal for the caller."""
    if refusal.reason == "WAIT_TIMEOUT":
        return AcquireTimeout(f"{name} was not granted within the wait")
    if refusal.reason == "ENDED":
        token = refusal.number("token")
        if token:
            session.forget_grant(token)
        return LeaseLost(Loss(LossKind.GRANT_ENDED, refusal.details.get("cause", "")), f"{name}#{token}")
    if refusal.reason in ("SESSION_EXPIRED", "WRONG_SECRET"):
        return SessionLost(session.loss() or Loss(LossKind.SESSION_ENDED))
    return refusal
