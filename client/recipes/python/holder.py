"""A holder that a test commands: `RECIPE STORE`, then one command a line, one answer a line.

    advance TOKEN
    write TOKEN VALUE
    pause TOKEN VALUE      the same, with a pause before the change
    end TOKEN VALUE        the same, and before the pause the change ends its transaction
    aborted TOKEN VALUE    the change overlooks the error of a statement
    past TOKEN VALUE       the change alone, without the recipe

The answers are `done`, `stale`, `failed: WHY`, and `paused`, behind which any line lets it go on. `recipe`
is the block of the page.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import recipe

Command = Callable[[int, str], object]


def pause() -> None:
    print("paused", flush=True)
    sys.stdin.readline()


def psycopg_commands(store: str) -> tuple[type[Exception], dict[str, Command]]:
    import psycopg
    from ringfence.guards import StaleFence

    connection = psycopg.connect(store, autocommit=True)
    update = "UPDATE balance SET amount = %s"

    def write(value: str) -> Callable[[psycopg.Connection], object]:
        return lambda connection: connection.execute(update, (value,))

    def paused(connection: psycopg.Connection, value: str) -> None:
        pause()
        connection.execute(update, (value,))

    def ended(connection: psycopg.Connection, value: str) -> None:
        connection.execute("COMMIT")
        paused(connection, value)

    def overlooked(connection: psycopg.Connection, value: str) -> None:
        connection.execute(update, (value,))
        try:
            connection.execute("SELECT 1/0")
        except psycopg.Error:
            pass

    return StaleFence, {
        "advance": lambda token, _: recipe.advance(connection, token),
        "write": lambda token, value: recipe.write(connection, token, write(value)),
        "pause": lambda token, value: recipe.write(connection, token, lambda c: paused(c, value)),
        "end": lambda token, value: recipe.write(connection, token, lambda c: ended(c, value)),
        "aborted": lambda token, value: recipe.write(connection, token, lambda c: overlooked(c, value)),
        "past": lambda _, value: write(value)(connection),
    }


def redis_commands(store: str) -> tuple[type[Exception], dict[str, Command]]:
    import redis

    fenced = recipe.Fenced(redis.Redis(port=int(store)), "bank/interest")
    return recipe.Stale, {
        "advance": lambda token, _: fenced.write(token),
        "write": lambda token, value: fenced.write(token, ("SET", fenced.key("balance"), value)),
    }


def boto3_commands(store: str) -> tuple[type[Exception], dict[str, Command]]:
    import boto3

    s3 = boto3.client(
        "s3", endpoint_url=store, region_name="us-east-1", aws_access_key_id="ringfence", aws_secret_access_key="secret"
    )
    place = (s3, "bucket", "balance", "bank/interest")

    def paused(value: str) -> Callable[[object], bytes]:
        # Only the first time: what is read again is read behind the pause.
        waits = [pause]

        def change(_: object) -> bytes:
            while waits:
                waits.pop()()
            return value.encode()

        return change

    return recipe.Stale, {
        "advance": lambda token, _: recipe.write(*place, token, lambda body: body),
        "write": lambda token, value: recipe.write(*place, token, lambda _: value.encode()),
        "pause": lambda token, value: recipe.write(*place, token, paused(value)),
    }


def main() -> None:
    kinds = {"psycopg": psycopg_commands, "redis-py": redis_commands, "boto3": boto3_commands}
    stale, commands = kinds[sys.argv[1]](sys.argv[2])
    for line in sys.stdin:
        command, token, *value = line.split()
        try:
            commands[command](int(token), "".join(value))
            print("done", flush=True)
        except stale:
            print("stale", flush=True)
        except Exception as error:  # The test judges it.
            print("failed:", type(error).__name__, str(error).split("\n")[0], flush=True)


main()
