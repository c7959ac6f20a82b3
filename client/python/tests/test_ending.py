"""What is left of a client when the interpreter ends: its threads have ended by then, and no answer comes."""

from __future__ import annotations

import subprocess

import pytest

from conftest import python
from scripted import Scripted

HOLDING = """
import sys, ringfence
client = ringfence.connect(sys.argv[1], request_timeout=2)
session = client.session()
"""

# A program that ends while it holds a lease, in which the interpreter runs code of its own at the end.
ENDINGS = {
    "a generator within the block": """
def work():
    with client.lock("a") as lease:
        yield lease
working = work()
next(working)
working.gi_frame.f_locals["lease"].me = working  # A cycle: collected when the threads have ended.
""",
    "a finalizer that releases": """
class Worker:
    def __init__(self):
        self.lease, self.me = session.acquire("a"), self
    def __del__(self):
        self.lease.release()
Worker()
""",
    "a finalizer that closes": """
class Worker:
    def __init__(self):
        self.me = self
    def __del__(self):
        session.close()
        client.close()
Worker()
""",
    "a finalizer that asks": """
class Worker:
    def __init__(self):
        self.me, self.get = self, client.get
    def __del__(self):
        try:
            self.get("a")
        except Exception as error:
            print(error)
Worker()
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends_whatever_is_released_at_its_end(ending: str) -> None:
    server = Scripted()
    process = python(f"import gc; gc.disable()\n{HOLDING}{ENDINGS[ending]}", server.endpoint)
    try:
        said, _ = process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    finally:
        server.stop()
    assert process.returncode == 0
    if "asks" in ending:
        assert "interpreter ends" in said
