"""The guard of data in PostgreSQL, by psycopg 3.

    from ringfence.guards.psycopg import PostgresGuard

    guard = PostgresGuard("bank/interest")
    guard.install(connection)                        # once per database, or with your migrations

    with client.lock("bank/interest") as lease:
        guard.advance(connection, lease)             # before the first read
        with guard.transaction(connection, lease):   # admits the fence first
            connection.execute("UPDATE balance SET amount = amount + 1")

`AsyncPostgresGuard` is the same for `psycopg.AsyncConnection`.

A guarded transaction keeps the mark to itself until it ends, and so does that of a holder that is
paused in the middle of it: the next holder's `advance` waits as long. Set
`idle_in_transaction_session_timeout` for the role that writes, to about the TTL of its sessions.
Serialization failures (SQLSTATE 40001, 40P01) say, as always, that the whole transaction is to be
repeated; a broken connection during the commit, that its outcome is not known.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from ringfence._core import checked_name
from ringfence._lease import Fence, LeaseBase
from ringfence.guards import NotFirst, fence_of, migration, raise_refused, refusal_of

_ADMIT = "SELECT ringfence.admit(%s::pg_catalog.text, %s::bigint)"
_ADVANCE = "SELECT ringfence.advance(%s::pg_catalog.text, %s::bigint)"
_MARK = "SELECT mark FROM ringfence.marks WHERE name OPERATOR(pg_catalog.=) %s::pg_catalog.text"


def _idle(connection: Any) -> None:
    status = connection.info.transaction_status
    if status != TransactionStatus.IDLE:
        raise NotFirst(
            f"the connection is in a transaction ({status.name}); the fence is admitted first in a "
            "transaction of its own: commit or roll back before"
        )
    if connection.info.pipeline_status:
        raise NotFirst(
            "the connection is in pipeline mode: what is sent behind the admission would run "
            "without it if it fails; leave the pipeline before"
        )


def _raise(error: psycopg.Error, lease: LeaseBase | Fence) -> None:
    refusal = refusal_of(error.sqlstate, str(error))
    if refusal is not None:
        raise_refused(refusal, lease, error)


class PostgresGuard:
    """A guard whose mark is a row beside the data, bound to the lease `name`."""

    def __init__(self, name: str) -> None:
        self.name = checked_name(name)

    @staticmethod
    def install(connection: psycopg.Connection[Any]) -> None:
        """Makes the schema `ringfence` with the table of marks and its functions. Running it again
        changes nothing; many may do so at a time."""
        with connection.transaction():
            connection.execute(migration("postgres").encode())

    @contextmanager
    def transaction(
        self, connection: psycopg.Connection[Any], lease: LeaseBase | Fence
    ) -> Iterator[psycopg.Connection[Any]]:
        """A transaction that admits the fence first; leaving the block commits it, an error rolls it
        back. COMMIT and ROLLBACK that are sent as text end what was admitted, and neither psycopg nor this
        guard sees it: leave the block instead.

        Raises `LeaseLost` before anything is sent if the lease is lost, `StaleFence` if a later grant
        has been here (belief in the lease has ended then), another `FenceRefused`, `NotFirst` if a
        transaction is open already, and what psycopg raises."""
        fence = fence_of(lease, self.name)
        _idle(connection)
        with connection.transaction():
            try:
                connection.execute(_ADMIT, (fence.name, fence.token))
            except psycopg.Error as error:
                _raise(error, lease)
                raise
            yield connection

    def advance(self, connection: psycopg.Connection[Any], lease: LeaseBase | Fence) -> None:
        """Says, in a transaction of its own, that this is the grant in force: once it has returned,
        every older token is refused. A new holder calls it before its first read of what is guarded.
        Waits for an open transaction of the former holder. Errors as for `transaction`."""
        fence = fence_of(lease, self.name)
        _idle(connection)
        try:
            with connection.transaction():
                connection.execute(_ADVANCE, (fence.name, fence.token))
        except psycopg.Error as error:
            _raise(error, lease)
            raise

    def mark(self, connection: psycopg.Connection[Any]) -> int | None:
        """The greatest token admitted so far; None if there is none. Advice for people."""
        row = connection.execute(_MARK, (self.name,)).fetchone()
        return None if row is None else int(row[0])


class AsyncPostgresGuard:
    """`PostgresGuard` for `psycopg.AsyncConnection`."""

    def __init__(self, name: str) -> None:
        self.name = checked_name(name)

    @staticmethod
    async def install(connection: psycopg.AsyncConnection[Any]) -> None:
        """See `PostgresGuard.install`."""
        async with connection.transaction():
            await connection.execute(migration("postgres").encode())

    @asynccontextmanager
    async def transaction(
        self, connection: psycopg.AsyncConnection[Any], lease: LeaseBase | Fence
    ) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """See `PostgresGuard.transaction`."""
        fence = fence_of(lease, self.name)
        _idle(connection)
        async with connection.transaction():
            try:
                await connection.execute(_ADMIT, (fence.name, fence.token))
            except psycopg.Error as error:
                _raise(error, lease)
                raise
            yield connection

    async def advance(
        self, connection: psycopg.AsyncConnection[Any], lease: LeaseBase | Fence
    ) -> None:
        """See `PostgresGuard.advance`."""
        fence = fence_of(lease, self.name)
        _idle(connection)
        try:
            async with connection.transaction():
                await connection.execute(_ADVANCE, (fence.name, fence.token))
        except psycopg.Error as error:
            _raise(error, lease)
            raise

    async def mark(self, connection: psycopg.AsyncConnection[Any]) -> int | None:
        """See `PostgresGuard.mark`."""
        row = await (await connection.execute(_MARK, (self.name,))).fetchone()
        return None if row is None else int(row[0])
