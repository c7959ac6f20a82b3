"""What can go wrong, as exceptions.

    RingfenceError
    ├── ConnectError                no member can be used; see its message
    ├── InvalidRequest (ValueError) this client refused to send it: a malformed name, for example
    ├── NotDone                     the cluster surely did not do it
    │   ├── Unavailable             no member carried it out within the request timeout
    │   ├── AcquireTimeout (TimeoutError)  the wait is over and brought no grant
    │   └── Refused                 the cluster refused it; `reason`, `details`, `retry_after`
    │       ├── Held                a session holds the lease
    │       ├── Queued              no session holds it, but others wait for it
    │       ├── Blocked             lock-delay, a revoke that its holder may not know, a restore
    │       ├── StaleToken          the token is not that of the grant in force
    │       ├── NotWaiting          the target of a hand-over does not wait for the lease
    │       ├── LimitReached        a limit of the cluster is reached
    │       └── AccessDenied        the credential proves nothing, or no rule allows it
    ├── OutcomeUnknown              it may have been done, or may still be
    ├── LeaseLost                   the lease or its session is no longer held; `loss`
    │   └── SessionLost
    └── GuardError                  a guard in a store refused; see `ringfence.guards`

"Not done" is a promise: it is raised only if no try of the request was sent, or each was refused by
a member. Everything else that leaves a request without an answer is `OutcomeUnknown`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class LossKind(enum.Enum):
    """Why a lease is no longer held."""

    WINDOW_PASSED = "no keep-alive was acknowledged within the session's window"
    SESSION_ENDED = "the session has ended at the cluster"
    GRANT_ENDED = "the grant has ended against the session's will"
    WRONG_SECRET = "the cluster says that the session is not this client's"
    CLUSTER_CHANGED = "the endpoints belong to another cluster now"
    REPORTED = "a guard refused its token"
    FORKED = "this process was forked from the holder, which holds the lease alone"
    CLOSED = "this client closed the session"
    RELEASED = "this client gave the lease up"


_OWN_DOING = (LossKind.CLOSED, LossKind.RELEASED)


@dataclass(frozen=True)
class Loss:
    """Why a lease is no longer held, or a session is over. It is final: what was once reported lost
    is never reported held again."""

    kind: LossKind
    # What the cluster says of the cause, "revoked by alice: drill" for example; empty if nothing.
    cause: str = ""

    @property
    def is_own_doing(self) -> bool:
        """Whether this client itself gave it up, by a release, a hand-over or a close."""
        return self.kind in _OWN_DOING

    def __str__(self) -> str:
        return f"{self.kind.value} ({self.cause})" if self.cause else self.kind.value


class RingfenceError(Exception):
    """All errors of this package."""


class ConnectError(RingfenceError):
    """No client could be made of these settings, or no member answered in time."""


class InvalidRequest(RingfenceError, ValueError):
    """This client refused to send it. Nothing was done."""


class NotDone(RingfenceError):
    """The cluster surely did not do it, and will not."""


class OutcomeUnknown(RingfenceError):
    """It may have been done, or may still be. An acquire is cancelled in the background, and a
    release repeated there, as long as the session lives."""


class Unavailable(NotDone):
    """No member carried it out within the request timeout: none was reached, or none led."""


class AcquireTimeout(NotDone, TimeoutError):
    """The wait is over and brought no grant. No place in the queue is left behind."""


class Refused(NotDone):
    """The cluster refused it."""

    def __init__(
        self,
        reason: str,
        message: str,
        details: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{reason}: {message}")
        # The reason as the protocol writes it, "STALE_TOKEN" for example.
        self.reason = reason
        self.message = message
        # What the protocol says for that reason, "token" for example.
        self.details: dict[str, str] = dict(details or {})
        # Seconds after which another try makes sense; None: no advice.
        self.retry_after = retry_after

    def number(self, key: str) -> int | None:
        """A detail that is a number; None if it is not there."""
        try:
            return int(self.details[key])
        except (KeyError, ValueError):
            return None

    def __reduce__(self) -> tuple[type[Refused], tuple[object, ...]]:
        return type(self), (self.reason, self.message, self.details, self.retry_after)


class Held(Refused):
    """A session holds the lease."""

    @property
    def holder(self) -> int | None:
        """The number of the session that holds it; None if this caller may not know it."""
        return self.number("holder")

    @property
    def identity(self) -> str:
        """Who the holder says it is; empty if this caller may not know it."""
        return self.details.get("identity", "")

    @property
    def token(self) -> int | None:
        """The token of its grant; None if this caller may not know it."""
        return self.number("token")

    @property
    def mine(self) -> bool:
        """Whether it is the very session that asked."""
        return self.details.get("mine") == "true"


class Queued(Refused):
    """No session holds the lease, but others wait for it: wait too."""


class Blocked(Refused):
    """The lease is granted to no session now; `reason` is LOCK_DELAY, REVOKING or QUIET_TIME, and
    `retry_after` says how many seconds that lasts at most, where known."""


class StaleToken(Refused):
    """The token is not that of the grant in force, or the grant is another session's."""


class NotWaiting(Refused):
    """The target of a hand-over does not wait for the lease."""

    # The lease that was not handed over, held again as another object; release it or go on with it.
    lease: Any = None


class LimitReached(Refused):
    """A limit of the cluster is reached; `details` has `limit` and `max`."""


class AccessDenied(Refused):
    """The credential proves nothing, or no rule allows it; `details` say which rule would."""


class LeaseLost(RingfenceError):
    """The lease is no longer held: stop the work. Final."""

    def __init__(self, loss: Loss, lease: str = "") -> None:
        super().__init__(f"{lease}: {loss}" if lease else str(loss))
        # Why it is no longer held.
        self.loss = loss
        # The fence of the lease, "jobs/x#42" for example; empty if there is none.
        self.lease = lease

    def __reduce__(self) -> tuple[type[LeaseLost], tuple[object, ...]]:
        return type(self), (self.loss, self.lease)


class SessionLost(LeaseLost):
    """The session is over, and with it every lease that it held."""


class GuardError(RingfenceError):
    """A guard in a store refused the fence, or was used wrongly; nothing was written."""
