"""A real cluster for the tests: `ringfence dev` on free ports.

The binary is that of RINGFENCE_BIN; without it one is built with cargo.
"""

from __future__ import annotations

import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import pytest

import postgres_server
import ringfence

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Seconds until a cluster has formed on a machine that is busy.
FORMED = 60.0


def binary() -> pathlib.Path:
    """The server's binary."""
    given = os.environ.get("RINGFENCE_BIN")
    if given:
        path = pathlib.Path(given)
        path = path if path.is_absolute() or path.exists() else ROOT / path
        assert path.exists(), f"RINGFENCE_BIN is {given}, which does not exist"
        return path.resolve()
    subprocess.run(["cargo", "build", "--package", "ringfence"], cwd=ROOT, check=True)
    return ROOT / "target" / "debug" / "ringfence"


def free_block(ports: int) -> int:
    """The first of so many ports in a row that no process listens on."""
    for _ in range(100):
        first = random.randrange(20_000, 30_000)
        try:
            for port in range(first, first + ports):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


class Cluster:
    """Three nodes, each a process of its own."""

    def __init__(self, program: pathlib.Path, *arguments: str) -> None:
        self.program = program
        for _ in range(3):
            if self._start(arguments):
                return
        raise AssertionError(f"no cluster has formed: {self.log.read_text()}")

    def _start(self, arguments: tuple[str, ...]) -> bool:
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringfence-python-"))
        self.log = self.folder / "dev.log"
        port = free_block(23)
        command = [str(self.program), "dev", "--port", str(port), *arguments]
        command += ["--data-dir", str(self.folder / "data")]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        deadline = time.monotonic() + FORMED
        while time.monotonic() < deadline and self.process.poll() is None:
            rows = re.findall(r"^(n\d)\s+(127\.0\.0\.1:\d+)\s+\S+\s+(\d+)", self.log.read_text(), re.M)
            if len(rows) == 3:
                self.endpoints = [address for _, address, _ in rows]
                self.pids = {name: int(pid) for name, _, pid in rows}
                return True
            time.sleep(0.1)
        self.stop()
        return False

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, *arguments: str) -> str:
        """Runs the command line against this cluster; returns what it prints."""
        done = subprocess.run(
            [str(self.program), *arguments, "--endpoints", ",".join(self.endpoints)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def revoke(self, lease: ringfence.Lease, *arguments: str) -> None:
        self.command(
            "lease", "revoke", lease.name, str(lease.token), "--reason", "drill", *arguments
        )

    def leader(self) -> str:
        """The name of the node that leads."""
        for line in self.command("cluster", "status").splitlines():
            fields = line.split()
            if len(fields) > 2 and fields[2] == "leader":
                return fields[1]
        raise AssertionError("no node leads")

    def signal(self, number: int) -> None:
        """Sends a signal to all nodes."""
        for pid in self.pids.values():
            os.kill(pid, number)

    def connect(self, **arguments: object) -> ringfence.Client:
        return ringfence.connect(self.endpoints, **arguments)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def program() -> pathlib.Path:
    return binary()


@pytest.fixture(scope="session")
def cluster(program: pathlib.Path) -> Iterator[Cluster]:
    """One that all tests share; a test that harms it takes one of its own."""
    cluster = Cluster(program)
    yield cluster
    cluster.stop()


@pytest.fixture
def own_cluster(program: pathlib.Path) -> Iterator[Cluster]:
    cluster = Cluster(program)
    yield cluster
    cluster.stop()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[ringfence.Client]:
    with cluster.connect() as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A lease name that no other test uses."""
    test = re.sub(r"[^A-Za-z0-9]", "-", request.node.name)[:80]
    return f"tests/{test}-{random.randrange(10**9)}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A server of its own; the address of its database."""
    pytest.importorskip("psycopg")
    if postgres_server.programs() is None:
        pytest.skip("MISSING: initdb; install postgresql to test the guard in it")
    with postgres_server.running() as address:
        yield address


def python(source: str, *arguments: str) -> subprocess.Popen[str]:
    """Another process that runs this source."""
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "client" / "python"), PYTHONUNBUFFERED="1")
    return subprocess.Popen(
        [sys.executable, "-c", source, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
