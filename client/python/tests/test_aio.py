"""The client for asyncio, against a real cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

import ringfence
from ringfence import LossKind, aio
from ringfence.errors import Loss

from conftest import Cluster


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


async def no_waiters(client: aio.Client, name: str) -> None:
    for _ in range(250):
        if not (await client.get(name)).waiters:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it waits still")


def test_a_lease_is_granted_refused_and_released(cluster: Cluster, name: str) -> None:
    async def main() -> None:
        async with await aio.connect(cluster.endpoints) as client:
            async with client.lock(name, ttl=5) as lease:
                lease.check()
                with pytest.raises(ringfence.Held):
                    await client.lock(name, wait=0)
                assert (await client.get(name)).token == lease.token
            assert lease.loss == Loss(LossKind.RELEASED)
            assert await client.verdict(lease.fence) is ringfence.Verdict.ENDED
            async with await client.session(ttl=5) as session:
                again = await session.acquire(name)
                assert again.token > lease.token
                await again.release()

    run(main())


@pytest.mark.parametrize("how", ["lock", "session"])
def test_a_cancelled_acquire_leaves_nothing_behind(cluster: Cluster, name: str, how: str) -> None:
    async def main() -> None:
        async with await aio.connect(cluster.endpoints) as client:
            async with client.lock(name, ttl=10), await client.session(ttl=10) as session:
                if how == "lock":
                    waiting = asyncio.ensure_future(client.lock(name).__aenter__())
                else:
                    waiting = asyncio.ensure_future(session.acquire(name, wait=60))
                while not (await client.get(name)).waiters:
                    await asyncio.sleep(0.01)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await no_waiters(client, name)
            assert (await client.get(name)).token is None

    run(main())


def test_cancelled_at_any_moment_no_grant_is_left(cluster: Cluster, name: str) -> None:
    """The cancel meets the request before it is sent, on its way, and behind its grant."""

    async def main() -> None:
        async with await aio.connect(cluster.endpoints) as client, await client.session(ttl=10) as session:
            for step in range(40):
                acquiring = asyncio.ensure_future(session.acquire(name))
                await asyncio.sleep(step * 0.0005)
                acquiring.cancel()
                try:
                    await (await acquiring).release()
                except asyncio.CancelledError:
                    pass
            last = await session.acquire(name)  # Waits until all of them are settled.
            assert (await client.get(name)).token == last.token
            await last.release()
            assert (await client.get(name)).token is None

    run(main())


def test_work_is_cancelled_when_its_lease_is_lost(cluster: Cluster, name: str) -> None:
    async def main() -> None:
        losses: asyncio.Queue[Loss] = asyncio.Queue()
        async with await aio.connect(cluster.endpoints) as client:
            stopped = []

            async def work() -> None:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    stopped.append(True)
                    raise

            lease = await client.lock(name, ttl=6, on_loss=losses.put)
            working = asyncio.ensure_future(lease.run(work()))
            await asyncio.sleep(0.1)
            await asyncio.to_thread(cluster.revoke, lease)
            with pytest.raises(ringfence.LeaseLost):
                await working
            assert stopped == [True]
            assert (await asyncio.wait_for(losses.get(), 5)).kind is LossKind.GRANT_ENDED
            with pytest.raises(ringfence.LeaseLost):
                await lease.release()

    run(main())


def test_a_blocked_loop_loses_no_lease(cluster: Cluster, name: str) -> None:
    async def main() -> None:
        async with await aio.connect(cluster.endpoints) as client:
            async with client.lock(name, ttl=2) as lease:
                time.sleep(5)  # Lets go of the GIL, and not of the loop.
                lease.check()

    run(main())


def test_a_result_of_work_is_passed_on(cluster: Cluster, name: str) -> None:
    async def main() -> None:
        async with await aio.connect(cluster.endpoints) as client, client.lock(name) as lease:
            assert await lease.run(asyncio.sleep(0, "done")) == "done"
            with pytest.raises(ZeroDivisionError):
                await lease.run(asyncio.to_thread(lambda: 1 // 0))
            lease.check()

    run(main())


def test_leases_are_handed_over(cluster: Cluster, name: str) -> None:
    async def main() -> None:
        async with await aio.connect(cluster.endpoints) as client:
            async with await client.session(ttl=5) as giver, await client.session(ttl=5) as taker:
                lease = await giver.acquire(name)
                with pytest.raises(ringfence.NotWaiting) as refused:
                    await lease.transfer(taker.id)
                lease = refused.value.lease
                waiting = asyncio.ensure_future(taker.acquire(name, wait=30))
                while not (await client.get(name)).waiters:
                    await asyncio.sleep(0.01)
                done = await lease.transfer()
                assert (await waiting).token == done.token

    run(main())
