"""Guards in PostgreSQL and SQLite: no stale write is committed."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Iterator

import pytest

import ringfence
from ringfence import Fence, LossKind
from ringfence.guards import MalformedFence, NotFirst, StaleFence, TokenTooHigh, WrongLease

psycopg = pytest.importorskip("psycopg")
sqlalchemy = pytest.importorskip("sqlalchemy")
pytest.importorskip("sqlalchemy.orm")

from ringfence.guards.psycopg import AsyncPostgresGuard, PostgresGuard  # noqa: E402
from ringfence.guards.sqlalchemy import SqlGuard  # noqa: E402

TABLE = "CREATE TABLE IF NOT EXISTS balance (name TEXT PRIMARY KEY, amount INTEGER NOT NULL)"


@pytest.fixture
def balance(postgres: str) -> str:
    """The server, with the table that is guarded."""
    with psycopg.connect(postgres) as connection:
        connection.execute(TABLE)
    return postgres


def amount(connection: psycopg.Connection, name: str) -> int:
    row = connection.execute("SELECT amount FROM balance WHERE name = %s", (name,)).fetchone()
    connection.rollback()
    return row[0] if row else 0


def test_psycopg_refuses_the_stale_holder_for_good(balance: str, client: ringfence.Client, name: str) -> None:
    guard = PostgresGuard(name)
    add = "INSERT INTO balance VALUES (%s, 1) ON CONFLICT (name) DO UPDATE SET amount = balance.amount + 1"
    with psycopg.connect(balance) as connection:
        guard.install(connection)
        guard.install(connection)
        # A session whose lease is believed in although a later grant has been at the store: the
        # fence of that grant is shown by hand.
        lease = client.lock(name)
        guard.advance(connection, lease)
        with guard.transaction(connection, lease):
            connection.execute(add, (name,))
        assert amount(connection, name) == 1 and guard.mark(connection) == lease.token
        connection.rollback()
        guard.advance(connection, Fence(name, lease.token + 1))
        with pytest.raises(StaleFence), guard.transaction(connection, lease):
            connection.execute(add, (name,))
        assert amount(connection, name) == 1
        assert lease.loss is not None and lease.loss.kind is LossKind.REPORTED
        with pytest.raises(ringfence.LeaseLost), guard.transaction(connection, lease):
            raise AssertionError("not reached")


def test_psycopg_refuses_what_is_no_fence_of_its_lease(balance: str, name: str) -> None:
    guard = PostgresGuard(name)
    with psycopg.connect(balance) as connection:
        guard.install(connection)
        with pytest.raises(WrongLease):
            guard.advance(connection, Fence("other", 1))
        with pytest.raises(TokenTooHigh):
            guard.advance(connection, Fence(name, 2**62))
        connection.execute("SELECT 1")
        with pytest.raises(NotFirst), guard.transaction(connection, Fence(name, 1)):
            raise AssertionError("not reached")
        connection.rollback()
        with pytest.raises(RuntimeError), guard.transaction(connection, Fence(name, 5)):
            raise RuntimeError("the work failed")
        assert guard.mark(connection) is None, "rolled back with the rest"
    with pytest.raises(ringfence.InvalidRequest):
        Fence(name, 0)
    assert issubclass(MalformedFence, ringfence.GuardError)


def test_psycopg_in_asyncio(balance: str, name: str) -> None:
    async def main() -> None:
        guard = AsyncPostgresGuard(name)
        async with await psycopg.AsyncConnection.connect(balance) as connection:
            await guard.install(connection)
            await guard.advance(connection, Fence(name, 8))
            async with guard.transaction(connection, Fence(name, 8)):
                await connection.execute("INSERT INTO balance VALUES (%s, 1)", (name,))
            # A new cluster of `ringfence dev` counts from 1 before a store of an earlier one.
            with pytest.raises(StaleFence, match="ringfence dev --data-dir"):
                async with guard.transaction(connection, Fence(name, 7)):
                    await connection.execute("DELETE FROM balance WHERE name = %s", (name,))
            assert await guard.mark(connection) == 8
            await connection.rollback()
            by_clock = 1_790_000_000 << 20
            await guard.advance(connection, Fence(name, by_clock))
            with pytest.raises(StaleFence) as stale:
                await guard.advance(connection, Fence(name, by_clock - 1))
            assert "ringfence dev" not in str(stale.value)

    asyncio.run(main())


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[sqlalchemy.Engine]:
    if request.param == "sqlite":
        engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/bank.db")
    else:
        parts = dict(part.split("=") for part in request.getfixturevalue("postgres").split())
        url = f"postgresql+psycopg://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"
        engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(TABLE))
    yield engine
    engine.dispose()


def test_sqlalchemy_refuses_the_stale_holder_for_good(
    engine: sqlalchemy.Engine, client: ringfence.Client, name: str
) -> None:
    guard = SqlGuard(name)
    guard.install(engine)
    guard.install(engine)
    add = sqlalchemy.text("INSERT INTO balance VALUES (:name, :amount)")
    count = sqlalchemy.text("SELECT count(*) FROM balance WHERE name LIKE :name")
    sessions = sqlalchemy.orm.sessionmaker(engine)
    lease = client.lock(name)
    guard.advance(engine, lease)
    with guard.begin(engine, lease) as connection:
        connection.execute(add, {"name": f"{name}/1", "amount": 1})
    with guard.session(sessions, lease) as session:
        session.execute(add, {"name": f"{name}/2", "amount": 1})
    assert guard.mark(engine) == lease.token
    guard.advance(engine, Fence(name, lease.token + 1))
    with pytest.raises(StaleFence), guard.session(sessions, lease) as session:
        session.execute(add, {"name": f"{name}/3", "amount": 1})
    with pytest.raises(StaleFence), guard.begin(engine, Fence(name, 1)) as connection:
        connection.execute(add, {"name": f"{name}/4", "amount": 1})
    with engine.connect() as connection:
        assert connection.execute(count, {"name": f"{name}/%"}).scalar_one() == 2
    assert lease.loss is not None and lease.loss.kind is LossKind.REPORTED


def test_sqlalchemy_looks_for_the_marks_in_their_own_schema(engine: sqlalchemy.Engine, name: str) -> None:
    """A temporary table comes first in every search path, and the pool keeps its connection."""
    guard = SqlGuard(name)
    guard.install(engine)
    guard.advance(engine, Fence(name, 9))
    with engine.begin() as connection:
        for table in ("marks", "ringfence_marks"):
            columns = "(name TEXT PRIMARY KEY, mark BIGINT NOT NULL)"
            connection.execute(sqlalchemy.text(f"CREATE TEMP TABLE {table} {columns}"))
    with pytest.raises(StaleFence):
        guard.advance(engine, Fence(name, 8))
    assert guard.mark(engine) == 9


def test_sqlalchemy_refuses_tokens_of_the_future_and_autocommit(engine: sqlalchemy.Engine, name: str) -> None:
    guard = SqlGuard(name)
    guard.install(engine)
    with pytest.raises(TokenTooHigh):
        guard.advance(engine, Fence(name, 2**62))
    assert guard.mark(engine) is None
    with pytest.raises(ringfence.GuardError):
        guard.advance(engine.execution_options(isolation_level="AUTOCOMMIT"), Fence(name, 3))


def test_sqlalchemy_rolls_back_what_follows_a_commit_in_the_block(engine: sqlalchemy.Engine, name: str) -> None:
    guard = SqlGuard(name)
    guard.install(engine)
    add = sqlalchemy.text("INSERT INTO balance VALUES (:name, 1)")
    sessions = sqlalchemy.orm.sessionmaker(engine)
    with pytest.raises(NotFirst), guard.session(sessions, Fence(name, 3)) as session:
        session.commit()
        session.execute(add, {"name": name})
    with engine.connect() as connection:
        seen = connection.execute(sqlalchemy.text("SELECT 1 FROM balance WHERE name = :n"), {"n": name})
        assert seen.one_or_none() is None


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_sqlalchemy_commits_nothing_behind_the_end_of_the_admitted_transaction(
    engine: sqlalchemy.Engine, name: str, end: str
) -> None:
    """The retry of a program that rolls back and tries anew: the second try was not admitted."""
    guard = SqlGuard(name)
    guard.install(engine)
    add = sqlalchemy.text("INSERT INTO balance VALUES (:name, 1)")
    sessions = sqlalchemy.orm.sessionmaker(engine)
    with pytest.raises(NotFirst), guard.session(sessions, Fence(name, 3)) as session:
        getattr(session, end)()
        for _ in range(2):  # Also behind a refusal that the block does not let out.
            with pytest.raises(NotFirst):
                session.execute(add, {"name": name})
                session.commit()
        session.commit()
    with engine.connect() as connection:
        seen = connection.execute(sqlalchemy.text("SELECT 1 FROM balance WHERE name = :n"), {"n": name})
        assert seen.one_or_none() is None


def test_sqlalchemy_savepoints_are_within_what_was_admitted(engine: sqlalchemy.Engine, name: str) -> None:
    guard = SqlGuard(name)
    guard.install(engine)
    add = sqlalchemy.text("INSERT INTO balance VALUES (:name, 1)")
    sessions = sqlalchemy.orm.sessionmaker(engine)
    with guard.session(sessions, Fence(name, 3)) as session:
        with pytest.raises(RuntimeError), session.begin_nested():
            session.execute(add, {"name": f"{name}/1"})
            raise RuntimeError("taken back")
        with session.begin_nested():
            session.execute(add, {"name": f"{name}/2"})
    assert guard.mark(engine) == 3
    with engine.connect() as connection:
        rows = connection.execute(sqlalchemy.text("SELECT name FROM balance WHERE name LIKE :n"), {"n": f"{name}/%"})
        assert [row[0] for row in rows] == [f"{name}/2"]


def test_sqlalchemy_refuses_another_database_in_the_session(
    engine: sqlalchemy.Engine, name: str, tmp_path: pathlib.Path
) -> None:
    guard = SqlGuard(name)
    guard.install(engine)
    other = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/other.db")
    with other.begin() as connection:
        connection.execute(sqlalchemy.text(TABLE))
    add = sqlalchemy.text("INSERT INTO balance VALUES ('x', 1)")
    sessions = sqlalchemy.orm.sessionmaker(engine)
    with pytest.raises(ringfence.GuardError), guard.session(sessions, Fence(name, 3)) as session:
        session.execute(add, bind_arguments={"bind": other})
    with other.connect() as connection:
        assert connection.execute(sqlalchemy.text("SELECT count(*) FROM balance")).scalar_one() == 0
    other.dispose()


def test_sqlalchemy_refuses_a_session_within_a_transaction_of_its_connection(
    engine: sqlalchemy.Engine, name: str
) -> None:
    guard = SqlGuard(name)
    guard.install(engine)
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("SELECT count(*) FROM balance"))
        sessions = sqlalchemy.orm.sessionmaker(connection)
        with pytest.raises(NotFirst), guard.session(sessions, Fence(name, 3)):
            raise AssertionError("not reached")
