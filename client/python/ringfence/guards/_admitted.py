"""Whether a transaction of SQLAlchemy is still the one that was admitted.

PostgreSQL has a number for it. In SQLite a savepoint that was made behind the admission goes with it.

psycopg and psycopg2 say what a text of one statement did. With every other driver of PostgreSQL, and behind a
text of several statements, the server is asked once more behind each text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from ringfence.guards import GuardError, TransactionEnded

_OPEN = "SELECT pg_catalog.txid_current_if_assigned()"
_FATE = "SELECT pg_catalog.txid_status({})"
# What was prepared for a commit in two phases is in progress.
_ABORTED = "aborted"
# What PostgreSQL calls a statement that may have ended one transaction and begun another. It calls one that
# goes back to a savepoint so, too. Of a text of several statements only one is named.
_TURNS = {"BEGIN", "COMMIT", "ROLLBACK", "START TRANSACTION"}

_SAVEPOINT = "SAVEPOINT ringfence_admitted"
_RELEASE = "RELEASE SAVEPOINT ringfence_admitted"


class Admitted:
    """The transaction of a connection in which a fence was just admitted. `number` is PostgreSQL's."""

    def __init__(self, connection: Connection, number: int | None = None) -> None:
        self._connection = connection
        self._number = number
        self._ended = False
        # A statement has not come to its end, and the server was not asked since which transaction is open.
        self._unsure = False
        # It was ended by SQLAlchemy, or its commit was sent.
        self._over = False
        self._asking = False
        if number is None:
            connection.exec_driver_sql(_SAVEPOINT)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Refuses the statements and the commit of any other transaction of this connection. An error that
        leaves the block is `TransactionEnded` if the block had ended the transaction before."""
        listeners = (
            ("before_cursor_execute", self._executing),
            ("after_cursor_execute", self._executed),
            ("commit", self._committing),
            ("prepare_twophase", self._committing),
            ("rollback", self._rolling_back),
        )
        for name, listener in listeners:
            event.listen(self._connection, name, listener)
        try:
            yield
        except GuardError:
            raise
        except Exception as error:
            if self._ended or self._has_ended():
                raise TransactionEnded from error
            raise
        finally:
            for name, listener in listeners:
                event.remove(self._connection, name, listener)

    def _executing(self, _: Connection, __: Any, text: str, *___: object) -> None:
        if self._asking:
            return
        # A transaction that has failed answers nothing before it has gone back to a savepoint.
        asks = self._unsure and not (text.startswith("ROLLBACK TO SAVEPOINT ") and _is_one(text))
        if self._ended or self._is_idle() or (asks and not self._is_open()):
            self._end()
        self._unsure = self._number is not None

    def _executed(self, _: Connection, cursor: Any, text: str, *__: object) -> None:
        """At once, so that the next text cannot commit what comes behind it."""
        if self._asking:
            return
        if self._is_idle() or (self._may_turn(cursor, text) and not self._is_open()):
            self._end()
        self._unsure = False

    def _may_turn(self, cursor: Any, text: str) -> bool:
        """Whether the text that was executed may have ended one transaction and begun another."""
        if self._number is None:
            return False
        turned = getattr(cursor, "statusmessage", None)
        # psycopg2 has what was sent, in which its client has filled in the parameters.
        sent = getattr(cursor, "query", None)
        if isinstance(sent, bytes):
            text = sent.decode(errors="replace")
        return not isinstance(turned, str) or turned in _TURNS or not _is_one(text)

    def _committing(self, *_: object) -> None:
        if self._ended or not self._is_open():
            self._end()
        self._over = True

    def _rolling_back(self, _: Connection) -> None:
        self._over = True

    def _end(self) -> None:
        """Also for a pool that does not roll back what comes back to it."""
        self._ended = True
        self._connection.connection.rollback()
        raise TransactionEnded

    def _is_idle(self) -> bool:
        """Whether the driver says that no transaction is open."""
        driver = self._connection.connection.driver_connection
        if self._number is None:
            return not getattr(driver, "in_transaction", True)
        # 0 is libpq's PQTRANS_IDLE, in psycopg and psycopg2.
        return getattr(getattr(driver, "info", None), "transaction_status", None) == 0

    def _is_open(self) -> bool:
        """Asks the database. In PostgreSQL this fails in a transaction that a failed statement has aborted."""
        if self._number is not None:
            is_open = self._ask(_OPEN) == self._number
            self._unsure = False
            return is_open
        try:
            self._ask(_RELEASE)
        except OperationalError as error:
            if "no such savepoint" in str(error.orig):
                return False
            raise
        return True

    def _has_ended(self) -> bool:
        """Of a block that has failed. In SQLite its error may be what has ended the transaction, and whatever
        came behind that was refused."""
        if self._number is None or self._over or self._connection.closed or self._connection.invalidated:
            return False
        raw = self._connection.connection
        try:
            with closing(raw.cursor()) as cursor:
                cursor.execute(_OPEN)
                return tuple(cursor.fetchone() or ()) != (self._number,)
        except Exception:
            pass  # Mostly of a transaction that has failed, which answers nothing.
        try:
            raw.rollback()
            with closing(raw.cursor()) as cursor:
                cursor.execute(_FATE.format(self._number))
                return tuple(cursor.fetchone() or ()) != (_ABORTED,)
        except Exception:
            return False  # A broken connection leaves nothing to ask for.

    def _ask(self, query: str) -> object:
        self._asking = True
        try:
            answer = self._connection.exec_driver_sql(query)
            return answer.scalar() if answer.returns_rows else None
        finally:
            self._asking = False


def _is_one(text: str) -> bool:
    """Whether a text is one statement for certain: a semicolon in a literal looks as one between two."""
    return ";" not in text.rstrip("; \t\r\n")
