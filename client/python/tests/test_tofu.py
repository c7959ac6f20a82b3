"""The recipe for the states of OpenTofu: its protocol, a holder that is paused, and `tofu` itself."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from conftest import ROOT, Cluster

Serve = Callable[[], "Backend"]


class Backend:
    """A process of the recipe."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path) -> None:
        recipe = ROOT / "client" / "python" / "examples" / "tofu_state.py"
        self.process = subprocess.Popen(
            [sys.executable, str(recipe), "--listen", "127.0.0.1:0", "--ttl", "2"]
            + ["--database", f"sqlite:///{folder}/states.db", "--endpoints", ",".join(cluster.endpoints)],
            env=dict(os.environ, PYTHONPATH=str(ROOT / "client" / "python")),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[-1]

    def ask(self, method: str, path: str, body: str = "") -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.address, timeout=30)
        connection.request(method, path, body)
        answer = connection.getresponse()
        said = answer.read().decode()
        connection.close()
        return answer.status, said


@pytest.fixture
def serve(cluster: Cluster, tmp_path: pathlib.Path) -> Iterator[Serve]:
    backends: list[Backend] = []

    def start() -> Backend:
        backends.append(Backend(cluster, tmp_path))
        return backends[-1]

    yield start
    for backend in backends:
        backend.process.kill()
        backend.process.wait()


def lock_of(who: str) -> str:
    return json.dumps({"ID": f"id-of-{who}", "Operation": "OperationTypeApply", "Who": who})


def test_a_state_is_locked_written_and_unlocked(serve: Serve, name: str) -> None:
    one, two = serve(), serve()
    path = f"/{name}"
    assert one.ask("GET", path)[0] == 404
    assert one.ask("LOCK", path, lock_of("anna"))[0] == 200
    # By any process, tofu learns whose lock it is.
    for backend in (one, two):
        status, said = backend.ask("LOCK", path, lock_of("ben"))
        assert (status, json.loads(said)["Who"]) == (423, "anna")
    assert one.ask("POST", f"{path}?ID=id-of-ben", '{"serial": 0}')[0] == 423
    assert one.ask("POST", f"{path}?ID=id-of-anna", '{"serial": 1}')[0] == 200
    assert two.ask("GET", path) == (200, '{"serial": 1}')
    assert two.ask("UNLOCK", path, lock_of("anna"))[0] == 409
    assert one.ask("UNLOCK", path, lock_of("anna"))[0] == 200
    assert two.ask("LOCK", path, lock_of("ben"))[0] == 200
    assert two.ask("DELETE", f"{path}?ID=id-of-ben")[0] == 200
    assert two.ask("GET", path)[0] == 404
    assert two.ask("LOCK", path, "no JSON")[0] == 400


def test_a_backend_that_wakes_behind_its_successor_writes_nothing(serve: Serve, name: str) -> None:
    paused, next_one = serve(), serve()
    path = f"/{name}"
    assert paused.ask("LOCK", path, lock_of("anna"))[0] == 200
    os.kill(paused.process.pid, signal.SIGSTOP)
    until = time.monotonic() + 60
    while next_one.ask("LOCK", path, lock_of("ben"))[0] != 200:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert next_one.ask("POST", f"{path}?ID=id-of-ben", '{"serial": 2}')[0] == 200
    os.kill(paused.process.pid, signal.SIGCONT)
    status, said = paused.ask("POST", f"{path}?ID=id-of-anna", '{"serial": 1}')
    assert status == 409 and "nothing was written" in said, said
    assert paused.ask("GET", path) == (200, '{"serial": 2}')


CONFIGURATION = """
terraform {
  backend "http" {
    address        = "http://ADDRESS/NAME"
    lock_address   = "http://ADDRESS/NAME"
    unlock_address = "http://ADDRESS/NAME"
  }
}
output "answer" { value = 42 }
"""


def test_tofu_itself(serve: Serve, name: str, tmp_path: pathlib.Path) -> None:
    tofu = os.environ.get("RINGFENCE_TOFU") or shutil.which("tofu") or shutil.which("terraform")
    if tofu is None:
        pytest.skip("NOT RUN: no tofu or terraform on the path; RINGFENCE_TOFU=PATH names one")
    backend = serve()
    configuration = CONFIGURATION.replace("ADDRESS", backend.address).replace("NAME", name)
    (tmp_path / "main.tf").write_text(configuration)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(tofu), *arguments, "-no-color"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert (made := run("init", "-input=false")).returncode == 0, made.stderr
    assert (made := run("apply", "-auto-approve", "-input=false")).returncode == 0, made.stderr
    status, state = backend.ask("GET", f"/{name}")
    assert status == 200 and json.loads(state)["outputs"]["answer"]["value"] == 42
    # Held by another: tofu says by whom, and does not go on.
    assert backend.ask("LOCK", f"/{name}", lock_of("anna"))[0] == 200
    refused = run("apply", "-auto-approve", "-input=false")
    assert refused.returncode != 0 and "anna" in refused.stderr, refused.stderr
    assert run("force-unlock", "-force", "id-of-anna").returncode == 0
    assert run("apply", "-auto-approve", "-input=false").returncode == 0
