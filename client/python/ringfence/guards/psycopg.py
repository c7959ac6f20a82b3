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
from psycopg.rows import tuple_row

from ringfence._core import checked_name
from ringfence._lease import Fence, LeaseBase
from ringfence.guards import (
    NotFirst,
    TransactionEnded,
    fence_of,
    migration,
    raise_refused,
    refusal_of,
)

# With the server's number of the transaction that has written the mark.
_ADMIT = "SELECT ringfence.admit(%s::pg_catalog.text, %s::bigint), pg_catalog.txid_current()"
_OPEN = "SELECT pg_catalog.txid_current_if_assigned()"
_FATE = "SELECT pg_catalog.txid_status(%s::bigint)"
# What was prepared for a commit in two phases is in progress.
_ABORTED = "aborted"
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


def _is_usable(connection: Any) -> bool:
    return bool(connection.info.transaction_status == TransactionStatus.IDLE)


def _raise(error: psycopg.Error, lease: LeaseBase | Fence) -> None:
    refusal = refusal_of(error.sqlstate, str(error))
    if refusal is not None:
        raise_refused(refusal, lease, error)


def _ask(connection: psycopg.Connection[Any], query: str, *values: object) -> tuple[Any, ...]:
    """The only row of an answer, whatever the connection makes of its rows; empty if there is none."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        return cursor.execute(query.encode(), values or None).fetchone() or ()


@contextmanager
def _transactions(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Without autocommit what a block sends behind the end of its transaction begins another one, which
    is not committed."""
    autocommit = connection.autocommit
    connection.autocommit = False
    try:
        yield
    finally:
        if _is_usable(connection):
            connection.autocommit = autocommit


def _has_ended(connection: psycopg.Connection[Any], number: int) -> bool:
    """Of a block that has failed: whether something else than its error has ended the transaction. The
    open one is to be rolled back behind it. A broken connection leaves nothing to ask for."""
    status = connection.info.transaction_status
    try:
        if status == TransactionStatus.INTRANS:
            return _ask(connection, _OPEN) != (number,)
        if status == TransactionStatus.INERROR:
            connection.execute("ROLLBACK")
            return _ask(connection, _FATE, number) != (_ABORTED,)
    except psycopg.Error:
        return False
    return bool(status == TransactionStatus.IDLE)


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
        """A transaction that admits the fence first; leaving the block commits it, an error rolls it back.
        In the block the connection is not in autocommit mode.

        A COMMIT or ROLLBACK that is sent as text ends what was admitted; psycopg does not see it. What
        follows it is rolled back, unless another text commits it, and so does a pipeline or autocommit that
        the block turns on; leaving the block raises `TransactionEnded`. That asks the server once more
        before the commit.

        Raises `LeaseLost` before anything is sent if the lease is lost, `StaleFence` if a later grant
        has been here (belief in the lease has ended then), another `FenceRefused`, `NotFirst` if a
        transaction is open already, and what psycopg raises: `InFailedSqlTransaction` if the block
        overlooked the error of a statement."""
        fence = fence_of(lease, self.name)
        _idle(connection)
        with _transactions(connection), connection.transaction():
            try:
                admitted = _ask(connection, _ADMIT, fence.name, fence.token)
            except psycopg.Error as error:
                _raise(error, lease)
                raise
            number = admitted[1]
            try:
                yield connection
                # Fails in a transaction that a failed statement has aborted, whose COMMIT would not.
                if _ask(connection, _OPEN) != (number,):
                    raise TransactionEnded
            except Exception as error:
                if not isinstance(error, TransactionEnded) and _has_ended(connection, number):
                    raise TransactionEnded from error
                raise

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
        row = _ask(connection, _MARK, self.name)
        return int(row[0]) if row else None


async def _ask_async(
    connection: psycopg.AsyncConnection[Any], query: str, *values: object
) -> tuple[Any, ...]:
    """See `_ask`."""
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(query.encode(), values or None)
        return await cursor.fetchone() or ()


@asynccontextmanager
async def _transactions_of(connection: psycopg.AsyncConnection[Any]) -> AsyncIterator[None]:
    """See `_transactions`."""
    autocommit = connection.autocommit
    await connection.set_autocommit(False)
    try:
        yield
    finally:
        if _is_usable(connection):
            await connection.set_autocommit(autocommit)


async def _has_ended_async(connection: psycopg.AsyncConnection[Any], number: int) -> bool:
    """See `_has_ended`."""
    status = connection.info.transaction_status
    try:
        if status == TransactionStatus.INTRANS:
            return await _ask_async(connection, _OPEN) != (number,)
        if status == TransactionStatus.INERROR:
            await connection.execute("ROLLBACK")
            return await _ask_async(connection, _FATE, number) != (_ABORTED,)
    except psycopg.Error:
        return False
    return bool(status == TransactionStatus.IDLE)


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
        async with _transactions_of(connection), connection.transaction():
            try:
                admitted = await _ask_async(connection, _ADMIT, fence.name, fence.token)
            except psycopg.Error as error:
                _raise(error, lease)
                raise
            number = admitted[1]
            try:
                yield connection
                # Fails in a transaction that a failed statement has aborted, whose COMMIT would not.
                if await _ask_async(connection, _OPEN) != (number,):
                    raise TransactionEnded
            except Exception as error:
                if not isinstance(error, TransactionEnded) and await _has_ended_async(connection, number):
                    raise TransactionEnded from error
                raise

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
        row = await _ask_async(connection, _MARK, self.name)
        return int(row[0]) if row else None
