"""How a lease is lost: by a revoke, by a pause, by a starved program, by a fork."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import threading
import time

import pytest

import ringfence
from ringfence import LossKind, aio
from ringfence._connection import Options
from ringfence._core import ClientCore
from ringfence._credential import Credential
from ringfence._clock import NS_PER_S, now
from ringfence._proto import sessions_pb2, types_pb2
from ringfence._session import Grant, SessionCore
from ringfence.errors import Loss

from conftest import Cluster, python
from scripted import Frame, Scripted


def test_a_revoke_is_heard_by_hook_check_and_waiter(cluster: Cluster, client: ringfence.Client, name: str) -> None:
    losses: queue.Queue[Loss] = queue.Queue()
    with pytest.raises(ringfence.LeaseLost), client.lock(name, ttl=15, on_loss=losses.put) as lease:
        waited: list[Loss | None] = []
        waiter = threading.Thread(target=lambda: waited.append(lease.wait_lost(30)))
        waiter.start()
        started = time.monotonic()
        cluster.revoke(lease)
        loss = losses.get(timeout=30)
        assert loss.kind is LossKind.GRANT_ENDED
        assert "revoked" in loss.cause and "drill" in loss.cause
        waiter.join(timeout=10)
        assert waited == [loss]
        # The loss is acknowledged: the next holder does not wait for a TTL.
        with client.lock(name, wait=10) as other:
            assert other.token > lease.token
        assert time.monotonic() - started < 14
        # Leaving the block without an error is a check, too.
    assert losses.empty(), "once"


def test_a_hook_that_is_set_late_is_called_at_once(cluster: Cluster, client: ringfence.Client, name: str) -> None:
    losses: queue.Queue[Loss] = queue.Queue()
    with client.session(ttl=6) as session:
        lease = session.acquire(name)
        cluster.revoke(lease, "--now")
        assert lease.wait_lost(15) is not None
        lease.on_loss(losses.put)
        assert losses.get(timeout=5).kind is LossKind.GRANT_ENDED
        session.check()


def test_losing_one_lease_leaves_the_others(cluster: Cluster, client: ringfence.Client, name: str) -> None:
    with client.session(ttl=3) as session:
        lost, kept = session.acquire(f"{name}/a"), session.acquire(f"{name}/b")
        cluster.revoke(lost)
        assert lost.wait_lost(15) is not None
        time.sleep(4)
        kept.check()


HOLDER = """
import sys, ringfence
client = ringfence.connect(sys.argv[2:], request_timeout=1)
lease = client.lock(sys.argv[1], ttl=2)
print("held", lease.token, flush=True)
for line in sys.stdin:
    try:
        lease.check()
        print("valid", flush=True)
    except ringfence.LeaseLost as lost:
        print("lost", lost.loss.kind.name, flush=True)
"""


def test_a_holder_that_was_stopped_past_its_ttl_knows_at_once_and_without_a_network(
    own_cluster: Cluster, name: str
) -> None:
    holder = python(HOLDER, name, *own_cluster.endpoints)
    assert holder.stdin is not None and holder.stdout is not None
    try:
        held = holder.stdout.readline().split()
        assert held[0] == "held", held
        holder.stdin.write("check\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "valid\n"
        holder.send_signal(signal.SIGSTOP)
        with own_cluster.connect() as client:
            with client.lock(name, wait=30) as next_lease:
                assert next_lease.token > int(held[1])
                # No node answers from here on: what the holder finds out it finds out alone.
                own_cluster.signal(signal.SIGSTOP)
                holder.stdin.write("check\n")
                holder.stdin.flush()
                holder.send_signal(signal.SIGCONT)
                assert holder.stdout.readline() == "lost WINDOW_PASSED\n"
                own_cluster.signal(signal.SIGCONT)
    finally:
        own_cluster.signal(signal.SIGCONT)
        holder.kill()
        holder.wait()


# Holds the GIL for the whole time, as an extension that never lets go of it.
STARVED = """
import ctypes, sys, time, ringfence
client = ringfence.connect(sys.argv[2:])
lease = client.lock(sys.argv[1], ttl=1)
lease.check()
sys.setswitchinterval(1000)      # From here on no other thread of this program runs.
ctypes.PyDLL(None).usleep(2_000_000)
before = time.monotonic()
try:
    lease.check()
    print("valid")
except ringfence.LeaseLost as lost:
    print("lost", lost.loss.kind.name, time.monotonic() - before)
sys.setswitchinterval(0.005)
time.sleep(2)
print("later", lease.is_valid, flush=True)
"""


def test_a_starved_thread_makes_a_loss_and_never_a_false_belief(cluster: Cluster, name: str) -> None:
    starved = python(STARVED, name, *cluster.endpoints)
    out, _ = starved.communicate(timeout=60)
    first, later = out.strip().splitlines()[-2:]
    assert first.startswith("lost WINDOW_PASSED"), out
    assert float(first.split()[2]) < 0.5, "without waiting for anything"
    assert later == "later False", out


BUSY = """
import sys, threading, time, ringfence
client = ringfence.connect(sys.argv[4:])
ttl, threads = float(sys.argv[2]), int(sys.argv[3])
with client.lock(sys.argv[1], ttl=ttl) as lease:
    end = time.monotonic() + 2 * ttl
    least = [ttl]
    def burn():
        x = 0
        while time.monotonic() < end:
            for i in range(10_000):
                x = (x * 31 + i) % 1_000_003
            least[0] = min(least[0], lease.remaining)
    burners = [threading.Thread(target=burn) for _ in range(threads - 1)]
    for burner in burners: burner.start()
    burn()
    for burner in burners: burner.join()
    print("measured", f"{least[0]:.3f}", lease.is_valid, flush=True)
"""


@pytest.mark.parametrize(("threads", "ttl"), [(1, 3.0), (8, 10.0)])
def test_a_cpu_bound_program_keeps_its_lease(
    cluster: Cluster, name: str, threads: int, ttl: float
) -> None:
    """Two TTLs of a loop in pure Python: the keep-alives get their turns."""
    busy = python(BUSY, name, str(ttl), str(threads), *cluster.endpoints)
    out, _ = busy.communicate(timeout=120)
    print(f"\n{threads} busy threads, TTL {ttl} s: {out.strip()} (least seconds left, still held)")
    _, least, valid = out.strip().splitlines()[-1].split()
    assert valid == "True" and float(least) > 0, out


def test_a_child_that_was_forked_holds_nothing(cluster: Cluster, client: ringfence.Client, name: str) -> None:
    with client.lock(name, ttl=5) as lease, client.session(ttl=5) as session:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            said = []
            for ask in (lease.check, session.check, lease.release, lambda: client.lock(name)):
                try:
                    ask()
                    said.append("held")
                except ringfence.LeaseLost as lost:
                    said.append(lost.loss.kind.name)
                except BaseException as error:
                    said.append(repr(error))
            try:
                cluster.connect()
            except ringfence.ConnectError as error:
                said.append("forked" if "forked" in str(error) else repr(error))
            client.close()
            session.close()
            os.write(writer, " ".join([*said, str(lease.is_valid)]).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as answer:
            said = answer.read()
        os.waitpid(child, 0)
        assert said == "FORKED FORKED FORKED FORKED forked False"
        time.sleep(1)
        lease.check()


def idle_core() -> ClientCore:
    """A client without threads: nothing happens that a test does not do."""
    options = Options(NS_PER_S, NS_PER_S, NS_PER_S, NS_PER_S, Credential(None, None), None)
    return ClientCore(["127.0.0.1:1"], options)


def session_of(core: ClientCore, ttl: int = 60 * NS_PER_S) -> SessionCore:
    session = SessionCore(core, 3, b"s" * 16, ttl, now(), "test")
    core.keep(session)
    return session


def grant(token: int) -> Grant:
    return Grant(types_pb2.Grant(name="a", token=token, session=3))


@pytest.mark.parametrize("token", [1.5, 1.0, True, "7", None])
def test_a_token_is_an_integer(token: object) -> None:
    with pytest.raises(ringfence.InvalidRequest, match="is no integer"):
        ringfence.Fence("a", token)  # type: ignore[arg-type]


@pytest.mark.parametrize("ttl", [0, 86_400_001, 2**63, 2**64 - 1])
def test_a_ttl_that_no_cluster_grants_is_not_believed(ttl: int) -> None:
    server = Scripted()
    opened = sessions_pb2.OpenResponse(session=1, ttl_ms=ttl)
    server.answer = lambda request, _: Frame(open=opened) if request == "open" else None
    try:
        with ringfence.connect([server.endpoint], request_timeout=5) as client:
            with pytest.raises(ringfence.OutcomeUnknown, match=f"TTL of {ttl} ms"):
                client.session(ttl=2)
            opened.ttl_ms = 86_400_000
            assert client.session(ttl=2).ttl == 86_400
    finally:
        server.stop()


def test_work_under_a_lease_is_waited_for_however_often_its_caller_is_cancelled() -> None:
    async def main() -> None:
        session, held = session_of(idle_core()), grant(7)
        assert session.admit(held) is None
        lease, cancels, ended = aio.Lease(session, held, False), [], []

        async def work() -> None:
            for _ in range(50):
                try:
                    await asyncio.sleep(0.1)
                except asyncio.CancelledError:
                    cancels.append(lease.is_valid)
                if len(cancels) == 3:
                    break
            for _ in range(5):
                await asyncio.sleep(0)
            ended.append(lease.is_valid)

        running = asyncio.ensure_future(lease.run(work()))
        for count in range(3):
            await asyncio.sleep(0.02)
            assert len(cancels) == count and not running.done()
            running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert cancels == [True] * 3 and ended == [True]
        session.lose(Loss(LossKind.CLOSED))

    asyncio.run(main())


def test_a_grant_whose_end_was_listed_before_its_answer_came_is_not_believed() -> None:
    session = session_of(idle_core())
    session.grant_lost(7, Loss(LossKind.GRANT_ENDED))
    loss = session.admit(grant(7))
    assert loss is not None and loss.kind is LossKind.GRANT_ENDED
    assert session.admit(grant(8)) is None


def test_a_reply_that_comes_behind_the_window_revives_nothing() -> None:
    session = session_of(idle_core(), ttl=NS_PER_S // 5)
    held = grant(7)
    assert session.admit(held) is None
    sent = now()
    time.sleep(0.2)
    session.acknowledge(sent, [])
    assert session.loss_of(held) == Loss(LossKind.WINDOW_PASSED)
    session.acknowledge(now(), [])
    assert session.loss_of(held) == Loss(LossKind.WINDOW_PASSED)
    assert session.admit(grant(8)) is not None


def test_only_keep_alives_extend_and_from_their_send() -> None:
    session = session_of(idle_core())
    before = session.window.valid_until
    sent = now()
    session.acknowledge(sent, [])
    assert before < session.window.valid_until <= sent + session.ttl


def test_a_loss_is_acknowledged_only_when_belief_has_ended() -> None:
    session = session_of(idle_core())
    held = grant(7)
    session.admit(held)
    seen: list[object] = []
    held.hook(seen.append)
    session.grant_lost(7, Loss(LossKind.GRANT_ENDED))
    assert held.over is not None
    assert session.join_keep_alive(now()) == [7]
    # One of another client of the same session is not this one's to acknowledge.
    session.grant_lost(9, Loss(LossKind.GRANT_ENDED))
    assert session.join_keep_alive(now() + NS_PER_S * 60) == [7]


def test_another_cluster_ends_all_belief() -> None:
    core = idle_core()
    session = session_of(core)
    held = grant(7)
    session.admit(held)
    core.cluster_changed()
    assert held.over == Loss(LossKind.CLUSTER_CHANGED)


def test_the_secret_is_nowhere_to_be_seen() -> None:
    session = session_of(idle_core())
    secret = b"s" * 16
    for text in (repr(session), str(session), repr(vars(grant(7)))):
        assert "sss" not in text and secret.hex() not in text


def test_jeopardy_is_reported_once_and_with_what_is_left() -> None:
    core = idle_core()
    session = session_of(core, ttl=10 * NS_PER_S)
    left: queue.Queue[float] = queue.Queue()
    session.jeopardy_hooks.append(left.put)
    session.poll(now() + 6 * NS_PER_S)
    session.poll(now() + 7 * NS_PER_S)
    assert 3 < left.get(timeout=5) < 4 and left.empty()
    assert session.state is ringfence.SessionState.JEOPARDY


PARENT = """
import os, subprocess, sys, ringfence
with ringfence.connect(sys.argv[2:]) as client, client.lock(sys.argv[1], ttl=2) as lease:
    for _ in range(300):
        # With `preexec_fn` each Python forks; without it newer ones do not.
        done = subprocess.run(["true"], capture_output=True, preexec_fn=lambda: None)
        assert done.returncode == 0 and not done.stderr, done
        lease.check()
print("done")
"""


def test_other_programs_can_be_run_while_a_lease_is_held(cluster: Cluster, name: str) -> None:
    parent = python(PARENT, name, *cluster.endpoints)
    out, _ = parent.communicate(timeout=120)
    assert out == "done\n"
