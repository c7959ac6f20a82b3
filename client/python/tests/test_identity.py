"""Who the client is: tokens, the local socket, TLS."""

from __future__ import annotations

import pathlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

import ringfence
from ringfence import LossKind

from conftest import Cluster


@pytest.fixture(scope="module")
def guarded(program: pathlib.Path) -> Iterator[Cluster]:
    """A cluster that enforces rights."""
    cluster = Cluster(program, "--access", "enforced")
    yield cluster
    cluster.stop()


def admin(cluster: Cluster, *arguments: str) -> str:
    """A command by the socket of a node, which may do everything."""
    done = subprocess.run(
        [str(cluster.program), f"--endpoints={socket_of(cluster)}", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def socket_of(cluster: Cluster) -> str:
    return f"unix:{cluster.folder / 'data' / 'n1' / 'admin.sock'}"


def test_without_a_right_the_cluster_refuses(guarded: Cluster, name: str) -> None:
    with guarded.connect() as client, pytest.raises(ringfence.AccessDenied) as refused:
        client.lock(name, wait=0)
    assert refused.value.reason == "PERMISSION_DENIED" and "rule" in refused.value.details


def test_a_token_that_proves_nothing_is_refused_and_not_shown(guarded: Cluster) -> None:
    token = "rft_7_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U"
    with pytest.raises(ringfence.ConnectError) as refused:
        guarded.connect(token=token, connect_timeout=2)
    assert isinstance(refused.value.__cause__, ringfence.AccessDenied)
    assert refused.value.__cause__.reason == "UNAUTHENTICATED"
    assert token not in str(refused.value) and "c2Vj" not in repr(refused.value)


def test_a_token_file_is_read_again_and_no_lease_is_lost(
    guarded: Cluster, name: str, tmp_path: pathlib.Path
) -> None:
    admin(guarded, "access", "grant", "token:worker", "acquire", "tests/*")
    file = tmp_path / "token"
    file.write_text(admin(guarded, "access", "token", "create", "worker", "--ttl", "1h").split()[-1])
    with guarded.connect(token_file=file) as client:
        with client.lock(name, ttl=15) as lease:
            old = file.read_text()
            file.write_text(admin(guarded, "access", "token", "create", "worker", "--ttl", "1h").split()[-1])
            assert file.read_text() != old
            time.sleep(8)
            assert client._core.options.credential.metadata() == [
                ("authorization", f"Bearer {file.read_text().strip()}")
            ]
            lease.check()
            assert client.get(name).token == lease.token


def test_the_socket_of_a_node_on_this_machine(guarded: Cluster, name: str) -> None:
    admin(guarded, "access", "grant", "local", "acquire", "tests/*")
    with ringfence.connect(socket_of(guarded)) as client:
        with client.lock(name, ttl=5) as lease:
            time.sleep(3)
            lease.check()
        assert client.endpoint is not None and client.endpoint.startswith("unix:")


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@pytest.fixture
def encrypted(program: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    """A node with TLS that asks for a certificate, and the folder of the certificates."""
    if shutil.which("openssl") is None:
        pytest.skip("MISSING: openssl; install it to test TLS")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=tmp_path)

    new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    openssl(*new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test CA",
            "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
    for who, alternative in [("server", "DNS:node.test"), ("me", "DNS:me.test")]:
        openssl(*new, "-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", f"{who}.key", "-out", f"{who}.pem",
                "-subj", f"/CN={who}", "-addext", f"subjectAltName={alternative}",
                "-addext", "basicConstraints=critical,CA:FALSE")  # fmt: skip
    client, peer, http = free_ports(3)
    command = [str(program), "serve", "--name", "n1", "--data-dir", str(tmp_path / "data")]
    for flag, port in [("client", client), ("peer", peer), ("http", http)]:
        command += [f"--listen-{flag}", f"127.0.0.1:{port}"]
    command += ["--cert-file", "server.pem", "--key-file", "server.key"]
    command += ["--trusted-ca-file", "ca.pem", "--client-cert-auth"]
    with (tmp_path / "log").open("w") as log:
        node = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    yield f"127.0.0.1:{client}", tmp_path
    node.send_signal(signal.SIGTERM)
    node.wait(timeout=20)


def test_tls_with_a_certificate_of_the_client(encrypted: tuple[str, pathlib.Path], name: str) -> None:
    endpoint, folder = encrypted
    tls = ringfence.TLS(
        ca=folder / "ca.pem", certificate=folder / "me.pem", key=folder / "me.key", server_name="node.test"
    )
    log = folder / "log"
    with ringfence.connect(f"https://{endpoint}", tls=tls, connect_timeout=20) as client:
        with client.lock(name, ttl=5) as lease:
            lease.check()
        assert lease.loss is not None and lease.loss.kind is LossKind.RELEASED, log.read_text()
    # Another name, no certificate, no TLS: none of them is served.
    for other in [
        {"tls": ringfence.TLS(ca=tls.ca, certificate=tls.certificate, key=tls.key, server_name="other.test")},
        {"tls": ringfence.TLS(ca=tls.ca, server_name="node.test")},
        {},
    ]:
        with pytest.raises(ringfence.ConnectError):
            ringfence.connect(endpoint, connect_timeout=1.5, **other)  # type: ignore[arg-type]
