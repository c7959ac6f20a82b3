"""Each recipe of client/TOKENS.md against its real store, as it is printed: a holder with a newer token writes, the
stale holder is refused and its data is not there.

Tokens count from 1 in these stories, and are always of `bank/interest`.
"""

from __future__ import annotations

from collections.abc import Callable

import boto3
import page
import psycopg
import pytest
from holders import ALL, IN_POSTGRES, IN_REDIS, IN_S3, Recipe
from redis import Redis

from conftest import Start

Starter = Callable[[Recipe, str], Start]


def overtaking(start: Start, data: Callable[[], int]) -> None:
    """The story that all recipes share."""
    old, new = start("old"), start("new")
    assert old.ask("advance", 8) == "done"
    assert old.ask("write", 8, 101) == "done"
    assert data() == 101

    # The new holder has not written yet; what it is about to read stays as it is.
    assert new.ask("advance", 9) == "done"
    assert old.ask("write", 8, 666) == "stale"
    assert data() == 101
    assert new.ask("write", 9, 102) == "done"
    assert old.ask("write", 8, 666) == "stale"
    assert old.ask("advance", 8) == "stale"
    assert data() == 102

    # A restart of the client brings nothing back, and takes nothing from the holder.
    old.stop()
    new.stop()
    old, new = start("old"), start("new")
    assert old.ask("write", 8, 666) == "stale"
    assert data() == 102
    assert new.ask("write", 9, 103) == "done"
    assert data() == 103


def address(connection: psycopg.Connection, recipe: Recipe) -> str:
    """How the driver of this recipe writes the address of the database."""
    info = connection.info
    if recipe.name == "psycopg":
        return f"host={info.host} port={info.port} user={info.user} dbname={info.dbname}"
    if recipe.name == "JDBC":
        return f"jdbc:postgresql://{info.host}:{info.port}/{info.dbname}?user={info.user}"
    return f"postgres://{info.user}@{info.host}:{info.port}/{info.dbname}?sslmode=disable"


def amount(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT amount FROM balance").fetchone()
    assert row is not None
    return int(row[0])


def of(*recipes: Recipe) -> pytest.MarkDecorator:
    """Runs a test for each of these recipes."""
    return pytest.mark.parametrize("recipe", recipes, ids=[recipe.name for recipe in recipes])


in_postgres = of(*IN_POSTGRES)


@in_postgres
def test_in_postgres_the_stale_holder_writes_nothing(
    recipe: Recipe, starter: Starter, database: psycopg.Connection
) -> None:
    overtaking(starter(recipe, address(database, recipe)), lambda: amount(database))


@in_postgres
def test_a_change_that_commits_too_early_writes_nothing_behind_a_newer_holder(
    recipe: Recipe, starter: Starter, database: psycopg.Connection
) -> None:
    start = starter(recipe, address(database, recipe))
    old, new = start("old"), start("new")
    assert old.ask("advance", 8) == "done"
    # Its transaction is over, and with it what was admitted. It does not know.
    assert old.ask("end", 8, 666) == "paused"
    assert new.ask("advance", 9) == "done"
    assert new.ask("write", 9, 102) == "done"
    assert old.ask("go on").startswith("failed")
    assert amount(database) == 102
    # What is left of the connection leads no further write past the check.
    assert old.ask("write", 8, 666) == "stale"
    assert new.ask("write", 9, 103) == "done"
    assert amount(database) == 103


@in_postgres
def test_a_change_whose_connection_has_ended_goes_on_by_no_other_one(
    recipe: Recipe, starter: Starter, database: psycopg.Connection
) -> None:
    start = starter(recipe, address(database, recipe))
    old = start("old")
    assert old.ask("advance", 8) == "done"
    assert old.ask("pause", 8, 666) == "paused"
    # As `idle_in_transaction_session_timeout` ends it: until then it has the mark.
    database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' "
        "AND pid <> pg_backend_pid()"
    )
    new = start("new")
    assert new.ask("advance", 9) == "done"
    assert new.ask("write", 9, 102) == "done"
    assert old.ask("go on").startswith("failed")
    # Some pools connect again by now.
    assert old.ask("write", 8, 666) != "done"
    assert amount(database) == 102


@in_postgres
def test_what_a_driver_sends_without_an_admission_is_refused(
    recipe: Recipe, starter: Starter, database: psycopg.Connection
) -> None:
    holder = starter(recipe, address(database, recipe))("holder")
    assert holder.ask("write", 8, 101) == "done"
    assert "MISSING_FENCE" in holder.ask("past", 8, 666)
    assert amount(database) == 101


@in_postgres
def test_a_write_that_the_server_rolled_back_is_not_reported_as_done(
    recipe: Recipe, starter: Starter, database: psycopg.Connection
) -> None:
    holder = starter(recipe, address(database, recipe))("holder")
    assert holder.ask("aborted", 8, 666).startswith("failed")
    assert amount(database) == 100
    assert holder.ask("write", 8, 101) == "done"


@of(*[recipe for recipe in IN_POSTGRES if recipe.name == "JDBC"])
def test_with_savepoints_of_its_own_the_driver_writes_nothing(
    recipe: Recipe, starter: Starter, database: psycopg.Connection
) -> None:
    holder = starter(recipe, address(database, recipe) + "&autosave=always")("holder")
    assert "MISSING_FENCE" in holder.ask("write", 8, 666), "the page warns of it"
    assert amount(database) == 100


def test_one_statement_admits_and_writes_or_does_neither(database: psycopg.Connection) -> None:
    database.execute(page.block("One statement", "sql").encode())
    assert database.autocommit
    database.execute("SELECT set_balance(8, 101)")
    database.execute("SELECT ringfence.advance('bank/interest', 9)")
    with pytest.raises(psycopg.Error, match="STALE_TOKEN"):
        database.execute("SELECT set_balance(8, 666)")
    assert amount(database) == 101
    database.execute("SELECT set_balance(9, 102)")
    assert amount(database) == 102


def test_an_admission_within_the_statement_of_the_write_is_left_out_by_the_server(
    database: psycopg.Connection,
) -> None:
    database.execute("SELECT ringfence.advance('bank/interest', 9)")
    update = "WITH fence AS (SELECT ringfence.admit('bank/interest', 8)) UPDATE balance SET amount = 666"
    with pytest.raises(psycopg.Error, match="MISSING_FENCE"):
        database.execute(update)
    database.execute("DROP TRIGGER guarded ON balance")
    database.execute(update)
    assert amount(database) == 666, "the page warns of it"


@of(IN_REDIS)
def test_in_redis_the_stale_holder_writes_nothing(recipe: Recipe, starter: Starter, redis: int) -> None:
    with Redis(port=redis) as store:
        overtaking(starter(recipe, str(redis)), lambda: int(store.get("{bank/interest}:balance") or 100))


@of(IN_S3)
def test_in_s3_the_stale_holder_writes_nothing(recipe: Recipe, starter: Starter, s3: str) -> None:
    start = starter(recipe, s3)
    store = boto3.client(
        "s3", endpoint_url=s3, region_name="us-east-1", aws_access_key_id="ringfence", aws_secret_access_key="secret"
    )

    def body() -> int:
        content = store.get_object(Bucket="bucket", Key="balance")["Body"].read()
        return int(content.partition(b"\n\n")[2])

    overtaking(start, body)

    # Paused between its read and its write.
    old, new = start("old"), start("new")
    assert old.ask("pause", 9, 666) == "paused"
    assert new.ask("advance", 10) == "done"
    assert old.ask("go on") == "stale"
    assert body() == 103
    # Two writers of one holder: the later one looks again.
    assert old.ask("pause", 10, 105) == "paused"
    assert new.ask("write", 10, 104) == "done"
    assert old.ask("go on") == "done"
    assert body() == 105
    head = store.get_object(Bucket="bucket", Key="balance")["Body"].read().partition(b"\n\n")[0].decode()
    magic, lease, mark, revision, length, writes = head.split("\n")
    assert (magic, lease) == ("ringfence-guarded-object 1", "lease bank/interest")
    assert (mark, length) == ("mark 0000000000000000010", "body 0000000000000000003")
    # Advances of 8 and 9, three writes, an advance of 10, and the last two.
    assert revision == "revision 0000000000000000008"
    assert len(writes.split(" ")) == 1 + 8


def test_the_page_has_no_recipe_that_is_not_run() -> None:
    run = {(recipe.name, recipe.language) for recipe in ALL}
    run |= {("PostgreSQL, once", "sql"), ("One statement", "sql")}
    # Shell is for the test of all documents: tests/documents.
    run |= {("A service that cannot be changed", "sh")}
    assert set(page.blocks()) == run
