"""What a lease and a session are to threads and to event loops alike."""

from __future__ import annotations

import enum
import math
import os
import re
import warnings
from dataclasses import dataclass
from typing import Any

from ringfence import _clock
from ringfence._clock import seconds
from ringfence._core import Claim, ClientCore, Opening, checked_name
from ringfence._proto import leases_pb2
from ringfence._session import Grant, Hook, SessionCore, SessionState
from ringfence.errors import InvalidRequest, LeaseLost, Loss, SessionLost

TOKEN_MAX = 2**63 - 1
_FENCE = re.compile(r"(.*)#([1-9][0-9]{0,18})\Z", re.DOTALL)


@dataclass(frozen=True)
class Fence:
    """What a holder shows to a guard: lease name and token, in text `NAME#TOKEN`."""

    name: str
    # 1 to 2^63 - 1; greater than that of every grant before it.
    token: int

    def __post_init__(self) -> None:
        checked_name(self.name)
        if not isinstance(self.token, int) or isinstance(self.token, bool):
            raise InvalidRequest(f"the token {self.token!r} is no integer; a token is 1 to {TOKEN_MAX}")
        if not 1 <= self.token <= TOKEN_MAX:
            raise InvalidRequest(f"the token {self.token} is out of range; a token is 1 to {TOKEN_MAX}")

    @classmethod
    def parse(cls, text: str) -> Fence:
        """From its text; raises InvalidRequest."""
        found = _FENCE.match(text)
        if found is None:
            raise InvalidRequest(f"{text[:64]!r} is no fence; a fence is NAME#TOKEN")
        return cls(found.group(1), int(found.group(2)))

    def __str__(self) -> str:
        return f"{self.name}#{self.token}"


class Verdict(enum.Enum):
    """What a token is worth at an instant. Advice: exclusion is a guard inside the store."""

    CURRENT = "the grant is in force"
    SUPERSEDED = "a later grant of that name is known"
    ENDED = "it was granted and has ended, or is so old that no more is known"
    UNKNOWN = "greater than any token that the cluster granted"


@dataclass(frozen=True)
class LeaseInfo:
    """A lease as a reader sees it."""

    name: str
    # The session that holds it, and its grant; None if no session holds it.
    holder: int | None
    identity: str
    token: int | None
    data: bytes
    # Seconds of cluster time left to the holder's session unless it is kept alive.
    remaining: float
    # How many wait.
    waiters: int
    # The greatest token ever granted for this name; 0: none.
    floor: int
    # Seconds for which no session is granted the lease: lock-delay, or a revoke.
    blocked: float

    @classmethod
    def of_wire(cls, lease: Any) -> LeaseInfo:
        held = lease.HasField("holder")
        return cls(
            name=lease.name,
            holder=lease.holder.session if held else None,
            identity=lease.holder.identity,
            token=lease.holder.token if held else None,
            data=lease.holder.data,
            remaining=lease.remaining_ms / 1_000,
            waiters=lease.waiters,
            floor=lease.floor,
            blocked=lease.blocked_ms / 1_000,
        )


class LeaseBase:
    """A lease that is held, until it is lost or given up. Its checks need no network and no other
    thread: they ask the clock."""

    def __init__(
        self, session: SessionCore, grant: Grant, owns_session: bool, claim: Claim | None = None
    ) -> None:
        self._session = session
        # Its session was opened for it alone, and is closed with it.
        self._owns_session = owns_session
        # Another lease object has its session now.
        self._passed_on = False
        # From here on the finalizer gives it back.
        self._grant = grant
        if claim is not None:
            claim.settled = True

    @property
    def _core(self) -> ClientCore:
        return self._session.client

    @property
    def name(self) -> str:
        """The name of the lease."""
        return self._grant.name

    @property
    def token(self) -> int:
        """The fencing token of this grant: greater than those of all grants before it."""
        return self._grant.token

    @property
    def fence(self) -> Fence:
        """What a guard wants to see."""
        return Fence(self._grant.name, self._grant.token)

    @property
    def session_id(self) -> int:
        """The number of the session that holds it; not a secret."""
        return self._grant.session

    @property
    def data(self) -> bytes:
        """What was published with the grant; at most 1 KiB."""
        return self._grant.data

    @property
    def granted_unix_ms(self) -> int:
        """When the cluster granted it, by its wall clock, in milliseconds: for people, it decides
        nothing."""
        return self._grant.granted_unix_ms

    @property
    def loss(self) -> Loss | None:
        """Why the lease is lost; None while it is held. Asks the clock each time."""
        return self._session.loss_of(self._grant)

    @property
    def is_valid(self) -> bool:
        """Whether the lease is held at this instant. Once it has said no it never says yes again."""
        return self.loss is None

    def check(self) -> None:
        """Raises `LeaseLost` if the lease is not held at this instant.

        It reads the clock and compares it with the end of the window: it is right also if no thread
        of this client has run since, as in a program that was stopped or did not let go of the GIL.
        It says nothing about a moment later: exclusion is a guard inside the store."""
        loss = self.loss
        if loss is not None:
            raise LeaseLost(loss, f"{self.name}#{self.token}")

    @property
    def remaining(self) -> float:
        """Seconds for which the lease is held unless a keep-alive extends it; 0 once it is lost.
        Work must have stopped by then."""
        until = self._session.valid_until_of(self._grant)
        if self.loss is not None:
            return 0.0
        return max(0.0, seconds(until - _clock.now()))

    @property
    def in_jeopardy(self) -> bool:
        """Whether half the window has passed without an acknowledged keep-alive."""
        return self.is_valid and _clock.now() >= self._session.window.jeopardy_at

    def report_stale(self) -> None:
        """Says that a guard refused this grant's token: the lease is lost, for ever, and released.
        The guards of this package do this automatically."""
        try:
            self._core.report_stale(self._session, self._grant)
        except BaseException:
            self._go_on()
            raise

    def _go_on(self) -> None:
        """An interrupt has come at whatever line of what gives the lease up. A variable may refer to the
        lease for long, so the finalizer is not enough: the client's thread does the rest now."""
        session, grant, core, owns = self._session, self._grant, self._core, self._owns_session
        core.leave(lambda: core.release_unheard(session, grant, owns))

    def _add_hook(self, hook: Hook) -> None:
        self._core.check_usable()
        if not self._grant.hook(hook):
            loss = self.loss
            if loss is not None and not loss.is_own_doing:
                self._core.call_hook(hook, loss)

    def __repr__(self) -> str:
        loss = self.loss
        return f"<lease {self.name}#{self.token} {'held' if loss is None else loss.kind.name}>"

    def __del__(self) -> None:
        # A lease that no variable holds cannot be checked: it is released. A finalizer may run at any
        # point, also within a lock of the client, so it takes none: the client's thread does the work.
        grant = getattr(self, "_grant", None)
        if grant is None or os.getpid() != self._session.client.pid:
            return
        session, core = self._session, self._session.client
        owns = self._owns_session and not self._passed_on and session.lost is None
        if grant.over is not None and not owns and not grant.is_untold():
            return
        core.leave(lambda: core.release_unheard(session, grant, owns))
        if grant.over is None and not session.window.has_passed(_clock.now()):
            text = f"lease {grant.name}#{grant.token} was dropped while it was held"
            warnings.warn(text, ResourceWarning, stacklevel=2)


class SessionBase:
    """A session: one keep-alive renews all leases that it holds."""

    def __init__(self, opening: Opening) -> None:
        self._session = opening.session
        opening.settled = True

    @property
    def id(self) -> int:
        """Its number; not a secret."""
        return self._session.number

    @property
    def identity(self) -> str:
        """Who it says it is, for people."""
        return self._session.identity

    @property
    def ttl(self) -> float:
        """Seconds for which it outlives its last acknowledged keep-alive, at least."""
        return seconds(self._session.ttl)

    @property
    def loss(self) -> Loss | None:
        """Why it is over; None while it is not. Asks the clock each time."""
        return self._session.loss()

    @property
    def state(self) -> SessionState:
        """How it stands. Asks the clock each time."""
        if self._session.loss() is not None:
            return SessionState.LOST
        jeopardy = _clock.now() >= self._session.window.jeopardy_at
        return SessionState.JEOPARDY if jeopardy else SessionState.LIVE

    def check(self) -> None:
        """Raises `SessionLost` if it is over."""
        loss = self.loss
        if loss is not None:
            raise SessionLost(loss)

    def __repr__(self) -> str:
        return repr(self._session)


def limit_of(wait: float | None) -> float | None:
    """How long `lock` waits; raises InvalidRequest."""
    if wait is None or wait == math.inf:
        return None
    if not wait >= 0:
        raise InvalidRequest(f"the wait is {wait} s; expected 0 or more, or None for ever")
    return wait


def get_request(name: str) -> Any:
    return leases_pb2.GetRequest(name=checked_name(name))


def check_request(fence: Fence) -> Any:
    return leases_pb2.CheckRequest(name=fence.name, token=fence.token)


def verdict_of(reply: Any) -> Verdict:
    """What a reply to Check says; one that this version does not know is ENDED: not current."""
    names = leases_pb2.CheckResponse.Verdict
    name = names.Name(reply.verdict) if reply.verdict in names.values() else ""
    return Verdict.__members__.get(name, Verdict.ENDED)


