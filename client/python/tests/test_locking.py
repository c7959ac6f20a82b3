"""Leases against a real cluster: acquire, wait, release, hand over."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

import ringfence
from ringfence import LossKind, Verdict

from conftest import Cluster


def test_a_lease_is_granted_refused_to_others_and_released(client: ringfence.Client, name: str) -> None:
    with client.lock(name, ttl=5, data=b"10.0.0.1:80", identity="alice") as lease:
        lease.check()
        assert 3 < lease.remaining < 5
        assert str(lease.fence) == f"{name}#{lease.token}"
        assert ringfence.Fence.parse(str(lease.fence)) == lease.fence
        with pytest.raises(ringfence.Held) as held:
            client.lock(name, wait=0)
        assert held.value.token == lease.token and held.value.identity == "alice"
        assert not held.value.mine
        seen = client.get(name)
        assert seen.token == lease.token and seen.data == b"10.0.0.1:80"
        assert client.verdict(lease.fence) is Verdict.CURRENT
    with pytest.raises(ringfence.LeaseLost) as lost:
        lease.check()
    assert lost.value.loss.kind is LossKind.RELEASED
    assert client.verdict(lease.fence) is Verdict.ENDED


def test_tokens_grow_with_every_grant(client: ringfence.Client, name: str) -> None:
    tokens = []
    with client.session(ttl=5) as session:
        for _ in range(10):
            with session.acquire(name) as lease:
                tokens.append(lease.token)
    assert tokens == sorted(set(tokens))


def test_a_wait_that_is_over_leaves_no_place_in_the_queue(client: ringfence.Client, name: str) -> None:
    with client.lock(name):
        with pytest.raises(ringfence.AcquireTimeout), client.session(ttl=5) as session:
            session.acquire(name, wait=0.3)
        with pytest.raises(TimeoutError):
            client.lock(name, wait=0.3)
        assert client.get(name).waiters == 0


def test_waiters_are_served_in_their_order(client: ringfence.Client, name: str) -> None:
    order: list[int] = []
    threads = []

    def work(number: int) -> None:
        with client.lock(name, wait=30):
            order.append(number)

    with client.lock(name):
        for number in range(5):
            thread = threading.Thread(target=work, args=(number,))
            thread.start()
            threads.append(thread)
            while client.get(name).waiters <= number:
                time.sleep(0.01)
    for thread in threads:
        thread.join()
    assert order == list(range(5))


def test_one_holder_at_a_time_under_contention(client: ringfence.Client, name: str) -> None:
    inside, most, tokens = 0, 0, []

    def work() -> None:
        nonlocal inside, most
        for _ in range(5):
            with client.lock(name) as lease:
                inside += 1
                most = max(most, inside)
                tokens.append(lease.token)
                time.sleep(0.002)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1 and len(tokens) == 40 and tokens == sorted(set(tokens))


def test_an_interrupted_wait_leaves_nothing_behind(client: ringfence.Client, name: str) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with client.lock(name):
            with client.session(ttl=5) as session:
                signal.setitimer(signal.ITIMER_REAL, 0.5)
                with pytest.raises(KeyboardInterrupt):
                    session.acquire(name, wait=60)
                gone_by = time.monotonic() + 5
                while client.get(name).waiters and time.monotonic() < gone_by:
                    time.sleep(0.02)
                assert client.get(name).waiters == 0
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_lease_is_handed_over_without_a_gap(client: ringfence.Client, name: str) -> None:
    got: list[ringfence.Lease] = []
    with client.session(ttl=5) as giver, client.session(ttl=5) as taker:
        lease = giver.acquire(name)
        waiting = threading.Thread(target=lambda: got.append(taker.acquire(name, wait=30)))
        waiting.start()
        while not client.get(name).waiters:
            time.sleep(0.01)
        done = lease.transfer(taker.id)
        waiting.join()
        assert done.session == taker.id and done.token == got[0].token > lease.token
        assert not lease.is_valid and got[0].is_valid
        got[0].release()


def test_a_hand_over_to_a_session_that_does_not_wait_gives_the_lease_back(
    client: ringfence.Client, name: str
) -> None:
    with client.session(ttl=5) as giver, client.session(ttl=5) as other:
        lease = giver.acquire(name)
        with pytest.raises(ringfence.NotWaiting) as refused:
            lease.transfer(other.id)
        assert not lease.is_valid, "what was reported given up is never held again"
        again = refused.value.lease
        assert again.is_valid and again.token == lease.token
        again.release()


def test_belief_ends_before_the_release_leaves(own_cluster: Cluster, name: str) -> None:
    with own_cluster.connect(request_timeout=1) as client:
        lease = client.session(ttl=10).acquire(name)
        own_cluster.signal(signal.SIGSTOP)
        try:
            with pytest.raises(ringfence.OutcomeUnknown):
                lease.release()
            assert lease.loss is not None and lease.loss.kind is LossKind.RELEASED
        finally:
            own_cluster.signal(signal.SIGCONT)
        gone_by = time.monotonic() + 10
        while client.get(name).token is not None and time.monotonic() < gone_by:
            time.sleep(0.1)
        assert client.get(name).token is None, "it was repeated in the background"


def test_an_acquire_of_unknown_outcome_is_cancelled(own_cluster: Cluster, name: str) -> None:
    with own_cluster.connect(request_timeout=1) as client:
        session = client.session(ttl=20)
        own_cluster.signal(signal.SIGSTOP)
        try:
            with pytest.raises(ringfence.OutcomeUnknown):
                session.acquire(name)
        finally:
            own_cluster.signal(signal.SIGCONT)
        deadline = time.monotonic() + 20
        while True:
            try:
                first = session.acquire(name)
                break
            except (ringfence.Unavailable, ringfence.OutcomeUnknown):
                assert time.monotonic() < deadline
        # Whatever became of the first try, this is a grant of its own, and the only one.
        assert client.get(name).token == first.token


def test_a_cluster_that_is_gone_is_not_done(own_cluster: Cluster, name: str) -> None:
    with own_cluster.connect(request_timeout=1) as client:
        session = client.session(ttl=2)
        own_cluster.signal(signal.SIGKILL)
        time.sleep(0.5)
        with pytest.raises(ringfence.Unavailable):
            session.acquire(name)
        deadline = time.monotonic() + 5
        while session.loss is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert session.loss is not None and session.loss.kind is LossKind.WINDOW_PASSED
        with pytest.raises(ringfence.SessionLost):
            session.acquire(name)


def test_a_killed_leader_costs_no_lease(own_cluster: Cluster, name: str) -> None:
    with own_cluster.connect() as client:
        with client.lock(name, ttl=15) as lease:
            os.kill(own_cluster.pids[own_cluster.leader()], signal.SIGKILL)
            with client.lock(f"{name}/other", ttl=15, wait=30) as other:
                assert other.token > lease.token
            lease.check()
        assert client.verdict(lease.fence) is Verdict.ENDED, "released at the new leader"


def test_a_dropped_lease_is_released(client: ringfence.Client, name: str) -> None:
    with pytest.warns(ResourceWarning):
        client.lock(name)
        gone_by = time.monotonic() + 5
        while client.get(name).token is not None and time.monotonic() < gone_by:
            time.sleep(0.02)
    assert client.get(name).token is None


def test_closing_the_client_ends_its_sessions(cluster: Cluster, name: str) -> None:
    with cluster.connect() as observer:
        client = cluster.connect()
        lease = client.lock(name)
        client.close()
        assert lease.loss is not None and lease.loss.kind is LossKind.CLOSED
        assert observer.get(name).token is None
        with pytest.raises(ringfence.Unavailable):
            client.lock(name)


@pytest.mark.parametrize("bad", ["", "/", "a//b", "a/../b", "a b", "ä", "x" * 256, "a/"])
def test_a_name_that_is_none_is_refused_here(client: ringfence.Client, bad: str) -> None:
    with pytest.raises(ringfence.InvalidRequest):
        client.lock(bad)


def test_times_and_sizes_out_of_range_are_refused(client: ringfence.Client, name: str) -> None:
    for arguments in [{"wait": -1.0}, {"data": b"x" * 1_025}, {"lock_delay": 61.0}, {"ttl": 0.0}]:
        with pytest.raises(ringfence.InvalidRequest):
            client.lock(name, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ringfence.Refused) as refused:
        client.lock(name, ttl=0.001)
    assert refused.value.reason == "INVALID_ARGUMENT"
