"""A PostgreSQL server for tests, here and of the recipes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator


def programs() -> pathlib.Path | None:
    """The folder of PostgreSQL's programs."""
    found = shutil.which("initdb")
    folders = [pathlib.Path(found).resolve().parent] if found else []
    folders += sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@contextlib.contextmanager
def running() -> Iterator[str]:
    """A server of its own, if its programs are there; the address of its database."""
    import psycopg

    home = programs()
    assert home is not None, "no initdb"
    # In memory where there is such a folder: no test is about the loss of power.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ringfence-pg-", dir=memory))
    # PostgreSQL refuses to run as root.
    as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
    if as_user:
        shutil.chown(folder, "nobody", "nogroup")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = folder / "data"
    environment = dict(os.environ, LC_ALL="C", HOME=str(folder))
    init = [str(home / "initdb"), "-D", str(data), "-U", "test", "-A", "trust", "--no-sync", "-E", "UTF8"]
    made = subprocess.run([*as_user, *init], capture_output=True, text=True, env=environment, cwd=folder)
    assert made.returncode == 0, made.stdout + made.stderr
    serve = [str(home / "postgres"), "-D", str(data), "-p", str(port), "-k", str(folder)]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [*as_user, *serve, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"],
            stdout=log,
            stderr=log,
            env=environment,
            cwd=folder,
        )
    address = f"host=127.0.0.1 port={port} user=test dbname=postgres"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(address).close()
                break
            except psycopg.OperationalError:
                assert time.monotonic() < deadline and server.poll() is None, (folder / "log").read_text()
                time.sleep(0.1)
        yield address
    finally:
        # At once: SIGTERM would wait for every session, SIGINT for a checkpoint.
        server.send_signal(signal.SIGQUIT)
        server.wait(timeout=30)
        shutil.rmtree(folder, ignore_errors=True)
