"""The client for threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import TimeoutError as FutureTimeout
from types import TracebackType

from ringfence import _clock
from ringfence._clock import nanos
from ringfence._connection import Options
from ringfence._core import (
    TTL_MAX,
    AcquireOptions,
    ClientCore,
    Transferred,
    checked_name,
    checked_seconds,
    unique_identity,
)
from ringfence._credential import TLS, Credential
from ringfence._endpoints import ENCRYPTED, PLAIN, parse_all
from ringfence._grpc import connecting
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
from ringfence._session import Grant, Hook, SessionCore
from ringfence._waiting import log, run_sync, run_sync_or_on
from ringfence.errors import ConnectError, LeaseLost, Loss, NotWaiting, RingfenceError

# Seconds.
TTL_DEFAULT = 15.0
# Of the times that a user allows for a probe a tenth is left for connecting again.
_PROBED = 0.9


def start(
    endpoints: str | Iterable[str],
    token: str | None,
    token_file: str | os.PathLike[str] | None,
    tls: TLS | None,
    connect_timeout: float,
    request_timeout: float,
    probe_interval: float,
    probe_timeout: float,
) -> ClientCore:
    """A client that has begun to connect; raises ConnectError or InvalidRequest."""
    connecting()
    texts = [endpoints] if isinstance(endpoints, str) else list(endpoints)
    parsed = parse_all(texts)
    begins = [text.strip() for text in texts]
    encrypted = next((text for text in begins if text.startswith(ENCRYPTED)), None)
    plain = next((text for text in begins if text.startswith(PLAIN)), None)
    if encrypted is not None and tls is None:
        raise ConnectError(f"{encrypted} asks for TLS; give `tls=TLS(ca=...)` with the CA to trust")
    if tls is not None:
        if plain is not None:
            raise ConnectError(f"{plain} is without TLS, but TLS was set up")
        tls.credentials()  # So that what is wrong with its files is reported at once.
    options = Options(
        connect_timeout=checked_seconds("the connect timeout", connect_timeout, 0.001, 3_600),
        request_timeout=checked_seconds("the request timeout", request_timeout, 0.001, 3_600),
        probe_interval=nanos(_PROBED * probe_interval),
        probe_timeout=nanos(_PROBED * probe_timeout),
        credential=Credential(token, token_file),
        tls=tls,
    )
    checked_seconds("the probe interval", probe_interval, 0.1, 3_600)
    checked_seconds("the probe timeout", probe_timeout, 0.1, 3_600)
    _clock.warn_unless_suspend_counts()
    core = ClientCore(parsed, options)
    core.transport.start()
    return core


def connect(
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
    """Connects to a cluster. One client is enough for a program; it is safe for all its threads.

    `endpoints`: addresses of members, `HOST:PORT`, or `unix:/PATH`, the socket `admin.sock` in the
    data directory of a node on this machine. One that works is enough, since each member names the
    leader; several survive the loss of one. 1 to 64.

    `token`: a bearer token to show with every call: a cluster token, or what an identity provider
    gave. `token_file`: the same in a file of at most 8 KiB, which may be replaced at any time; it is
    looked at every 5 s, one with a JSON Web Token from two thirds of its lifetime on, and when the
    token is refused. No lease is lost by that. `tls`: see `TLS`.

    `connect_timeout`: seconds until this fails. `request_timeout`: seconds for which a request is
    tried, retries included; an acquire has its wait on top. `probe_interval` and `probe_timeout`: a
    connection that is dead or half-open is replaced within the sum of both, in seconds, and sooner
    where TTLs are short.

    Raises `ConnectError` if an endpoint, a certificate or a token cannot be used, no member answers
    in time, or all refuse who the client is; `InvalidRequest` if a time is out of range.
    """
    core = start(
        endpoints, token, token_file, tls, connect_timeout, request_timeout, probe_interval, probe_timeout
    )
    try:
        run_sync(core.greeted())
        return Client(core)
    except BaseException:
        core.stop()
        raise


class Client:
    """A connection to a cluster; `connect` makes one. Use it in a `with` block, or call `close`.

    It belongs to the process that made it: in a child that was forked it holds nothing, each check
    raises, and each request is refused. Connect after the fork."""

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
    ) -> Lease:
        """Acquires the lease `name` under a session of its own, which is closed when the lease is
        released. For several leases open one `session`.

        `wait`: seconds, outages included; None waits as long as it takes, 0 does not wait.
        `ttl`: seconds for which the session outlives its last acknowledged keep-alive; within the
        cluster's bounds, normally 1 s to 5 min. `identity`: for people, at most 255 bytes; unique
        unless set. `data`: at most 1 KiB, published with the grant. `lock_delay`: seconds, at most
        60, for which no session is granted the lease if this grant ends by expiry or revoke.
        `on_loss`, `on_jeopardy`: see `Lease.on_loss` and `session`.

        Raises `Held`, `Queued` or `Blocked` if it does not wait and the lease is not free,
        `AcquireTimeout` when the wait is over, another `Refused` if the cluster will not grant it,
        `Unavailable` or `OutcomeUnknown` if the wait is over in an outage (nothing is left behind),
        `InvalidRequest`. Interrupting it, with Ctrl-C for example, leaves nothing behind either."""
        options = AcquireOptions.checked(0.0, data, lock_delay)
        identity = unique_identity() if identity is None else identity
        ttl_ns = checked_seconds("the TTL", ttl, 0.001, TTL_MAX)
        asked = self._core.lock(checked_name(name), limit_of(wait), ttl_ns, identity, options)
        claim = run_sync(asked)
        lease = Lease(claim.session, claim.grant, True, claim)
        if on_jeopardy is not None:
            claim.session.jeopardy_hooks.append(on_jeopardy)
        if on_loss is not None:
            lease.on_loss(on_loss)
        return lease

    def session(
        self,
        *,
        ttl: float = TTL_DEFAULT,
        identity: str | None = None,
        on_jeopardy: Callable[[float], object] | None = None,
    ) -> Session:
        """Opens a session and keeps it alive until it is closed or lost.

        `ttl`: seconds; see `lock`. `on_jeopardy` is called with the seconds that are left, on a thread
        of its own, when half the window has passed without an acknowledged keep-alive.

        Raises `Refused`, `Unavailable`, `OutcomeUnknown` (the session, if there is one, is kept alive
        by no thread and expires) or `InvalidRequest`."""
        identity = unique_identity() if identity is None else identity
        opening = run_sync(
            self._core.open_session(checked_seconds("the TTL", ttl, 0.001, TTL_MAX), identity)
        )
        if on_jeopardy is not None:
            opening.session.jeopardy_hooks.append(on_jeopardy)
        return Session(opening)

    def get(self, name: str) -> LeaseInfo:
        """A lease as the cluster sees it, linearizable. Raises `Refused` with the reason NOT_FOUND if
        the name was never granted, or is idle and forgotten."""
        return LeaseInfo.of_wire(run_sync(self._core.read("get", get_request(name))).lease)

    def verdict(self, fence: Fence) -> Verdict:
        """What a fence is worth at this instant, linearizable. Advice: exclusion is a guard inside
        the store."""
        return verdict_of(run_sync(self._core.read("check", check_request(fence))))

    @property
    def endpoint(self) -> str | None:
        """The address of the member that it is connected to; None while it is not."""
        return self._core.transport.endpoint

    def close(self) -> None:
        """Closes all sessions, which ends their leases, and ends the client's threads. Belief in all
        leases ends before a request leaves. Waits for at most the request timeout."""
        if run_sync_or_on(self._core.close()):
            self._core.join()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<client of {self.endpoint or 'no member at present'}>"


class Session(SessionBase):
    """A session: one keep-alive renews all leases that it holds, at most 4,096 leases and waits. Use it
    in a `with` block, or call `close`."""

    def acquire(
        self,
        name: str,
        *,
        wait: float = 0.0,
        data: bytes = b"",
        lock_delay: float = 0.0,
        on_loss: Hook | None = None,
    ) -> Lease:
        """Acquires the lease `name`. `wait`: seconds in the queue, at most 24 h; 0 does not wait. The
        others are as for `Client.lock`.

        Raises as `Client.lock` does, `SessionLost` if the session is over, and `LeaseLost` if the
        grant had ended when its answer came. After `OutcomeUnknown` the request is cancelled in the
        background; the next acquire of that name waits for that."""
        options = AcquireOptions.checked(wait, data, lock_delay)
        core = self._session.client
        claim = run_sync(core.acquire(self._session, checked_name(name), options))
        lease = Lease(self._session, claim.grant, False, claim)
        if on_loss is not None:
            lease.on_loss(on_loss)
        return lease

    def close(self) -> None:
        """Ends the session and what it holds. Belief ends before the request leaves. If the cluster
        does not answer within the request timeout, the session ends by its TTL."""
        session = self._session
        try:
            if os.getpid() == session.client.pid and not session.client.is_stopped:
                run_sync_or_on(_closed(session))
        except BaseException:
            session.client.close_soon(session)
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except BaseException:
            self._session.client.close_soon(self._session)
            raise


async def _closed(session: SessionCore) -> None:
    await session.client.close_session(session)


class Lease(LeaseBase):
    """A lease that is held, until it is lost or given up. Use it in a `with` block, or call
    `release`: a lease that no variable refers to is released, with a `ResourceWarning`.

        with client.lock("jobs/x") as lease:
            for job in jobs:
                lease.check()             # raises LeaseLost once the lease is lost
                write(job, lease.fence)   # the store's guard refuses a stale fence

    Leaving the block releases the lease. It is a check as well: a block that ends without an error
    although the lease was lost meanwhile raises `LeaseLost`."""

    def on_loss(self, hook: Hook) -> None:
        """Calls `hook` with the `Loss`, once, when the lease is lost against this client's will; at
        once if it is lost already. It runs on the client's thread for hooks, one hook after the
        other, and that thread competes for the GIL with the rest of the program: `check` is what is
        right at each instant."""
        self._add_hook(hook)

    def wait_lost(self, timeout: float | None = None) -> Loss | None:
        """Waits until the lease is lost or given up, for at most so many seconds; returns why, or
        None if it is still held."""
        until = None if timeout is None else _clock.now() + nanos(timeout)
        while self.loss is None:
            left = 0.5 if until is None else min(0.5, (until - _clock.now()) / 1e9)
            if left <= 0:
                return None
            try:
                self._grant.ended.result(timeout=left)
            except FutureTimeout:
                continue
        return self.loss

    def release(self) -> None:
        """Gives the lease back. Belief in it ends before the request leaves.

        Raises `LeaseLost` if it was lost or given up before, `OutcomeUnknown` or `Unavailable` if the
        cluster did not answer within the request timeout: it is repeated in the background, and the
        lease ends by its TTL at the latest."""
        try:
            run_sync_or_on(self._core.release(self._session, self._grant, self._owns_session))
        except RingfenceError:
            raise
        except BaseException:
            self._go_on()
            raise

    def transfer(self, to: int | None = None) -> Transferred:
        """Hands the lease over to the session with the number `to`, which must be waiting for it, or
        to the head of the queue: a new token, no gap, no overlap. Belief in it ends before the
        request leaves.

        Raises `NotWaiting` if no such session waits: its attribute `lease` is the lease, held again
        as another object. Raises `LeaseLost`, or as `release` does; the lease is then given up."""
        try:
            outcome = run_sync(self._core.transfer(self._session, self._grant, to))
        except BaseException:
            if self._grant.is_untold():
                self._go_on()
            raise
        return self._transferred(outcome)

    def _transferred(self, outcome: Transferred | Grant) -> Transferred:
        if isinstance(outcome, Transferred):
            if self._owns_session:
                self._core.close_in_background(self._session)
            return outcome
        error = NotWaiting("NOT_WAITING", f"no such session waits for {self.name}")
        error.lease = Lease(self._session, outcome, self._owns_session)
        self._passed_on = True
        raise error

    def __enter__(self) -> Lease:
        self.check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except LeaseLost as lost:
            if error is None and not lost.loss.is_own_doing:
                raise
        except RingfenceError as trouble:
            log.warning("%s is not released yet: %s", self.fence, trouble)
        except BaseException:
            self._go_on()
            raise
