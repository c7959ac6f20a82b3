"""One way to write a request for both kinds of callers: threads and event loops.

What the client does is written once, as coroutines that await `Wait`. `run_sync` carries one out on
the caller's thread, `run_async` in the caller's event loop, and `spawn` in the background, on the
threads that bring the answers. A caller that is interrupted, or a task that is cancelled, throws into
the coroutine where it waits, and that is where it takes back what it asked for.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Coroutine, Generator
from concurrent.futures import Future, InvalidStateError
from types import FrameType
from typing import Any, Generic, TypeVar, cast

from ringfence.errors import RingfenceError

T = TypeVar("T")

log = logging.getLogger("ringfence")


def new_future() -> Future[Any]:
    """A future that no waiter can cancel: what was asked is taken back by a request."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def settle(future: Future[Any], value: object) -> bool:
    """Gives it a result unless it has one; says whether it had none."""
    try:
        future.set_result(value)
    except InvalidStateError:
        return False
    return True


def fail(future: Future[Any], error: BaseException) -> bool:
    """Gives it an error unless it has a result; says whether it had none."""
    try:
        future.set_exception(error)
    except InvalidStateError:
        return False
    return True


class Wait(Generic[T]):
    """Awaits a future in a coroutine of this package."""

    __slots__ = ("future",)

    def __init__(self, future: Future[T]) -> None:
        self.future = future

    def __await__(self) -> Generator[Wait[Any], None, T]:
        if not self.future.done():
            yield self
        return self.future.result()


def either(*futures: Future[Any]) -> Future[Any]:
    """Done as soon as one of them is; without a result."""
    first = new_future()
    for future in futures:
        future.add_done_callback(lambda _: settle(first, None) and None)
    return first


_here = threading.local()


def _step(coroutine: Coroutine[Any, Any, T], error: BaseException | None) -> Wait[Any]:
    step = coroutine.send(None) if error is None else coroutine.throw(error)
    return cast("Wait[Any]", step)


def _cannot_wait() -> bool:
    """Whether this is a thread of a client, or one that was interrupted within `_step`. The stack says
    that: a flag would be left behind by an interrupt."""
    if getattr(_here, "of_a_client", False):
        return True
    frame: FrameType | None = sys._getframe(1)
    try:
        while frame is not None and frame.f_code is not _step.__code__:
            frame = frame.f_back
        return frame is not None
    finally:
        del frame  # It would keep what the callers refer to.


def is_of_a_client() -> None:
    """The present thread serves a client: what it waited for would wait for it."""
    _here.of_a_client = True


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Carries it out on this thread.

    Python calls finalizers of the program on any thread, also on those of a client, and they and
    handlers of signals interrupt a caller at any line, also where it has a lock of the client. There
    nothing can be waited for, so this fails; what can go on without its caller is for
    `run_sync_or_on`."""
    if sys.is_finalizing():
        coroutine.close()
        raise RingfenceError("the interpreter ends, and the threads have ended that bring answers")
    if _cannot_wait():
        coroutine.close()
        raise RingfenceError(
            "a finalizer or a handler of a signal has interrupted the client itself and cannot wait for "
            "an answer here; only release and close may be called in one"
        )
    return _run_sync(coroutine)


def run_sync_or_on(coroutine: Coroutine[Any, Any, None]) -> bool:
    """The same, for what goes on in the background where nothing can be waited for. Says whether it
    has been waited for.

    At the end of the interpreter nothing goes on: the threads of the client have been stopped wherever
    they were, also where one had a lock. What is held then ends with its session, by the TTL."""
    if sys.is_finalizing():
        coroutine.close()
        return False
    if _cannot_wait():
        spawn(coroutine)
        return False
    _run_sync(coroutine)
    return True


def _run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    error: BaseException | None = None
    while True:
        try:
            wait = _step(coroutine, error)
        except StopIteration as done:
            return cast(T, done.value)
        error = None
        try:
            wait.future.exception()  # Waits; the coroutine looks at what came.
        except BaseException as interrupt:
            error = interrupt


async def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """Carries it out in the running event loop."""
    error: BaseException | None = None
    while True:
        try:
            wait = _step(coroutine, error)
        except StopIteration as done:
            return cast(T, done.value)
        error = None
        try:
            await done_in_loop(wait.future)
        except BaseException as interrupt:
            error = interrupt


async def done_in_loop(future: Future[Any]) -> None:
    """Waits in the running event loop until the future is done."""
    loop = asyncio.get_running_loop()
    here: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not here.done():
            here.set_result(None)

    def done(_: Future[Any]) -> None:
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:
            pass  # The loop was closed: no task waits there any more.

    future.add_done_callback(done)
    await here


def spawn(coroutine: Coroutine[Any, Any, T], after: Future[Any] | None = None) -> Future[T]:
    """Carries it out in the background, on the threads that resolve what it waits for. It begins on this
    thread, or where `after` is done."""
    result = new_future()

    def step(_: Future[Any] | None = None) -> None:
        try:
            wait = _step(coroutine, None)
        except StopIteration as done:
            settle(result, done.value)
        except BaseException as error:
            fail(result, error)
        else:
            wait.future.add_done_callback(step)

    if after is None:
        step()
    else:
        after.add_done_callback(step)
    return result
