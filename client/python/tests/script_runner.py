"""Does what the scripts in client/scripts say, with this client: orders as JSON lines on the standard
input, answers on the standard output. See the README there."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any

import ringfence
from ringfence import _clock, aio
from ringfence.errors import (
    AcquireTimeout,
    ConnectError,
    Held,
    InvalidRequest,
    LeaseLost,
    Loss,
    OutcomeUnknown,
    Refused,
    Unavailable,
)

Json = dict[str, Any]

FEATURES = ["suspend", "abandon", "lease_comes_back"]

_ahead = 0
_true_now = _clock.now


def _stepped_now() -> int:
    return _true_now() + _ahead


_clock.now = _stepped_now


def seconds(order: Json, key: str, absent: float = 0.0) -> float:
    number = order.get(key)
    return absent if number is None else number / 1_000


def standing(lease: aio.Lease) -> Json:
    loss = lease.loss
    remaining = int(lease.remaining * 1_000)
    if loss is None:
        return {"held": True, "remaining_ms": remaining}
    return {"held": False, "loss": loss_name(loss), "remaining_ms": remaining}


def loss_name(loss: Loss) -> str:
    return loss.kind.name.lower()


def explain(error: BaseException) -> Json:
    """An error as scripts know it."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, asyncio.CancelledError):
        return {"kind": "abandoned"}
    if isinstance(error, ConnectError):
        return {"kind": "no_connection", "text": text}
    if isinstance(error, LeaseLost):
        return {"kind": "lost", "loss": loss_name(error.loss), "text": text}
    if isinstance(error, AcquireTimeout):
        return {"kind": "wait_over", "text": text}
    if isinstance(error, Unavailable):
        return {"kind": "unavailable", "text": text}
    if isinstance(error, OutcomeUnknown):
        return {"kind": "outcome_unknown", "text": text}
    if isinstance(error, InvalidRequest):
        return {"kind": "invalid", "text": text}
    if isinstance(error, Refused):
        told = {"kind": "refused", "reason": error.reason, "text": text}
        told["retry_after_ms"] = round((error.retry_after or 0) * 1_000)
        if isinstance(error, Held):
            told.update(
                holder=error.holder, token=error.token, identity=error.identity, mine=error.mine
            )
        return told
    return {"kind": "misuse", "text": text}


class Runner:
    def __init__(self) -> None:
        self.running: dict[int, asyncio.Task[None]] = {}
        self.forget()

    def forget(self) -> None:
        self.clients: dict[str, aio.Client] = {}
        self.sessions: dict[str, aio.Session] = {}
        self.leases: dict[str, aio.Lease] = {}

    async def run(self, order: Json) -> None:
        number = order["id"]
        answer: Json = {"id": number}
        try:
            answer["ok"] = await getattr(self, "do_" + order["do"])(order)
        except BaseException as error:
            answer["error"] = explain(error)
        self.running.pop(number, None)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()

    def begin(self, order: Json) -> None:
        self.running[order["id"]] = asyncio.ensure_future(self.run(order))

    async def do_hello(self, order: Json) -> Json:
        return {"language": "python", "features": FEATURES}

    async def do_connect(self, order: Json) -> Json:
        self.clients[order["as"]] = await aio.connect(
            order["endpoints"],
            connect_timeout=seconds(order, "connect_timeout_ms", 5.0),
            request_timeout=seconds(order, "request_timeout_ms", 10.0),
        )
        return {}

    async def do_open(self, order: Json) -> Json:
        session = await self.clients[order["client"]].session(
            ttl=seconds(order, "ttl_ms", 15.0), identity=order.get("identity")
        )
        self.sessions[order["as"]] = session
        return {"session": session.id, "ttl_ms": round(session.ttl * 1_000)}

    async def do_acquire(self, order: Json) -> Json:
        lease = await self.sessions[order["session"]].acquire(
            order["name"],
            wait=seconds(order, "wait_ms"),
            data=order.get("data", "").encode(),
            lock_delay=seconds(order, "lock_delay_ms"),
        )
        self.leases[order["as"]] = lease
        return self.told(lease)

    def told(self, lease: aio.Lease) -> Json:
        return {
            "name": lease.name,
            "token": lease.token,
            "session": lease.session_id,
            "data": lease.data.decode(),
        }

    async def do_release(self, order: Json) -> Json:
        await self.leases[order["lease"]].release()
        return {}

    async def do_transfer(self, order: Json) -> Json:
        try:
            done = await self.leases[order["lease"]].transfer(order.get("to"))
        except ringfence.NotWaiting as refusal:
            if "back" in order:
                self.leases[order["back"]] = refusal.lease
            raise
        return {"session": done.session, "token": done.token}

    async def do_check(self, order: Json) -> Json:
        return standing(self.leases[order["lease"]])

    async def do_wait_lost(self, order: Json) -> Json:
        lease = self.leases[order["lease"]]
        await lease.wait_lost()
        return standing(lease)

    async def do_report_stale(self, order: Json) -> Json:
        self.leases[order["lease"]].report_stale()
        return {}

    async def do_check_session(self, order: Json) -> Json:
        return {"held": self.sessions[order["session"]].loss is None}

    async def do_close(self, order: Json) -> Json:
        await self.sessions[order["session"]].close()
        return {}

    async def do_shut_down(self, order: Json) -> Json:
        await self.clients[order["client"]].close()
        return {}

    async def do_suspend(self, order: Json) -> Json:
        global _ahead
        _ahead += order["ms"] * _clock.NS_PER_MS
        return {}

    async def do_abandon(self, order: Json) -> Json:
        task = self.running.get(order["target"])
        if task is not None:
            task.cancel()
        return {}

    async def do_reset(self, order: Json) -> Json:
        clients = list(self.clients.values())
        for client in clients:
            await client.close()
        self.forget()
        return {}


async def main() -> None:
    runner = Runner()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(runner.begin, json.loads(line))
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=read, daemon=True).start()
    await ended.wait()


asyncio.run(main())
