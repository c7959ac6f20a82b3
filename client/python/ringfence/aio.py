"""The client for asyncio: the same as `ringfence.connect`, with coroutines.

    from ringfence import aio

    async with await aio.connect(["127.0.0.1:7420"]) as client:
        async with client.lock("jobs/x") as lease:
            await lease.run(work(lease.fence))     # cancelled once the lease is lost

Keep-alives run on threads of the client, not in the event loop: a loop that is blocked by a program's
own code loses no lease by that, and `lease.check()` is right all the same. An acquire that is
cancelled, or whose timeout passes, leaves no grant behind and no place in the queue.

A client may be used in several event loops. Hooks run in the loop that set them; they may be
coroutine functions.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Generator, Iterable
from types import TracebackType
from typing import Any, TypeVar

from ringfence import _clock
from ringfence._client import TTL_DEFAULT, start
from ringfence._core import (
    THREADS_END,
    TTL_MAX,
    AcquireOptions,
    ClientCore,
    Transferred,
    checked_name,
    checked_seconds,
    unique_identity,
)
from ringfence._credential import TLS
from ringfence._lease import (
    Fence,
    LeaseBase,
    LeaseInfo,
    SessionBase,
    Verdict,
    check_request,
    get_request,
    limit_of,
    verdict_of,
)
from ringfence._session import Hook
from ringfence._waiting import log, run_async
from ringfence.errors import LeaseLost, Loss, NotWaiting, RingfenceError

T = TypeVar("T")

# How often a task that waits for a loss asks the clock, in seconds: timers of the system stand
# still while the machine is suspended.
_LOOK = 0.5


def _in_loop(hook: Callable[[Any], object]) -> Callable[[Any], None]:
    """Calls the hook in the running event loop, from any thread."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[Any]] = set()

    def call(value: object) -> None:
        result = hook(value)
        if inspect.iscoroutine(result):
            task = loop.create_task(result)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    def hand_over(value: object) -> None:
        try:
            loop.call_soon_threadsafe(call, value)
        except RuntimeError:
            log.warning("a hook was not called: its event loop is closed")

    return hand_over


async def connect(
    endpoints: str | Iterable[str],
    *,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    tls: TLS | None = None,
    connect_timeout: float = 5.0,
    request_timeout: float = 10.0,
    probe_interval: float = 2.0,
    probe_timeout: float = 2.0,
) -> Client:
    """Connects to a cluster; see `ringfence.connect` for the arguments and errors."""
    core = start(
        endpoints, token, token_file, tls, connect_timeout, request_timeout, probe_interval, probe_timeout
    )
    try:
        await run_async(core.greeted())
        return Client(core)
    except BaseException:
        core.stop()
        raise


class Client:
    """A connection to a cluster; see `ringfence.Client`."""

    def __init__(self, core: ClientCore) -> None:
        self._core = core

    def lock(
        self,
        name: str,
        *,
        wait: float | None = None,
        ttl: float = TTL_DEFAULT,
        identity: str | None = None,
        data: bytes = b"",
        lock_delay: float = 0.0,
        on_loss: Hook | None = None,
        on_jeopardy: Callable[[float], object] | None = None,
    ) -> LockRequest:
        """Acquires the lease `name` under a session of its own: await it, or use it in an
        `async with`. Arguments and errors are those of `ringfence.Client.lock`."""
        options = AcquireOptions.checked(0.0, data, lock_delay)
        ttl_ns = checked_seconds("the TTL", ttl, 0.001, TTL_MAX)
        name, limit = checked_name(name), limit_of(wait)

        async def acquire() -> Lease:
            who = unique_identity() if identity is None else identity
            claim = await run_async(self._core.lock(name, limit, ttl_ns, who, options))
            lease = Lease(claim.session, claim.grant, True, claim)
            if on_jeopardy is not None:
                claim.session.jeopardy_hooks.append(_in_loop(on_jeopardy))
            if on_loss is not None:
                lease.on_loss(on_loss)
            return lease

        return LockRequest(acquire)

    async def session(
        self,
        *,
        ttl: float = TTL_DEFAULT,
        identity: str | None = None,
        on_jeopardy: Callable[[float], object] | None = None,
    ) -> Session:
        """Opens a session; see `ringfence.Client.session`."""
        identity = unique_identity() if identity is None else identity
        ttl_ns = checked_seconds("the TTL", ttl, 0.001, TTL_MAX)
        opening = await run_async(self._core.open_session(ttl_ns, identity))
        if on_jeopardy is not None:
            opening.session.jeopardy_hooks.append(_in_loop(on_jeopardy))
        return Session(opening)

    async def get(self, name: str) -> LeaseInfo:
        """A lease as the cluster sees it; see `ringfence.Client.get`."""
        reply = await run_async(self._core.read("get", get_request(name)))
        return LeaseInfo.of_wire(reply.lease)

    async def verdict(self, fence: Fence) -> Verdict:
        """What a fence is worth at this instant; see `ringfence.Client.verdict`."""
        return verdict_of(await run_async(self._core.read("check", check_request(fence))))

    @property
    def endpoint(self) -> str | None:
        """The address of the member that it is connected to; None while it is not."""
        return self._core.transport.endpoint

    async def close(self) -> None:
        """Closes all sessions and ends the client's threads; see `ringfence.Client.close`."""
        await run_async(self._core.close())
        until = _clock.now() + THREADS_END
        while self._core.transport.threads() and _clock.now() < until:
            await asyncio.sleep(0.01)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<client of {self.endpoint or 'no member at present'}>"


class LockRequest:
    """What `Client.lock` gives: await it for the `Lease`, or use it in an `async with`."""

    def __init__(self, acquire: Callable[[], Awaitable[Lease]]) -> None:
        self._acquire = acquire
        self._lease: Lease | None = None

    def __await__(self) -> Generator[Any, Any, Lease]:
        return self._acquire().__await__()

    async def __aenter__(self) -> Lease:
        self._lease = await self._acquire()
        return self._lease

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            await lease.__aexit__(kind, error, trace)


class Session(SessionBase):
    """A session; see `ringfence.Session`."""

    async def acquire(
        self,
        name: str,
        *,
        wait: float = 0.0,
        data: bytes = b"",
        lock_delay: float = 0.0,
        on_loss: Hook | None = None,
    ) -> Lease:
        """Acquires the lease `name`; see `ringfence.Session.acquire`."""
        options = AcquireOptions.checked(wait, data, lock_delay)
        core = self._session.client
        claim = await run_async(core.acquire(self._session, checked_name(name), options))
        lease = Lease(self._session, claim.grant, False, claim)
        if on_loss is not None:
            lease.on_loss(on_loss)
        return lease

    async def close(self) -> None:
        """Ends the session and what it holds; see `ringfence.Session.close`."""
        core = self._session.client
        if os.getpid() == core.pid and not core.is_stopped:
            try:
                await run_async(core.close_session(self._session))
            except BaseException:
                core.close_soon(self._session)
                raise

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def _stop(task: asyncio.Future[Any]) -> None:
    """Cancels a task and waits for its end, however often the caller is cancelled meanwhile: the lease must
    not be given back under work that goes on."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as again:
            cancelled = again
    if cancelled is not None:
        raise cancelled


class Lease(LeaseBase):
    """A lease that is held, until it is lost or given up; see `ringfence.Lease`."""

    def on_loss(self, hook: Hook) -> None:
        """Calls `hook` with the `Loss`, once, in the running event loop, when the lease is lost
        against this client's will. A loop that is blocked calls it late: `check` is what is right at
        each instant."""
        self._add_hook(_in_loop(hook))

    async def wait_lost(self) -> Loss:
        """Waits until the lease is lost or given up; returns why."""
        loop = asyncio.get_running_loop()
        here: asyncio.Future[None] = loop.create_future()

        def look() -> None:
            if not here.done():
                here.set_result(None)

        def ended() -> None:
            try:
                loop.call_soon_threadsafe(look)
            except RuntimeError:
                pass  # The loop was closed: no task waits there any more.

        self._grant.wake_at_end(ended)
        try:
            while True:
                loss = self.loss
                if loss is not None:
                    return loss
                here = loop.create_future()
                timer = loop.call_later(_LOOK, look)
                try:
                    # Belief may have ended since the clock was asked, and woken the one before.
                    if self._grant.over is None:
                        await here
                finally:
                    timer.cancel()
        finally:
            self._grant.wake_no_more(ended)

    async def run(self, work: Awaitable[T]) -> T:
        """Runs `work` until it is done or the lease is lost, whichever comes first; at loss `work` is
        cancelled and waited for, and `LeaseLost` is raised. So it is where the caller is cancelled,
        however often. Work that does not let the loop run is not stopped by this: it calls `check`."""
        task = asyncio.ensure_future(work)
        watch = asyncio.ensure_future(self.wait_lost())
        try:
            self.check()
            await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
                self.check()
            return task.result()
        finally:
            watch.cancel()
            await _stop(task)

    async def release(self) -> None:
        """Gives the lease back; see `ringfence.Lease.release`."""
        try:
            await run_async(self._core.release(self._session, self._grant, self._owns_session))
        except RingfenceError:
            raise
        except BaseException:
            self._go_on()
            raise

    async def transfer(self, to: int | None = None) -> Transferred:
        """Hands the lease over; see `ringfence.Lease.transfer`."""
        try:
            outcome = await run_async(self._core.transfer(self._session, self._grant, to))
        except BaseException:
            if self._grant.is_untold():
                self._go_on()
            raise
        if isinstance(outcome, Transferred):
            if self._owns_session:
                self._core.close_in_background(self._session)
            return outcome
        error = NotWaiting("NOT_WAITING", f"no such session waits for {self.name}")
        error.lease = Lease(self._session, outcome, self._owns_session)
        self._passed_on = True
        raise error

    async def __aenter__(self) -> Lease:
        self.check()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.release()
        except LeaseLost as lost:
            if error is None and not lost.loss.is_own_doing:
                raise
        except RingfenceError as trouble:
            log.warning("%s is not released yet: %s", self.fence, trouble)
        except BaseException:
            self._go_on()
            raise


