"""The guard of data in PostgreSQL or SQLite, by SQLAlchemy 2.

    from ringfence.guards.sqlalchemy import SqlGuard

    guard = SqlGuard("bank/interest")
    guard.install(engine)                            # once per database, or with your migrations

    with client.lock("bank/interest") as lease:
        guard.advance(engine, lease)                 # before the first read
        with guard.begin(engine, lease) as connection:
            connection.execute(text("UPDATE balance SET amount = amount + 1"))
        with guard.session(sessionmaker, lease) as session:
            session.add(Payment(amount=1))

The rules are those of `ringfence.guards.psycopg` for PostgreSQL. In SQLite (3.37 or later, a database
in one file) the admission takes the write lock, so a writer that is paused holds the others up until
their busy timeout. `journal_mode = OFF` is not covered. An engine with the isolation level AUTOCOMMIT
is refused: its statements are transactions of their own.

A COMMIT or ROLLBACK that is sent as text ends what was admitted, and so does SQLite itself at some errors
(`OR ROLLBACK`, a full disk). The statement that did it, or what follows it, raises `TransactionEnded`, and
so does the commit if the block goes on behind that. Only what one text, or the driver's own connection,
commits behind such an end cannot be refused: it is reported. psycopg and psycopg2 say what a text of one
statement did; with any other driver of PostgreSQL the server is asked once more behind each statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, SessionTransaction

from ringfence._core import checked_name
from ringfence._lease import Fence, LeaseBase
from ringfence.guards import (
    GuardError,
    NotFirst,
    TokenTooHigh,
    ceiling,
    fence_of,
    migration,
    raise_refused,
    refusal_of,
)
from ringfence.guards._admitted import Admitted

# With the server's number of the transaction that has written the mark.
_POSTGRES_ADMIT = text(
    "SELECT ringfence.admit(CAST(:name AS pg_catalog.text), CAST(:token AS bigint)), "
    "pg_catalog.txid_current()"
)
# A temporary table of that name would stand before the marks.
_SQLITE_ADMIT = text(
    "INSERT INTO main.ringfence_marks (name, mark) VALUES (:name, :token) "
    "ON CONFLICT (name) DO UPDATE SET mark = excluded.mark WHERE mark <= excluded.mark"
)
_MARK = {
    "postgresql": text("SELECT mark FROM ringfence.marks WHERE name OPERATOR(pg_catalog.=) :name"),
    "sqlite": text("SELECT mark FROM main.ringfence_marks WHERE name = :name"),
}


class SqlGuard:
    """A guard whose mark is a row beside the data, bound to the lease `name`."""

    def __init__(self, name: str) -> None:
        self.name = checked_name(name)

    @staticmethod
    def install(engine: Engine) -> None:
        """Makes the table of marks, and in PostgreSQL its functions. Running it again changes
        nothing."""
        dialect = _dialect(engine)
        if dialect == "sqlite":
            raw = engine.raw_connection()
            try:
                # The only way of this driver to run a script.
                raw.driver_connection.executescript(migration("sqlite"))  # type: ignore[union-attr]
            finally:
                raw.close()
            return
        with engine.begin() as connection:
            # To the driver as it is: it has colons and percent signs that mean no parameter.
            raw_cursor = connection.connection.cursor()
            try:
                raw_cursor.execute(migration("postgres"))
            finally:
                raw_cursor.close()

    @contextmanager
    def begin(self, engine: Engine, lease: LeaseBase | Fence) -> Iterator[Connection]:
        """A connection in a transaction that admits the fence first; leaving the block commits it, an
        error rolls it back.

        Raises `LeaseLost` before anything is sent if the lease is lost, `StaleFence` if a later grant
        has been here (belief in the lease has ended then), another `FenceRefused`, `TransactionEnded` if
        the block ends the transaction by other ways than those of SQLAlchemy, and what SQLAlchemy
        raises: also where the block overlooked the error of a statement and PostgreSQL has given the
        transaction up."""
        fence = fence_of(lease, self.name)
        _dialect(engine)
        with engine.connect() as connection, connection.begin() as transaction:
            with _admit(connection, fence, lease).kept():
                yield connection
                if transaction.is_active:
                    transaction.commit()

    @contextmanager
    def session(
        self, sessions: Callable[[], Session], lease: LeaseBase | Fence
    ) -> Iterator[Session]:
        """A new session from a `sessionmaker`, in a transaction that admits the fence first; leaving
        the block flushes and commits it. Errors as for `begin`. A commit or rollback in the block ends
        the transaction that was admitted: what follows it there is refused with `NotFirst`, and not
        committed; repeat the whole block instead. So is what goes to another connection, which this
        guard does not guard."""
        fence = fence_of(lease, self.name)
        with sessions() as session:
            bind = session.get_bind()
            if session.in_transaction() or (isinstance(bind, Connection) and bind.in_transaction()):
                raise NotFirst("the session is in a transaction; the fence is admitted first in one")
            transaction = session.begin()
            connection = session.connection()
            _dialect(connection.engine)
            admitted = _admit(connection, fence, lease)
            with admitted.kept(), _admitted_alone(session, transaction, connection):
                yield session
                if session.in_transaction():
                    session.commit()

    def advance(self, engine: Engine, lease: LeaseBase | Fence) -> None:
        """Says, in a transaction of its own, that this is the grant in force: once it has returned,
        every older token is refused. A new holder calls it before its first read of what is guarded.
        Errors as for `begin`."""
        with self.begin(engine, lease):
            pass

    def mark(self, engine: Engine) -> int | None:
        """The greatest token admitted so far; None if there is none. Advice for people."""
        with engine.connect() as connection:
            row = connection.execute(_MARK[_dialect(engine)], {"name": self.name}).one_or_none()
            return None if row is None else int(row[0])


@contextmanager
def _admitted_alone(
    session: Session, transaction: SessionTransaction, connection: Connection
) -> Iterator[None]:
    """Lets the session begin and commit nothing but the transaction that was admitted. A block that goes
    on behind the refusal does not commit either."""
    refused: list[GuardError] = []

    def begun(_: Session, __: SessionTransaction, on: Connection) -> None:
        if session.get_transaction() is not transaction:
            refused.append(NotFirst("the block has ended its transaction and begun another one"))
        elif on is not connection:
            refused.append(GuardError("the session uses a connection on which no fence was admitted"))
        committing(session)

    def committing(_: Session) -> None:
        if refused:
            raise refused[0]

    listeners = (("after_begin", begun), ("before_commit", committing))
    for name, listener in listeners:
        event.listen(session, name, listener)
    try:
        yield
    finally:
        for name, listener in listeners:
            event.remove(session, name, listener)


def _dialect(engine: Engine) -> str:
    name = engine.dialect.name
    if name not in ("postgresql", "sqlite"):
        raise GuardError(f"no guard for {name}; there are postgresql and sqlite")
    return name


def _admit(connection: Connection, fence: Fence, lease: LeaseBase | Fence) -> Admitted:
    values = {"name": fence.name, "token": fence.token}
    try:
        if connection.dialect.name == "postgresql":
            number = int(connection.execute(_POSTGRES_ADMIT, values).one()[1])
            _check_transaction(not getattr(connection.connection, "autocommit", False))
            return Admitted(connection, number)
        if fence.token > ceiling():
            # A mark only grows: one that has reached the token stays, and is no reason to refuse it.
            row = connection.execute(_MARK["sqlite"], {"name": fence.name}).one_or_none()
            if row is None or int(row[0]) < fence.token:
                raise TokenTooHigh(f"the token of {fence} is above the ceiling {ceiling()}")
        if connection.execute(_SQLITE_ADMIT, values).rowcount != 1:
            raise GuardError(f"the mark of {fence} was not written, and no error says why")
        _check_transaction(getattr(connection.connection, "in_transaction", True))
        return Admitted(connection)
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
        refusal = refusal_of(state, str(error.orig))
        if refusal is not None:
            raise_refused(refusal, lease, error)
        raise


def _check_transaction(is_open: bool) -> None:
    """Behind the admission, which is harmless alone: what follows it is what must not run without."""
    if not is_open:
        raise GuardError(
            "the connection commits each statement alone (AUTOCOMMIT); a guard needs transactions"
        )
