"""What the stories need: stores, and holders of every recipe."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack

import page
import psycopg
import pytest
import stores
from holders import ALL, Holder, Missing, Recipe, build

Start = Callable[[str], Holder]


def without(missing: Missing) -> None:
    """Under CI nothing may be missing; elsewhere a test is left out, with a line at the end of the run."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"MISSING: {missing}")
    pytest.skip(f"NOT TESTED: {missing}")


@pytest.fixture(scope="session")
def built(request: pytest.FixtureRequest) -> dict[str, Future[list[str]]]:
    """The recipes of the tests that were asked for."""
    calls = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    asked = {call["recipe"].name for call in calls}
    return build([recipe for recipe in ALL if recipe.name in asked])


@pytest.fixture
def starter(built: dict[str, Future[list[str]]]) -> Iterator[Callable[[Recipe, str], Start]]:
    """Makes what starts holders of a recipe at a store; they end with the test."""
    started = []

    def of(recipe: Recipe, store: str) -> Start:
        try:
            command = built[recipe.name].result()
        except Missing as missing:
            without(missing)

        def start(who: str) -> Holder:
            started.append(Holder(recipe, command, store))
            return started[-1]

        return start

    yield of
    for holder in started:
        holder.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with ExitStack() as stack:
        try:
            address = stack.enter_context(stores.postgres())
        except Missing as missing:
            without(missing)
        yield address


@pytest.fixture
def database(postgres: str) -> Iterator[psycopg.Connection]:
    """The database with the schema of the guard, the table of the page and its trigger, all new."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(b"DROP TABLE IF EXISTS balance")
        connection.execute(b"DROP FUNCTION IF EXISTS set_balance")
        connection.execute(b"DROP SCHEMA IF EXISTS ringfence CASCADE")
        connection.execute(stores.SCHEMA.read_text().encode())
        connection.execute(b"CREATE TABLE balance (amount bigint NOT NULL)")
        connection.execute(b"INSERT INTO balance VALUES (100)")
        connection.execute(page.block("PostgreSQL, once", "sql").encode())
        yield connection


@pytest.fixture(scope="session")
def redis() -> Iterator[int]:
    with ExitStack() as stack:
        try:
            port = stack.enter_context(stores.redis())
        except Missing as missing:
            without(missing)
        yield port


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    with ExitStack() as stack:
        try:
            address = stack.enter_context(stores.s3())
        except Missing as missing:
            without(missing)
        yield address
