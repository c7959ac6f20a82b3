"""What stands in the package: it fits the rest of the repository."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

import ringfence
from ringfence.guards import migration

from conftest import ROOT

HERE = ROOT / "client" / "python"


def test_the_messages_are_what_generation_gives() -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "generate.py"), "--check"], capture_output=True, text=True
    )
    if "pip" in done.stderr and done.returncode:
        pytest.skip(f"MISSING: the generator cannot be installed: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_the_sql_is_that_of_the_guards_in_rust(store: str) -> None:
    assert migration(store) == (ROOT / "crates" / "guard" / "sql" / f"{store}.sql").read_text()


def test_the_version_is_that_of_the_workspace() -> None:
    manifest = (ROOT / "Cargo.toml").read_text()
    found = re.search(r'^version = "([^"]+)"', manifest, re.M)
    assert found is not None and ringfence.__version__ == found.group(1)


def test_guards_need_no_store_until_they_are_used() -> None:
    source = "import sys, ringfence, ringfence.aio, ringfence.guards; " + (
        "assert not {'psycopg', 'sqlalchemy'} & set(sys.modules)"
    )
    environment = dict(os.environ, PYTHONPATH=str(HERE))
    subprocess.run([sys.executable, "-c", source], check=True, env=environment)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"endpoints": []}, "no endpoint"),
        ({"endpoints": "localhost"}, "port is missing"),
        ({"endpoints": "::1:7420"}, "brackets"),
        ({"endpoints": "a:1", "token": "two words"}, "space"),
        ({"endpoints": "a:1", "token": "t", "token_file": "f"}, "one of them"),
        ({"endpoints": "a:1", "token_file": "/dev/null"}, "no file"),
        ({"endpoints": "https://a:1"}, "asks for TLS"),
        ({"endpoints": "http://a:1", "tls": ringfence.TLS(ca=b"-----BEGIN")}, "without TLS"),
        ({"endpoints": "a:1", "tls": ringfence.TLS(ca=b"junk")}, "not PEM"),
        ({"endpoints": "127.0.0.1:1", "connect_timeout": 0.2}, "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_connected_is_refused_with_its_fault(arguments: dict[str, object], fault: str) -> None:
    with pytest.raises(ringfence.ConnectError, match=re.escape(fault)):
        ringfence.connect(**arguments)  # type: ignore[arg-type]


def test_a_token_is_in_no_message() -> None:
    with pytest.raises(ringfence.ConnectError) as refused:
        ringfence.connect("a:1", token="very secret")
    assert "very" not in str(refused.value)
    assert "BEGIN" not in repr(ringfence.TLS(ca="ca.pem", certificate="c.pem", key=b"-----BEGIN KEY"))


def test_errors_survive_a_pickle() -> None:
    import pickle

    for error in [
        ringfence.Held("HELD", "no", {"token": "7"}, 1.5),
        ringfence.LeaseLost(ringfence.Loss(ringfence.LossKind.FORKED), "a#7"),
    ]:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error)


@pytest.mark.parametrize("text", ["", "a", "a#", "a#0", "a#01", "a#-1", f"a#{2**63}", "a//b#1"])
def test_what_is_no_fence_is_refused(text: str) -> None:
    with pytest.raises(ringfence.InvalidRequest):
        ringfence.Fence.parse(text)


# What protoc makes of a later version of the same files, in a process that has this package too.
RAW = """
import ringfence
from google.protobuf import descriptor_pb2, descriptor_pool
from ringfence._proto import types_pb2
later = descriptor_pb2.FileDescriptorProto()
types_pb2.DESCRIPTOR.CopyToProto(later)
later.message_type.add(name="Later")
descriptor_pool.Default().AddSerializedFile(later.SerializeToString())
import ringfence.v1.raw as raw
print(raw.FOUND, ringfence.__version__)
"""


def test_generated_code_in_a_folder_of_the_same_name_is_found(tmp_path: pathlib.Path) -> None:
    """As the README of the repository makes it: `ringfence/v1` beside the program, without __init__."""
    (tmp_path / "ringfence" / "v1").mkdir(parents=True)
    (tmp_path / "ringfence" / "v1" / "raw.py").write_text("FOUND = 'found'")
    environment = dict(os.environ, PYTHONPATH=str(HERE))
    done = subprocess.run(
        [sys.executable, "-c", RAW], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.stdout.split() == ["found", ringfence.__version__], done.stderr
