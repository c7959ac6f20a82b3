"""Keeps the states of OpenTofu or Terraform, each under a fenced lease: a backend for `backend "http"`.

    python tofu_state.py --listen 127.0.0.1:8080 --database sqlite:///states.db
    tofu init

with this in the configuration:

    terraform {
      backend "http" {
        address        = "http://127.0.0.1:8080/network"
        lock_address   = "http://127.0.0.1:8080/network"
        unlock_address = "http://127.0.0.1:8080/network"
      }
    }

LOCK acquires the lease `tofu/network` and advances the guard in the database, so that a state is
written only under the newest lock: a process that was paused past its lease, woke up and writes is
refused with 409. Any number of these processes may serve one database.

The lease lasts until UNLOCK, however long `apply` takes. If tofu was killed, `tofu force-unlock ID`
ends it. This program has no passwords: listen on loopback, or put a proxy in front of it.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from sqlalchemy import create_engine, text

import ringfence
from ringfence.guards import GuardError
from ringfence.guards.sqlalchemy import SqlGuard

# A state of some ten thousand resources.
STATE_MAX = 64 * 1024 * 1024
# What a lease publishes is limited to 1 KiB; the rest of a lock's description is for people.
PUBLISHED = ("ID", "Operation", "Who", "Created")


class Refusal(Exception):
    """An answer that is not 200."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(body)
        self.status, self.body = status, body


class States:
    """The states in the database, and the locks that this process holds."""

    def __init__(self, client: ringfence.Client, database: str, ttl: float) -> None:
        self.client, self.ttl = client, ttl
        self.database = create_engine(database)
        self.locks: dict[str, tuple[str, ringfence.Lease]] = {}
        self.mutex = threading.Lock()
        SqlGuard("tofu/any").install(self.database)
        with self.database.begin() as setup:
            setup.execute(
                text("CREATE TABLE IF NOT EXISTS states (name TEXT PRIMARY KEY, body TEXT NOT NULL)")
            )

    def read(self, name: str) -> str:
        with self.database.begin() as reading:
            row = reading.execute(text("SELECT body FROM states WHERE name = :name"), {"name": name}).first()
        if row is None:
            raise Refusal(404, "no state yet")
        return str(row[0])

    def lock(self, name: str, body: str) -> str:
        wanted = json.loads(body)
        published = json.dumps({key: str(wanted[key])[:200] for key in PUBLISHED if key in wanted}).encode()
        try:
            lease = self.client.lock(f"tofu/{name}", wait=0, ttl=self.ttl, data=published)
        except (ringfence.Held, ringfence.Queued, ringfence.Blocked) as refused:
            holder = self.client.get(f"tofu/{name}").data.decode() or "{}"
            raise Refusal(423, holder) from refused
        # Before tofu reads: from now on no earlier holder can write.
        SqlGuard(f"tofu/{name}").advance(self.database, lease)
        with self.mutex:
            self.locks[name] = (str(wanted["ID"]), lease)
        return ""

    def write(self, name: str, lock: str, body: str | None) -> str:
        with self.mutex:
            held, lease = self.locks.get(name, ("", None))
        if lease is None or held != lock:
            raise Refusal(423, f"this process holds no lock {lock or 'without an ID'} of {name}")
        with SqlGuard(f"tofu/{name}").begin(self.database, lease) as write:
            write.execute(text("DELETE FROM states WHERE name = :name"), {"name": name})
            if body is not None:
                write.execute(
                    text("INSERT INTO states VALUES (:name, :body)"), {"name": name, "body": body}
                )
        return ""

    def unlock(self, name: str, body: str) -> str:
        # `force-unlock` sends nothing: it ends the lock whatever its ID.
        lock = str(json.loads(body)["ID"]) if body else ""
        with self.mutex:
            held, lease = self.locks.get(name, ("", None))
            if lease is None or (lock and lock != held):
                raise Refusal(409, f"this process holds no lock {lock} of {name}; `ringfence revoke` ends any")
            del self.locks[name]
        lease.release()
        return ""


class Handler(BaseHTTPRequestHandler):
    """One request of tofu."""

    protocol_version = "HTTP/1.1"
    states: States

    def answer(self) -> None:
        url = urlsplit(self.path)
        name = url.path.strip("/")
        length = int(self.headers.get("Content-Length") or 0)
        try:
            if not name or length > STATE_MAX:
                raise Refusal(400, f"expected /NAME and at most {STATE_MAX} bytes, got {url.path}, {length}")
            body = self.rfile.read(length).decode()
            lock = parse_qs(url.query).get("ID", [""])[0]
            said = {
                "GET": lambda: self.states.read(name),
                "LOCK": lambda: self.states.lock(name, body),
                "UNLOCK": lambda: self.states.unlock(name, body),
                "POST": lambda: self.states.write(name, lock, body),
                "DELETE": lambda: self.states.write(name, lock, None),
            }[self.command]()
            self.say(200, said)
        except Refusal as refusal:
            self.say(refusal.status, refusal.body)
        except (ringfence.LeaseLost, GuardError) as lost:
            self.say(409, f"the lock was lost, and nothing was written: {lost}")
        except (ringfence.RingfenceError, ValueError, KeyError) as error:
            self.say(503 if isinstance(error, ringfence.RingfenceError) else 400, str(error))

    do_GET = do_POST = do_DELETE = do_LOCK = do_UNLOCK = answer

    def say(self, status: int, body: str) -> None:
        content = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--listen", default="127.0.0.1:8080")
    options.add_argument("--database", default="sqlite:///states.db", help="a URL of SQLAlchemy")
    options.add_argument("--ttl", type=float, default=15.0, help="seconds a lock outlives this process")
    options.add_argument(
        "--endpoints",
        default=os.environ.get("RINGFENCE_ENDPOINTS", "127.0.0.1:7420,127.0.0.1:7430,127.0.0.1:7440"),
    )
    given = options.parse_args()
    host, port = given.listen.rsplit(":", 1)
    with ringfence.connect(given.endpoints.split(",")) as client:
        Handler.states = States(client, given.database, given.ttl)
        server = ThreadingHTTPServer((host, int(port)), Handler)
        print(f"listening on {host}:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
