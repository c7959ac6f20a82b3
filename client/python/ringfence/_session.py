"""What a client knows of one of its sessions: how long it may believe in it, what it holds, and which
request numbers are spent. The grants that it believes in, and every way in which belief ends.
"""

from __future__ import annotations

import enum
import os
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from ringfence import _clock
from ringfence._clock import NS_PER_MS, seconds
from ringfence._numbers import Kind, RequestNumbers
from ringfence._proto import types_pb2
from ringfence._waiting import Wait, log, new_future, settle
from ringfence._window import Extended, Window
from ringfence.errors import Loss, LossKind, Refused, Unavailable

if TYPE_CHECKING:
    from ringfence._core import ClientCore

# The most tokens remembered per session and kind.
TOKENS_MAX = 4_096
# The most losses that one keep-alive acknowledges for a session; further ones go with the next.
ACKNOWLEDGED_MAX = 4_096
# How often a caller looks whether a request number is free.
NUMBER_LOOK = 20 * NS_PER_MS

Hook = Callable[[Loss], object]

FORKED = Loss(LossKind.FORKED)


class SessionState(enum.Enum):
    """How a session stands."""

    LIVE = "live"
    # Half its window has passed without an acknowledged keep-alive.
    JEOPARDY = "jeopardy"
    LOST = "lost"


def interval(ttl: int) -> int:
    """The time between keep-alives: a third of the TTL less up to a twentieth of it, so that clients
    that started together do not stay together."""
    return ttl // 3 - int(ttl // 20 * random.random())


class Grant:
    """One grant of a lease, and whether this client believes in it. `over` is set once, and never
    changes again: a grant that was reported lost is never reported held again."""

    def __init__(self, wire: types_pb2.Grant) -> None:
        self.name: str = wire.name
        self.token: int = wire.token
        self.session: int = wire.session
        self.data: bytes = wire.data
        self.granted_unix_ms: int = wire.since_unix_ms
        # Why belief has ended; None while it has not. Read without a lock.
        self.over: Loss | None = None
        # The end of the session's window when belief ended. Keep-alives that are acknowledged later
        # move the session's window and not this.
        self.until = 0
        # Where this client gave it up: the cluster hears of it, whatever becomes of the caller.
        self.is_told = False
        self._hooks: list[Hook] = []
        self._wakers: set[Callable[[], object]] = set()
        self._lock = threading.RLock()
        self.ended: Future[Loss] = new_future()

    def end(self, why: Loss, until: int) -> list[Hook] | None:
        """Ends belief for ever; returns the hooks to call if it had not ended before."""
        with self._lock:
            if self.over is not None:
                return None
            self.until = until
            self.over = why
            hooks, self._hooks = self._hooks, []
            wakers, self._wakers = self._wakers, set()
        settle(self.ended, why)
        for wake in wakers:
            wake()
        return hooks

    def is_untold(self) -> bool:
        """This client gave it up, and was interrupted before it began to tell the cluster."""
        given_up = (LossKind.RELEASED, LossKind.REPORTED)
        return self.over is not None and self.over.kind in given_up and not self.is_told

    def wake_at_end(self, wake: Callable[[], object]) -> None:
        """Calls it when belief ends, from the thread that ends it, unless `wake_no_more` comes first.
        Whoever waits for hours leaves nothing behind here."""
        with self._lock:
            if self.over is None:
                self._wakers.add(wake)
                return
        wake()

    def wake_no_more(self, wake: Callable[[], object]) -> None:
        """It is of no use any more."""
        with self._lock:
            self._wakers.discard(wake)

    def hook(self, hook: Hook) -> bool:
        """Calls it when belief ends; says whether it has not ended yet."""
        with self._lock:
            if self.over is None:
                self._hooks.append(hook)
                return True
        return False


class Losses:
    """Which grants of a session were lost, by token, and of which of them the cluster hears back.

    A loss is acknowledged only of grants that were made at this client's own wish, and only when
    belief in them has ended: the cluster lets the next holder in as soon as it has heard."""

    def __init__(self) -> None:
        # Listed as lost. An acquire whose answer brings one of these brings nothing.
        self._gone: dict[int, None] = {}
        # Granted to this client, which does not believe in them, by its own doing.
        self._given_up: dict[int, None] = {}
        # Not believed in any more, and the cluster has not heard so.
        self._acknowledge: dict[int, None] = {}

    def listed(self, token: int) -> bool:
        """The cluster lists this one; says whether this client had given it up before."""
        _remember(self._gone, token)
        return self._given_up.pop(token, self) is None

    def has_listed(self, token: int) -> bool:
        return token in self._gone

    def give_up(self, token: int) -> None:
        """This client was granted this one, and does not believe in it any more, or never has."""
        _remember(self._given_up, token)

    def take_back(self, token: int) -> None:
        """It believes in this one after all."""
        self._given_up.pop(token, None)

    def acknowledge(self, token: int) -> None:
        """The cluster is to hear that belief in this one has ended."""
        self._acknowledge[token] = None

    def to_acknowledge(self) -> list[int]:
        return list(self._acknowledge)[:ACKNOWLEDGED_MAX]

    def acknowledged(self, tokens: list[int]) -> None:
        """The cluster has heard it."""
        for token in tokens:
            self._acknowledge.pop(token, None)


def _remember(tokens: dict[int, None], token: int) -> None:
    """Forgets the oldest for it if there are too many."""
    tokens[token] = None
    if len(tokens) > TOKENS_MAX:
        del tokens[next(iter(tokens))]


class SessionCore:
    """One session, as long as this client has to do with it."""

    def __init__(
        self, client: ClientCore, number: int, secret: bytes, ttl: int, sent: int, identity: str
    ) -> None:
        self.client = client
        self.transport = client.transport
        self.number = number
        self.identity = identity
        self._secret = secret
        self.ttl = ttl
        self.window = Window(ttl, sent)
        # Why it is over; None while it is not. Set once, read without a lock.
        self.lost: Loss | None = None
        self.state = SessionState.LIVE
        self.jeopardy_hooks: list[Callable[[float], object]] = []
        self.ended: Future[Loss] = new_future()
        self._pid = client.pid
        self._lock = threading.RLock()
        self._numbers = RequestNumbers()
        self._grants: dict[int, Grant] = {}
        self._losses = Losses()
        self._due = sent + interval(ttl)
        # Keep-alives sent since the last acknowledgement.
        self._unanswered = 0

    def __repr__(self) -> str:
        return f"<session {self.number} {self.state.value}>"

    def handle(self) -> types_pb2.SessionHandle:
        """What proves its requests. It is in no repr, no message and no log line."""
        return types_pb2.SessionHandle(session=self.number, secret=self._secret)

    # What is believed.

    def loss(self) -> Loss | None:
        """Why the session is over, if it is. Asks the clock: a window that has passed is lost here
        and now, by the caller that looks first, whatever the threads of the client have done."""
        if os.getpid() != self._pid:
            return FORKED
        if self.lost is not None:
            return self.lost
        if not self.window.has_passed(_clock.now()):
            return None
        self.lose(Loss(LossKind.WINDOW_PASSED))
        # The first cause is the one that every caller sees.
        return self.lost

    def loss_of(self, grant: Grant) -> Loss | None:
        """Why a grant is not held, if it is not."""
        if os.getpid() != self._pid:
            return FORKED
        return grant.over or self.loss()

    def valid_until_of(self, grant: Grant) -> int:
        """When belief in a grant ends, or would have ended had it not been lost before."""
        return grant.until if grant.over is not None else self.window.valid_until

    def lose(self, why: Loss) -> bool:
        """Ends the session for this client, for ever, and belief in all it holds. Says whether it
        was not over before."""
        with self._lock:
            if self.lost is not None:
                return False
            # From here on `admit` refuses grants, under the same lock.
            self.lost = why
            self.state = SessionState.LOST
            grants, self._grants = list(self._grants.values()), {}
            until = self.window.valid_until
        level = log.debug if why.is_own_doing else log.warning
        level("session %d ends with %d leases: %s", self.number, len(grants), why)
        # Outside the lock: ending a grant wakes threads that may ask for the session's loss at once.
        ended = [grant for grant in grants if self._end(grant, why, until)]
        settle(self.ended, why)
        self.client.session_over(self, why, ended)
        return True

    def _end(self, grant: Grant, why: Loss, until: int) -> bool:
        hooks = grant.end(why, until)
        if hooks is None:
            return False
        if not why.is_own_doing:
            for hook in hooks:
                self.client.call_hook(hook, why)
        return True

    def admit(self, grant: Grant) -> Loss | None:
        """Begins to believe in a grant, unless it or the session was lost meanwhile: then the cluster
        may still grant it, and the loss is returned."""
        loss = self.loss()
        with self._lock:
            loss = loss or self.lost
            if loss is None and self._losses.has_listed(grant.token):
                loss = Loss(LossKind.GRANT_ENDED)
            if loss is None:
                self._grants[grant.token] = grant
                return None
        # Noted as an ending, so that it is released before the name is acquired again.
        self.forget_grant(grant.token)
        self.client.endings.note_release(self, grant.name, grant.token)
        return loss

    def forget_grant(self, token: int) -> None:
        """A grant was made at this client's own wish, and it has not begun to believe in it. If its
        loss is listed, or was before, that is acknowledged."""
        with self._lock:
            listed = self._losses.has_listed(token)
            if listed:
                self._losses.acknowledge(token)
                self._renew_now()
            else:
                self._losses.give_up(token)
        if listed:
            self.transport.wake()

    def grant_lost(self, token: int, why: Loss) -> None:
        """The cluster lists a grant that ended against the session's will. Belief in it ends before
        this returns."""
        with self._lock:
            until = self.window.valid_until
            grant = self._grants.pop(token, None)
            # Listed, and not believed in here: either it was given up, then the loss is acknowledged
            # at once; or the answer of its acquire is on its way, then `admit` finds it listed.
            if self._losses.listed(token) and grant is None:
                self._losses.acknowledge(token)
                self._renew_now()
        if grant is not None:
            log.warning("lease %s#%d lost: %s", grant.name, token, why)
            # First the end of belief, then the acknowledgement: the cluster lets the next holder in
            # as soon as it has heard.
            self._end(grant, why, until)
            with self._lock:
                self._losses.acknowledge(token)
                self._renew_now()

    def end_belief(self, grant: Grant, why: Loss) -> bool:
        """Ends belief in a grant that is about to be released or handed over. Of two callers only
        one is the first."""
        first = self._end(grant, why, self.window.valid_until)
        if first:
            with self._lock:
                self._grants.pop(grant.token, None)
                self._losses.give_up(grant.token)
        return first

    def take_back(self, token: int) -> None:
        """It has not given this grant up after all."""
        with self._lock:
            self._losses.take_back(token)

    # Keep-alives.

    def poll(self, now: int) -> tuple[int, int] | None:
        """Looks at the clock: warns, or ends the session. Returns when to look again, and when the
        next keep-alive is due; None once it is over."""
        jeopardy = False
        with self._lock:
            if self.lost is not None:
                return None
            over = now >= self.window.leave_at
            if not over:
                jeopardy = self._look(now)
                at = self.window.jeopardy_at
                look = at if now < at else self.window.leave_at
                due = self._due
        if over:
            self.lose(Loss(LossKind.WINDOW_PASSED))
            return None
        if jeopardy:
            left = seconds(self.window.valid_until - now)
            log.warning("session %d is in jeopardy: %.2f s are left", self.number, left)
            for hook in list(self.jeopardy_hooks):
                self.client.call_hook(hook, left)
        return look, due

    def _look(self, now: int) -> bool:
        """Sets the state by the clock; says whether jeopardy has begun."""
        before = self.state
        live = now < self.window.jeopardy_at
        self.state = SessionState.LIVE if live else SessionState.JEOPARDY
        return before is SessionState.LIVE and not live

    def join_keep_alive(self, now: int) -> list[int] | None:
        """The losses that the keep-alive acknowledges which is about to be sent; None if the session
        has no part in it. Sessions that are due soon join in, so that one message serves all."""
        with self._lock:
            soon = self.ttl // 10 if self._unanswered == 0 else 0
            if self.lost is not None or self._due > now + soon:
                return None
            # Again after a twentieth of the TTL, then after twice as long each time.
            again = max(self.ttl // 20, NS_PER_MS)
            self._due = now + (again << min(self._unanswered, 2))
            self._unanswered += 1
            return self._losses.to_acknowledge()

    def acknowledge(self, sent: int, heard: list[int]) -> None:
        """A keep-alive was acknowledged that was first sent at `sent`, with the losses that it
        acknowledged, and what it reported of losses is known here. Nothing else stretches belief."""
        with self._lock:
            self._losses.acknowledged(heard)
            if self.lost is not None:
                return
            now = _clock.now()
            extended = self.window.extend(sent, now)
            if extended is Extended.LATER:
                # What is due now was asked for since, and is no matter of this answer.
                if self._due > now:
                    self._due = sent + interval(self.ttl)
                    self._unanswered = 0
                if self._losses.to_acknowledge():
                    self._due = now
                self._look(now)
        # The cluster has renewed the session, but threads may have asked the clock after the
        # window's end and got a no. Loss is final.
        if extended is Extended.TOO_LATE:
            self.lose(Loss(LossKind.WINDOW_PASSED))

    def renew_now(self) -> None:
        """A keep-alive is due now."""
        with self._lock:
            self._renew_now()

    def ask_soon(self) -> None:
        """A keep-alive is due after a moment: the cluster has more to tell. The pause keeps one that
        says so again and again from being asked without end."""
        with self._lock:
            self._due = min(self._due, _clock.now() + NS_PER_MS)

    def _renew_now(self) -> None:
        self._due, self._unanswered = _clock.now(), 0

    # Request numbers.

    async def next_number(self, kind: Kind, deadline: int, taken: list[int]) -> tuple[int, int]:
        """The next request number, which is added to `taken`, and the lowest unconfirmed one; waits
        while too many are unconfirmed, and raises Unavailable at the deadline. The caller confirms what
        is in `taken`, also if this is interrupted."""
        while True:
            with self._lock:
                numbers = self._numbers.take(kind, taken)
            if numbers is not None:
                return numbers
            if self.client.is_stopped:
                raise Unavailable("the client is closed")
            now = _clock.now()
            if now >= deadline:
                raise Unavailable(
                    "too many requests of this session are unanswered; its oldest one holds the "
                    "others up, use another session beside long waits"
                )
            await Wait(self.transport.sleep_until(min(deadline, now + NUMBER_LOOK)))

    def confirm(self, number: int) -> None:
        """The request with this number is answered for good."""
        with self._lock:
            self._numbers.confirm(number)

    def apply_refusal(self, refusal: Refused) -> None:
        """Takes what a refusal says about the session itself."""
        if refusal.reason == "SESSION_EXPIRED":
            self.lose(Loss(LossKind.SESSION_ENDED, refusal.details.get("cause", "")))
        elif refusal.reason == "WRONG_SECRET":
            self.lose(Loss(LossKind.WRONG_SECRET))
        elif refusal.reason == "UNAUTHENTICATED":
            self.client.options.credential.refused()
        elif refusal.reason == "STALE_REQUEST":
            with self._lock:
                self._numbers.skip_to(refusal.number("lowest") or 0)


def cause_text(cause: Any) -> str:
    """Why a grant or a session ended, for people: "revoked by alice: drill"."""
    kind = type(cause).Kind.Name(cause.kind) if cause.kind in type(cause).Kind.values() else ""
    if not kind or kind == "KIND_UNSPECIFIED":
        return ""
    text: str = kind.lower().replace("_", " ")
    if cause.operator:
        text += f" by {cause.operator}"
    if cause.reason:
        text += f": {cause.reason}"
    return text
