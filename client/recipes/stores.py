"""The stores that the recipes write to: real servers on free ports, gone with the tests."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from holders import ROOT, Missing, wait_until

sys.path.insert(0, str(ROOT / "client/python/tests"))
import postgres_server  # noqa: E402

SCHEMA = ROOT / "crates/guard/sql/postgres.sql"


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """PostgreSQL; its address as libpq writes it."""
    if postgres_server.programs() is None:
        raise Missing("the recipes for PostgreSQL need `initdb`: apt-get install postgresql")
    with postgres_server.running() as address:
        yield address


@contextlib.contextmanager
def redis() -> Iterator[int]:
    """Redis; its port."""
    program = shutil.which("redis-server")
    if program is None:
        raise Missing("the recipe for redis-py needs `redis-server`: apt-get install redis-server")
    port = free_port()
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with running([program, *arguments], port):
        yield port


@contextlib.contextmanager
def s3() -> Iterator[str]:
    """versitygw with a bucket; its address. RINGFENCE_S3 names the program, otherwise `cargo xtask s3` builds it."""
    program = os.environ.get("RINGFENCE_S3")
    if not program:
        built = subprocess.run(["cargo", "xtask", "s3"], cwd=ROOT, capture_output=True, text=True)
        if built.returncode != 0:
            raise Missing(f"the recipe for boto3 needs a server of S3, which `cargo xtask s3` builds: {built.stderr}")
        program = built.stdout.split()[-1]
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ringfence-s3-") as folder:
        root = pathlib.Path(folder) / "root"
        (root / "bucket").mkdir(parents=True)
        arguments = ["--access", "ringfence", "--secret", "secret", "--port", f"127.0.0.1:{port}"]
        with running([program, *arguments, "posix", str(root)], port):
            yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    """A server that listens on this port."""
    with tempfile.TemporaryDirectory(prefix="ringfence-store-") as folder:
        log = pathlib.Path(folder) / "log"
        with log.open("w") as output:
            server = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)

        def listens() -> bool:
            assert server.poll() is None, log.read_text()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        try:
            wait_until(listens, f"{command[0]} does not listen")
            yield
        finally:
            server.kill()
            server.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
