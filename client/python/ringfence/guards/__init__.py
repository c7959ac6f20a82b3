"""Guards for data in SQL stores: mark and data change in one transaction.

A guard is bound to one lease name. A transaction admits the holder's fence first: that writes the
mark, also when it is equal, and a smaller token is refused. A new holder calls `advance` before its
first read. What is refused raises an error of this module, nothing of the transaction is committed,
and after `StaleFence` the lease is lost.

    ringfence.guards.psycopg       PostgreSQL 12 and later, by psycopg 3 (extra `psycopg`)
    ringfence.guards.sqlalchemy    PostgreSQL and SQLite, by SQLAlchemy 2 (extra `sqlalchemy`)

The SQL is that of the guards in Rust: services in any language share one mark. The rules, and what
a store itself can lose, are in the documentation of the crate `ringfence-guard`.
"""

from __future__ import annotations

import re
import time
from importlib import resources

from ringfence._lease import Fence, LeaseBase
from ringfence.errors import GuardError

__all__ = [
    "FenceRefused",
    "GuardError",
    "MalformedFence",
    "NotFirst",
    "StaleFence",
    "TokenTooHigh",
    "TransactionEnded",
    "WrongLease",
    "migration",
]

# Greater tokens than (now + a day) * 2^20, with now in seconds since 1970, were made up.
CEILING_SECONDS = 86_400
CEILING_SHIFT = 20


# A cluster whose tokens follow the clock grants none below it: that would be the year 1970.
_COUNTED_FROM_ONE = 1 << 40
_NEW_CLUSTER = (
    ". If the cluster still has that grant, it counts tokens from 1, as each new `ringfence dev` does, "
    "and the store has marks of an earlier cluster: use an empty store, or keep the cluster with "
    "`ringfence dev --data-dir DIR`"
)


class FenceRefused(GuardError):
    """The guard refused the fence; nothing was written."""


class StaleFence(FenceRefused):
    """A later grant has been here: stop the work, the lease is lost. Final."""


class WrongLease(FenceRefused):
    """The fence is of another lease than the guard."""


class MalformedFence(FenceRefused):
    """No fence was shown, or none with a lease name and a token of 1 to 2^63 - 1."""


class TokenTooHigh(FenceRefused):
    """The token lies more than a day ahead of the clock: it was made up, or the clock is wrong. It
    does not say that the lease is lost."""


class NotFirst(GuardError):
    """A transaction was open already, and what it has read may be older than the mark."""


class TransactionEnded(GuardError):
    """The transaction in which the fence was admitted had ended before its commit: by a COMMIT, ROLLBACK or
    PREPARE TRANSACTION that was sent as text or by the driver, or by SQLite itself at an error that the block
    overlooked. What came before a COMMIT is committed, under the fence. What came behind the end was refused
    or rolled back, unless it was committed by a text of its own: look at the data, and do not repeat the block.
    It stands in place of the block's own error."""

    def __init__(self) -> None:
        super().__init__(
            "TRANSACTION_ENDED: the transaction in which the fence was admitted had ended before its commit; leave "
            "COMMIT, ROLLBACK and PREPARE TRANSACTION out of guarded work, and stop at the first error of a statement"
        )


_REFUSALS: dict[str, type[FenceRefused]] = {
    "RF001": StaleFence,
    "RF002": WrongLease,
    "RF003": MalformedFence,
    "RF004": MalformedFence,
    "RF006": TokenTooHigh,
}
_BY_MESSAGE: dict[str, type[FenceRefused]] = {"STALE_TOKEN": StaleFence}


def migration(store: str) -> str:
    """The SQL that makes the table of marks, "postgres" or "sqlite": for a service's migrations.
    Running it again changes nothing."""
    if store not in ("postgres", "sqlite"):
        raise ValueError(f"no migration for {store!r}; there are postgres and sqlite")
    return (resources.files(__name__) / "sql" / f"{store}.sql").read_text(encoding="utf-8")


def fence_of(lease: LeaseBase | Fence, name: str) -> Fence:
    """The fence that is shown to the guard of `name`. A lease that is lost raises LeaseLost before
    anything is sent."""
    if isinstance(lease, LeaseBase):
        lease.check()
    fence = lease.fence if isinstance(lease, LeaseBase) else lease
    if fence.name != name:
        raise WrongLease(f"the fence is of lease {fence.name!r}, but this is guarded by {name!r}")
    return fence


def refusal_of(sqlstate: str | None, message: str) -> FenceRefused | None:
    """What an error of a store says, if it is a refusal of a guard."""
    kind = _REFUSALS.get(sqlstate or "")
    if kind is None:
        found = re.search(r"\b(STALE_TOKEN): ", message)
        kind = _BY_MESSAGE.get(found.group(1)) if found else None
    return kind(message.split("\n")[0]) if kind is not None else None


def raise_refused(refusal: FenceRefused, lease: LeaseBase | Fence, cause: BaseException) -> None:
    """Raises it. If the token is stale, belief in the lease has ended before."""
    if isinstance(refusal, StaleFence):
        fence = lease.fence if isinstance(lease, LeaseBase) else lease
        if fence.token < _COUNTED_FROM_ONE:
            refusal = StaleFence(f"{refusal}{_NEW_CLUSTER}")
        if isinstance(lease, LeaseBase):
            lease.report_stale()
    raise refusal from cause


def ceiling() -> int:
    """The greatest token that raises a mark, by this machine's clock."""
    return (int(time.time()) + CEILING_SECONDS) << CEILING_SHIFT
