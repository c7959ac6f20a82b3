"""A guarded transaction that its block ends: nothing behind its end is called a success."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable, Iterator

import pytest

from ringfence import Fence
from ringfence.guards import GuardError, TransactionEnded

psycopg = pytest.importorskip("psycopg")
sqlalchemy = pytest.importorskip("sqlalchemy")
pytest.importorskip("sqlalchemy.orm")

from ringfence.guards.psycopg import AsyncPostgresGuard, PostgresGuard  # noqa: E402
from ringfence.guards.sqlalchemy import SqlGuard  # noqa: E402

# Each ends the admitted transaction; those with BEGIN or CHAIN leave another one open.
ENDS = ["COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "COMMIT; BEGIN", "ROLLBACK; BEGIN"]
TABLE = "CREATE TABLE IF NOT EXISTS ended (name TEXT, part TEXT, CONSTRAINT once UNIQUE (name, part))"
ADD = "INSERT INTO ended VALUES ('{}', '{}')"


def written(connection: psycopg.Connection, name: str) -> set[str]:
    return {part for (part,) in connection.execute("SELECT part FROM ended WHERE name = %s", (name,))}


@pytest.fixture
def database(postgres: str) -> str:
    with psycopg.connect(postgres) as connection:
        PostgresGuard.install(connection)
        connection.execute(TABLE)
    return postgres


@pytest.mark.parametrize("autocommit", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_psycopg_commits_nothing_behind_the_end_of_its_transaction(
    database: str, name: str, end: str, autocommit: bool
) -> None:
    guard = PostgresGuard(name)
    connect = psycopg.connect
    with connect(database, autocommit=autocommit) as old, connect(database, autocommit=True) as new:
        with pytest.raises(TransactionEnded), guard.transaction(old, Fence(name, 8)):
            old.execute(ADD.format(name, "before"))
            old.execute(end)
            guard.advance(new, Fence(name, 9))
            old.execute(ADD.format(name, "behind"))
        assert written(new, name) == ({"before"} if "COMMIT" in end else set())
        assert old.autocommit is autocommit
        with guard.transaction(old, Fence(name, 9)):
            old.execute(ADD.format(name, "next"))
        assert "next" in written(new, name)


@pytest.mark.parametrize("end", [f"{end}; SELECT 1 / 0" for end in ENDS] + ["COMMIT", "ROLLBACK; BEGIN"])
def test_psycopg_says_of_a_failed_block_that_it_had_ended_its_transaction(
    database: str, name: str, end: str
) -> None:
    """What it has committed must not be repeated. A failed one that was rolled back committed nothing."""
    guard = PostgresGuard(name)
    with psycopg.connect(database) as connection:
        expected = (TransactionEnded, ZeroDivisionError) if "ROLLBACK" not in end else (Exception,)
        with pytest.raises(expected) as raised, guard.transaction(connection, Fence(name, 8)):
            connection.execute(ADD.format(name, "before"))
            connection.execute(end)
            raise ZeroDivisionError
        if "COMMIT" in end:
            assert isinstance(raised.value, TransactionEnded), raised.value
        assert written(connection, name) == ({"before"} if "COMMIT" in end else set())


def test_psycopg_reports_what_was_committed_behind_the_end(database: str, name: str) -> None:
    """Nothing before the server can refuse a text with a COMMIT of its own."""
    guard = PostgresGuard(name)
    with psycopg.connect(database) as connection:
        for token, begin in ((8, ""), (9, "BEGIN; ")):
            with pytest.raises(TransactionEnded), guard.transaction(connection, Fence(name, token)):
                connection.execute(f"COMMIT; {begin}{ADD.format(name, token)}; COMMIT")
        assert written(connection, name) == {"8", "9"}


@pytest.mark.parametrize("how", ["pipeline", "autocommit"])
def test_psycopg_reports_what_its_other_modes_commit_behind_the_end(database: str, name: str, how: str) -> None:
    """The README's table says so: a pipeline is sent before it is answered."""
    guard = PostgresGuard(name)
    with psycopg.connect(database) as connection:
        with pytest.raises(TransactionEnded), guard.transaction(connection, Fence(name, 8)):
            if how == "pipeline":
                with connection.pipeline():
                    connection.execute("COMMIT")
                    connection.execute(ADD.format(name, "behind"))
            else:
                connection.execute("COMMIT")
                connection.autocommit = True
                connection.execute(ADD.format(name, "behind"))
        assert written(connection, name) == {"behind"}
        connection.rollback()
        with guard.transaction(connection, Fence(name, 9)), connection.pipeline():
            connection.execute(ADD.format(name, "within"))
        assert written(connection, name) == {"behind", "within"}


def test_psycopg_does_not_call_a_failed_transaction_a_success(database: str, name: str) -> None:
    """The server answers success to the COMMIT of a transaction in which a statement has failed."""
    guard = PostgresGuard(name)
    with psycopg.connect(database) as connection:
        with pytest.raises(psycopg.errors.InFailedSqlTransaction), guard.transaction(connection, Fence(name, 8)):
            connection.execute(ADD.format(name, "before"))
            with pytest.raises(psycopg.errors.DivisionByZero):
                connection.execute("SELECT 1 / 0")
        assert written(connection, name) == set()
        connection.rollback()
        # Its own error stays where nothing was ended, and so does the way out that psycopg has.
        with pytest.raises(psycopg.errors.DivisionByZero), guard.transaction(connection, Fence(name, 8)):
            connection.execute("SELECT 1 / 0")
        with guard.transaction(connection, Fence(name, 8)):
            connection.execute(ADD.format(name, "before"))
            raise psycopg.Rollback
        assert written(connection, name) == set()


def test_psycopg_guards_on_with_rows_of_any_shape(database: str, name: str) -> None:
    from psycopg.rows import dict_row

    guard = PostgresGuard(name)
    with psycopg.connect(database, row_factory=dict_row) as connection:
        with guard.transaction(connection, Fence(name, 8)), connection.transaction():
            connection.execute(ADD.format(name, "before"))
        assert guard.mark(connection) == 8


@pytest.mark.parametrize("autocommit", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_psycopg_in_asyncio_commits_nothing_behind_the_end(
    database: str, name: str, end: str, autocommit: bool
) -> None:
    async def main() -> None:
        guard = AsyncPostgresGuard(name)
        async with await psycopg.AsyncConnection.connect(database, autocommit=autocommit) as old:
            with pytest.raises(TransactionEnded):
                async with guard.transaction(old, Fence(name, 8)):
                    await old.execute(ADD.format(name, "before"))
                    await old.execute(end)
                    await old.execute(ADD.format(name, "behind"))
            assert old.autocommit is autocommit
            with pytest.raises(TransactionEnded if "COMMIT" in end else Exception):
                async with guard.transaction(old, Fence(name, 9)):
                    await old.execute(f"{end}; SELECT 1 / 0")
            with pytest.raises(psycopg.errors.InFailedSqlTransaction):
                async with guard.transaction(old, Fence(name, 9)):
                    with pytest.raises(psycopg.errors.DivisionByZero):
                        await old.execute("SELECT 1 / 0")

    asyncio.run(main())
    with psycopg.connect(database) as connection:
        assert written(connection, name) == ({"before"} if "COMMIT" in end else set())


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[sqlalchemy.Engine]:
    if request.param == "sqlite":
        engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/bank.db")
    else:
        parts = dict(part.split("=") for part in request.getfixturevalue("postgres").split())
        url = f"postgresql+psycopg://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"
        engine = sqlalchemy.create_engine(url)
    SqlGuard.install(engine)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(TABLE))
    yield engine
    engine.dispose()


def guarded(how: str, engine: sqlalchemy.Engine, fence: Fence):  # type: ignore[no-untyped-def]
    guard = SqlGuard(fence.name)
    if how == "begin":
        return guard.begin(engine, fence)
    return guard.session(sqlalchemy.orm.sessionmaker(engine), fence)


def add(name: str, part: str) -> sqlalchemy.TextClause:
    return sqlalchemy.text(ADD.format(name, part))


def parts(engine: sqlalchemy.Engine, name: str) -> set[str]:
    with engine.connect() as connection:
        rows = connection.execute(sqlalchemy.text("SELECT part FROM ended WHERE name = :name"), {"name": name})
        return {row[0] for row in rows}


def ends_of(engine: sqlalchemy.Engine) -> list[str]:
    return ENDS if engine.dialect.name == "postgresql" else ["COMMIT", "ROLLBACK"]


@pytest.mark.parametrize("how", ["begin", "session"])
@pytest.mark.parametrize("overlooks", [False, True])
def test_sqlalchemy_refuses_what_follows_an_end_in_text(
    engine: sqlalchemy.Engine, name: str, how: str, overlooks: bool
) -> None:
    token = 8
    for end in ends_of(engine):
        token += 2
        this = f"{name}/{end}"
        with pytest.raises(TransactionEnded), guarded(how, engine, Fence(name, token)) as block:
            block.execute(add(this, "before"))
            try:
                block.execute(sqlalchemy.text(end))
            except TransactionEnded:
                if not overlooks:
                    raise
            SqlGuard(name).advance(engine, Fence(name, token + 1))
            for _ in range(2):
                try:
                    block.execute(add(this, "behind"))
                    if how == "session":
                        block.commit()
                except GuardError:
                    if not overlooks:
                        raise
        assert parts(engine, this) == ({"before"} if "COMMIT" in end else set()), end


@pytest.mark.parametrize("how", ["begin", "session"])
@pytest.mark.parametrize("overlooks", [False, True])
def test_sqlalchemy_refuses_what_follows_an_end_by_the_driver(
    engine: sqlalchemy.Engine, name: str, how: str, overlooks: bool
) -> None:
    """Past all that SQLAlchemy sees: the transaction itself is looked at."""
    for token, again in ((8, False), (10, True)):
        with pytest.raises(TransactionEnded), guarded(how, engine, Fence(name, token)) as block:
            connection = block if how == "begin" else block.connection()
            connection.connection.commit()
            if again:
                connection.connection.cursor().execute("BEGIN")
            SqlGuard(name).mark(engine)
            try:
                block.execute(add(name, str(token)))
            except TransactionEnded:
                if not overlooks:
                    raise
        assert parts(engine, name) == set()


@pytest.mark.parametrize("how", ["begin", "session"])
@pytest.mark.parametrize("follows", [False, True])
def test_sqlalchemy_refuses_what_follows_an_error_at_which_sqlite_ended_the_transaction(
    tmp_path: pathlib.Path, name: str, how: str, follows: bool
) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/bank.db")
    SqlGuard.install(engine)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(TABLE))
        connection.execute(add(name, "there"))
    twice = sqlalchemy.text(ADD.format(name, "there").replace("INSERT", "INSERT OR ROLLBACK"))
    with pytest.raises(TransactionEnded), guarded(how, engine, Fence(name, 8)) as block:
        block.execute(add(name, "before"))
        with pytest.raises(sqlalchemy.exc.IntegrityError):
            block.execute(twice)
        if follows:
            SqlGuard(name).advance(engine, Fence(name, 9))
            with pytest.raises(TransactionEnded):
                block.execute(add(name, "behind"))
    assert parts(engine, name) == {"there"}
    # A block that stops at the error ends with it.
    with pytest.raises(sqlalchemy.exc.IntegrityError), guarded(how, engine, Fence(name, 9)) as block:
        block.execute(twice)
    engine.dispose()


@pytest.mark.parametrize("how", ["begin", "session"])
def test_sqlalchemy_says_of_a_failed_block_that_it_had_ended_its_transaction(
    engine: sqlalchemy.Engine, name: str, how: str
) -> None:
    with pytest.raises(TransactionEnded), guarded(how, engine, Fence(name, 8)) as block:
        try:
            block.execute(sqlalchemy.text("COMMIT"))
        except TransactionEnded:
            raise ZeroDivisionError from None
    if engine.dialect.name == "postgresql":
        for end in ("COMMIT; SELECT 1 / 0", "COMMIT; BEGIN; SELECT 1 / 0"):
            with pytest.raises(TransactionEnded), guarded(how, engine, Fence(name, 8)) as block:
                block.execute(sqlalchemy.text(end))
        with pytest.raises(sqlalchemy.exc.DataError), guarded(how, engine, Fence(name, 8)) as block:
            block.execute(sqlalchemy.text("SELECT 1 / 0"))
        with pytest.raises(sqlalchemy.exc.DBAPIError), guarded(how, engine, Fence(name, 8)) as block:
            block.execute(add(name, "before"))
            with pytest.raises(sqlalchemy.exc.DataError):
                block.execute(sqlalchemy.text("SELECT 1 / 0"))
    with pytest.raises(ZeroDivisionError), guarded(how, engine, Fence(name, 8)) as block:
        block.execute(add(name, "before"))
        raise ZeroDivisionError
    assert parts(engine, name) == set()


def test_sqlalchemy_lets_a_connection_go_that_a_session_was_bound_to(engine: sqlalchemy.Engine, name: str) -> None:
    """What it does behind the guarded block is its own."""
    with engine.connect() as connection:
        sessions = sqlalchemy.orm.sessionmaker(connection)
        with SqlGuard(name).session(sessions, Fence(name, 8)) as session, session.begin_nested():
            session.execute(add(name, "guarded"))
        connection.rollback()
        connection.execute(add(name, "own"))
        connection.commit()
    assert parts(engine, name) == {"guarded", "own"}


DRIVERS = {
    "psycopg": "psycopg",
    "psycopg2": "psycopg2",
    "pg8000": "pg8000",
    "asyncpg": "asyncpg",
    "psycopg_async": "psycopg",
}


@pytest.fixture(params=sorted(DRIVERS))
def driven(request: pytest.FixtureRequest, postgres: str) -> Iterator[sqlalchemy.Engine]:
    """An engine of each driver, by asyncio for those that have nothing else."""
    pytest.importorskip(DRIVERS[request.param])
    parts = dict(part.split("=") for part in postgres.split())
    url = f"postgresql+{request.param}://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    with psycopg.connect(postgres) as connection:
        PostgresGuard.install(connection)
        connection.execute(TABLE)
    if "async" not in request.param:
        engine = sqlalchemy.create_engine(url)
        yield engine
        engine.dispose()
        return
    from sqlalchemy.ext.asyncio import create_async_engine

    yield create_async_engine(url, poolclass=sqlalchemy.NullPool).sync_engine


def run(engine: sqlalchemy.Engine, block: Callable[[], None]) -> None:
    """As a program of this driver would run it."""
    if not engine.dialect.is_async:
        block()
        return

    async def main() -> None:
        await sqlalchemy.util.greenlet_spawn(block)

    asyncio.run(main())


# Behind these the driver's last word of the text is none of an end.
HIDDEN = ["SELECT 1; COMMIT AND CHAIN", "COMMIT; BEGIN; SELECT 1", "END; START TRANSACTION; SET LOCAL work_mem = '1MB'"]


@pytest.mark.parametrize("how", ["begin", "session"])
def test_sqlalchemy_refuses_what_follows_an_end_by_each_driver(
    driven: sqlalchemy.Engine, postgres: str, name: str, how: str
) -> None:
    """A commit behind it, too. Also where the block overlooks each error."""
    # asyncpg sends a text of one statement.
    texts = [text for text in [*ENDS, *HIDDEN] if ";" not in text or driven.dialect.driver != "asyncpg"]

    def block(text: str, token: int) -> None:
        with guarded(how, driven, Fence(name, token)) as block:
            block.execute(add(name, f"before {token}"))
            for statement in (text, None, ADD.format(name, f"behind {token}"), "COMMIT"):
                try:
                    if statement is None:
                        with psycopg.connect(postgres) as new:
                            PostgresGuard(name).advance(new, Fence(name, token + 1))
                    else:
                        block.execute(sqlalchemy.text(statement))
                except (GuardError, sqlalchemy.exc.SQLAlchemyError):
                    pass

    for number, text in enumerate(texts):
        token = 8 + 2 * number
        with pytest.raises(TransactionEnded):
            run(driven, lambda: block(text, token))
        with psycopg.connect(postgres) as connection:
            there = written(connection, name)
        expected = set() if "ROLLBACK" in text else {f"before {token}"}
        assert {part for part in there if part.endswith(f" {token}")} == expected, text


def test_sqlalchemy_commits_by_each_driver_what_stays_in_its_transaction(
    driven: sqlalchemy.Engine, postgres: str, name: str
) -> None:
    """Savepoints, failures that a savepoint takes back, and texts with semicolons."""

    def block() -> None:
        with SqlGuard(name).begin(driven, Fence(name, 8)) as connection:
            connection.execute(add(name, "first"))
            with pytest.raises(sqlalchemy.exc.DBAPIError), connection.begin_nested():
                connection.execute(add(name, "first"))
            with connection.begin_nested():
                connection.execute(add(name, "second;"))
            taken = connection.begin_nested()
            connection.execute(add(name, "taken back"))
            taken.rollback()
            connection.execute(sqlalchemy.text("INSERT INTO ended VALUES (:name, :part)"), [
                {"name": name, "part": "third; COMMIT"}, {"name": name, "part": "fourth"}
            ])

    def failing() -> None:
        with SqlGuard(name).begin(driven, Fence(name, 8)) as connection:
            connection.execute(add(name, "fifth"))
            raise ZeroDivisionError

    def overlooking() -> None:
        with SqlGuard(name).begin(driven, Fence(name, 8)) as connection:
            connection.execute(add(name, "sixth"))
            with pytest.raises(sqlalchemy.exc.DBAPIError):
                connection.execute(sqlalchemy.text("SELECT 1 / 0"))

    run(driven, block)
    with pytest.raises(ZeroDivisionError):
        run(driven, failing)
    with pytest.raises(sqlalchemy.exc.DBAPIError):
        run(driven, overlooking)
    with psycopg.connect(postgres) as connection:
        assert written(connection, name) == {"first", "second;", "third; COMMIT", "fourth"}


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_sqlalchemy_asks_the_server_no_more_than_it_must(postgres: str, name: str, driver: str) -> None:
    """Once before the commit, where the driver says what each text did."""
    pytest.importorskip(driver)
    parts = dict(part.split("=") for part in postgres.split())
    url = f"postgresql+{driver}://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    engine = sqlalchemy.create_engine(url)
    SqlGuard.install(engine)
    sent: list[str] = []
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(TABLE))
    sqlalchemy.event.listen(engine, "before_cursor_execute", lambda _, __, text, *___: sent.append(text))
    with SqlGuard(name).begin(engine, Fence(name, 8)) as connection:
        for number in range(5):
            connection.execute(add(name, str(number)))
    assert len(sent) == 7, sent
    engine.dispose()
