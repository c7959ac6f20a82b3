"""Ringfence: leases with fencing tokens that stop stale leaders.

    import ringfence

    with ringfence.connect(["127.0.0.1:7420"]) as client:
        with client.lock("jobs/x") as lease:
            lease.check()              # raises LeaseLost once the lease is lost
            write(lease.fence)         # the store's guard refuses a stale fence

`ringfence.aio` is the same for asyncio, `ringfence.guards` has guards for stores.

A lease is believed in for less than its session's TTL after the last keep-alive that was acknowledged
was *sent*, on a clock that counts suspend. `lease.check()` compares that with the clock itself, so a
program that was stopped, or starved the client's threads, learns of a loss and never believes falsely.
Times in arguments and results are seconds, as floats, unless a name says otherwise.
"""

from pkgutil import extend_path

# What a program has generated from /proto lies in a folder `ringfence` of its own: `ringfence.v1` is
# found there with this package installed as without it.
__path__ = extend_path(__path__, __name__)

from ringfence._client import Client, Lease, Session, connect
from ringfence._core import Transferred, unique_identity
from ringfence._credential import TLS
from ringfence._lease import Fence, LeaseInfo, Verdict
from ringfence._session import SessionState
from ringfence._version import VERSION as __version__
from ringfence.errors import (
    AccessDenied,
    AcquireTimeout,
    Blocked,
    ConnectError,
    GuardError,
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

__all__ = [
    "TLS",
    "AccessDenied",
    "AcquireTimeout",
    "Blocked",
    "Client",
    "ConnectError",
    "Fence",
    "GuardError",
    "Held",
    "InvalidRequest",
    "Lease",
    "LeaseInfo",
    "LeaseLost",
    "LimitReached",
    "Loss",
    "LossKind",
    "NotDone",
    "NotWaiting",
    "OutcomeUnknown",
    "Queued",
    "Refused",
    "RingfenceError",
    "Session",
    "SessionLost",
    "SessionState",
    "StaleToken",
    "Transferred",
    "Unavailable",
    "Verdict",
    "__version__",
    "connect",
    "unique_identity",
]
