"""What a client leaves behind: no grant, no thread, no number and no memory, however a caller leaves; and
no caller hangs. Most of it against a scripted server."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import linecache
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ringfence
from ringfence import aio
from ringfence._calls import Call, CallFuture, Calls, Mode
from ringfence._proto import leases_pb2, sessions_pb2

from conftest import ROOT
from scripted import Frame, Scripted, refusal

PACKAGE = str(ROOT / "client" / "python" / "ringfence")


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    server = Scripted()
    yield server
    server.stop()


@pytest.fixture
def local(scripted: Scripted) -> Iterator[ringfence.Client]:
    client = ringfence.connect(scripted.endpoint, request_timeout=2)
    yield client
    scripted.answer = lambda request, body: None
    client.close()


def soon(true: Callable[[], bool], seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def threads_of_clients() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("ringfence-")}


# Growth.


def test_an_answered_request_leaves_no_deadline_behind() -> None:
    calls, resolved = Calls(), []  # type: ignore[var-annotated]
    for _ in range(5_000):
        # As that of `lock`, which waits for 12 h.
        call = Call("keep_alive", sessions_pb2.KeepAliveRequest(), Mode.PROMPT, 0, 10**18, CallFuture())
        number = calls.insert(call, resolved)
        assert number is not None
        calls.frame(number, 0)
        calls.answer(Frame(id=number, keep_alive=sessions_pb2.KeepAliveResponse()), 1, resolved)
    assert not calls.calls and len(calls.timers) < 500


def test_waiting_for_a_loss_leaves_nothing_behind(local: ringfence.Client, scripted: Scripted) -> None:
    async def main() -> None:
        async with await aio.connect(scripted.endpoint) as client, client.lock("a") as lease:
            for _ in range(20):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(lease.wait_lost(), 0.01)
                assert await lease.run(asyncio.sleep(0, "done")) == "done"
            waiting = asyncio.ensure_future(lease.wait_lost())
            await asyncio.sleep(1.7)
            assert not waiting.done()
            ended = lease._grant.ended
            assert len(ended._done_callbacks) <= 2  # type: ignore[attr-defined]
            waiting.cancel()

    asyncio.run(main())


def test_a_lock_that_was_lost_and_dropped_leaves_no_session(local: ringfence.Client) -> None:
    for number in range(5):
        lease = local.lock(f"a/{number}")
        lease.report_stale()
        del lease
    assert soon(lambda: not local._core.sessions())


# Threads.


def test_an_interrupted_connect_leaves_no_thread() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    silent = socket.create_server(("127.0.0.1", 0))  # Accepts, and never says anything.
    before = threads_of_clients()
    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            ringfence.connect(f"127.0.0.1:{silent.getsockname()[1]}", connect_timeout=30)
        assert soon(lambda: threads_of_clients() <= before, 10), threads_of_clients()
    finally:
        signal.signal(signal.SIGALRM, handler)
        silent.close()


def test_a_hook_that_exits_stops_no_other_hook(local: ringfence.Client) -> None:
    heard = threading.Event()
    first, second = local.session().acquire("a"), local.session().acquire("b")
    first.on_loss(lambda loss: sys.exit(1))
    second.on_loss(lambda loss: heard.set())
    first.report_stale()
    second.report_stale()
    assert heard.wait(5)


def test_closing_holds_up_no_event_loop() -> None:
    server = Scripted()

    async def main() -> None:
        client = await aio.connect(server.endpoint, request_timeout=0.3)
        session = await client.session()
        await asyncio.to_thread(server.stop)
        silent = socket.create_server(("127.0.0.1", int(server.endpoint.split(":")[1])))
        await asyncio.sleep(2)  # It connects to what never answers.
        latest, gaps = time.monotonic(), [0.0]

        async def beat() -> None:
            nonlocal latest
            while True:
                await asyncio.sleep(0.01)
                gaps.append(time.monotonic() - latest)
                latest = time.monotonic()

        beating = asyncio.ensure_future(beat())
        await asyncio.sleep(0.05)
        await client.close()
        await asyncio.sleep(0.05)
        beating.cancel()
        silent.close()
        assert session.loss is not None
        assert max(gaps) < 0.5, max(gaps)

    asyncio.run(main())


def test_a_client_that_is_closed_keeps_no_caller_busy(scripted: Scripted) -> None:
    """A release that is not answered, and a close meanwhile: it fails, and does not try on and on."""

    async def main() -> None:
        client = await aio.connect(scripted.endpoint, request_timeout=4)
        lease = await (await client.session()).acquire("a")
        asked = threading.Event()

        def answer(request: str, body: Any) -> Any:
            if request == "release":
                asked.set()
                return False
            return None

        scripted.answer = answer
        releasing = asyncio.ensure_future(lease.release())
        await asyncio.sleep(0.1)
        assert asked.is_set()
        started, used = time.monotonic(), time.process_time()
        await client.close()
        with pytest.raises((ringfence.OutcomeUnknown, ringfence.Unavailable)):
            await releasing
        assert time.monotonic() - started < 1.5 and time.process_time() - used < 1

    asyncio.run(main())


def test_settling_ends_with_the_client(scripted: Scripted) -> None:
    client = ringfence.connect(scripted.endpoint, request_timeout=3)
    session = client.session()
    lease = session.acquire("a")
    scripted.answer = lambda request, body: False if request == "release" else None
    with pytest.raises(ringfence.RingfenceError):
        lease.release()
    failed: list[BaseException] = []

    def again() -> None:
        try:
            session.acquire("a")
        except ringfence.RingfenceError as error:
            failed.append(error)

    acquiring = threading.Thread(target=again)
    acquiring.start()
    time.sleep(0.2)
    used = time.process_time()
    client.close()
    acquiring.join(1)
    assert failed and time.process_time() - used < 1


# Finalizers and handlers, which run anywhere.


def test_a_finalizer_that_releases_on_a_thread_of_the_client_holds_up_nothing(
    local: ringfence.Client,
) -> None:
    """The cycle collector runs finalizers of the program on whichever thread it is called."""

    class Worker:
        def __init__(self, lease: ringfence.Lease) -> None:
            self.lease = lease
            self.me = self

        def __del__(self) -> None:
            self.lease.release()

    gc.collect()
    gc.disable()
    try:
        kept = local.lock("kept")
        Worker(local.session().acquire("a"))
        transport = local._core.transport
        asked = transport.call("get", leases_pb2.GetRequest(name="a"), Mode.PROMPT, transport.deadline())
        asked.add_done_callback(lambda _: gc.collect() and None)
        started = time.monotonic()
        local.get("b")
        assert time.monotonic() - started < 1
        local.lock("a", wait=0).release()
        kept.release()
    finally:
        gc.enable()


class AtLine:
    """Does something once at the n-th line of this package that the present thread runs, as a handler of
    a signal would."""

    def __init__(self, number: int, what: Callable[[], object]) -> None:
        self.left, self.what, self.where = number, what, ""

    def __enter__(self) -> AtLine:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: Any, event: str, argument: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _line(self, frame: Any, event: str, argument: object) -> Any:
        # At the end of a `with` the line of its beginning comes once more, before the lock is given
        # back. There the interpreter calls no handler.
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        is_safe = frame.f_code.co_name == "__del__" or text.startswith("with ")
        if event == "line" and self.left >= 0 and not is_safe:
            self.left -= 1
            if self.left < 0:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                sys.settrace(None)
                self.what()
        return self._line


def interrupted() -> None:
    raise KeyboardInterrupt


def use_lock(client: ringfence.Client, session: ringfence.Session) -> None:
    with client.lock("a"):
        pass


def use_session(client: ringfence.Client, session: ringfence.Session) -> None:
    with session.acquire("a"):
        pass


# The leases of programs whose variables outlive the block, as those of a module or of `main` do.
kept: list[ringfence.Lease] = []


def use_kept_lock(client: ringfence.Client, session: ringfence.Session) -> None:
    with client.lock("a") as lease:
        kept[:] = [lease]


def use_kept_lease(client: ringfence.Client, session: ringfence.Session) -> None:
    with session.acquire("a") as lease:
        kept[:] = [lease]


def use_opened(client: ringfence.Client, session: ringfence.Session) -> None:
    with client.session():
        pass


@pytest.mark.parametrize("use", [use_lock, use_session, use_kept_lock, use_kept_lease, use_opened])
def test_interrupted_at_any_line_nothing_is_left(
    local: ringfence.Client, scripted: Scripted, use: Callable[..., None]
) -> None:
    faulthandler.dump_traceback_later(280, exit=True)
    left = []
    session = local.session()
    try:
        # All lines take some minutes; which of them are left out differs with the version of Python.
        for number in range(0, 10_000, 17):
            at = AtLine(number, interrupted)
            try:
                with at:
                    use(local, session)
            except KeyboardInterrupt:
                pass
            if not at.where:
                assert number > 50
                break
            if not soon(lambda: not scripted.grants, 10):
                left.append(f"grant: {at.where}")
                scripted.grants.clear()
            if not soon(lambda: local._core.sessions() == [session._session], 10):
                left.append(f"session: {at.where}")
                local._core._sessions = {session.id: session._session}
            if session._session._numbers._unconfirmed and not soon(
                lambda: not session._session._numbers._unconfirmed, 1
            ):
                left.append(f"number: {at.where}")
                session._session._numbers._unconfirmed.clear()
    finally:
        faulthandler.cancel_dump_traceback_later()
    # At the first line of `__exit__`, and of what it calls first, an interrupt comes before anything can
    # catch it.
    assert len(left) <= 1, "\n".join(left)


def test_a_handler_may_use_the_client_at_any_line(local: ringfence.Client, scripted: Scripted) -> None:
    """It would deadlock if it needed a lock that the thread which it interrupts holds, and which is not
    reentrant."""
    session = local.session()
    for number in range(0, 10_000, 3):
        other = session.acquire(f"b/{number}")

        def handler() -> None:
            faulthandler.dump_traceback_later(20, exit=True)
            other.check()
            other.release()
            try:
                local.get("b")
            except ringfence.RingfenceError as error:
                assert "interrupted the client itself" in str(error)
            faulthandler.cancel_dump_traceback_later()

        with AtLine(number, handler) as at:
            use_session(local, session)
        if not at.where:
            assert number > 50
            other.release()
            break
    assert soon(lambda: not scripted.grants)


# What a credential that is refused for a moment does.


def test_a_release_that_is_refused_for_who_asks_is_not_forgotten(
    local: ringfence.Client, scripted: Scripted
) -> None:
    """The token has been replaced, and the client shows the old one for a moment: that speaks of this
    try alone. The session lives on, and would hold the lease for no holder."""
    lease = local.session().acquire("a")
    scripted.answer = lambda request, body: (
        Frame(refusal=refusal("UNAUTHENTICATED")) if request == "release" else None
    )
    with pytest.raises(ringfence.RingfenceError):
        lease.release()
    assert scripted.grants
    scripted.answer = lambda request, body: None
    assert soon(lambda: not scripted.grants)


def test_a_cancel_that_is_refused_for_who_asks_is_not_forgotten(
    local: ringfence.Client, scripted: Scripted
) -> None:
    session = local.session()

    def answer(request: str, body: Any) -> Any:
        if request == "acquire":
            with scripted.lock:
                scripted.acquire(body)
            return False
        if request == "cancel":
            return Frame(refusal=refusal("UNAUTHENTICATED"))
        return None

    scripted.answer = answer
    with pytest.raises(ringfence.OutcomeUnknown):
        session.acquire("a")
    assert scripted.grants
    time.sleep(0.3)
    scripted.answer = lambda request, body: None
    assert soon(lambda: not scripted.grants)
