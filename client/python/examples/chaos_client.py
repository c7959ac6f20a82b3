"""A client of `ringfence chaos` in Python: it is disturbed and judged like those in Rust.

    ringfence chaos --client "python3 /path/to/chaos_client.py"

It prints what it did and saw as lines of a history, whose format is in the documentation of
`ringfence_check::history`, and stops at a line `stop` on stdin, or at its end.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from typing import Any

import ringfence

TTLS = (1.5, 2.5, 4.0)
# How often a holder asks whether it holds.
LOOK_EVERY = 0.015
OPERATIONS_MAX = 1_000_000_000


def now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Recorder:
    """Prints records; one line each, whichever thread it is."""

    def __init__(self, client: int) -> None:
        self.client, self.next = client, client * OPERATIONS_MAX
        self.mutex = threading.Lock()

    def put(self, kind: str, **fields: Any) -> None:
        line = json.dumps({kind: {key: value for key, value in fields.items() if value is not None}})
        with self.mutex:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def invoked(self, op: Any, session: int | None = None, since: int | None = None) -> int:
        with self.mutex:
            self.next += 1
            number = self.next
        at = now() if since is None else since
        self.put("invoked", id=number, t=at, client=self.client, session=session, op=op)
        return number

    def returned(self, number: int, outcome: Any) -> None:
        self.put("returned", id=number, t=now(), outcome=outcome)


def outcome_of(error: BaseException) -> Any:
    """What an error says of its request; what it leaves open is unknown, which hides faults of the
    service and never makes one up."""
    if isinstance(error, ringfence.Held) and error.holder and error.token:
        return {"held": {"session": error.holder, "token": error.token, "mine": error.mine}}
    if isinstance(error, ringfence.AcquireTimeout):
        return "timed_out"
    open_still = ("STALE_REQUEST", "SESSION_EXPIRED", "WRONG_SECRET", "HELD", "QUEUED", "LOCK_DELAY")
    if isinstance(error, ringfence.Unavailable):
        return {"not_done": {"error": str(error)}}
    if isinstance(error, ringfence.Queued):
        return {"queued": {}}
    if type(error) is ringfence.Refused and error.reason not in open_still:
        return {"refused": {"reason": error.reason}}
    return {"unknown": {"error": str(error)}}


class Actor:
    """One client's life: sessions, and what it does in them."""

    def __init__(self, options: argparse.Namespace, client: ringfence.Client) -> None:
        self.options, self.client = options, client
        self.dice = random.Random(options.seed)
        self.recorder = Recorder(options.number)
        self.stop = threading.Event()

    def live(self) -> None:
        while not self.stop.is_set():
            ttl = self.dice.choice(TTLS)
            number = self.recorder.invoked({"open": {"ttl_ms": int(ttl * 1000)}})
            try:
                session = self.client.session(ttl=ttl, identity=f"c{self.options.number}")
            except ringfence.RingfenceError as error:
                self.recorder.returned(number, outcome_of(error))
                self.stop.wait(0.2)
                continue
            opened = {"session": session.id, "ttl_ms": int(ttl * 1000)}
            self.recorder.returned(number, {"opened": opened})
            self.serve(session)

    def serve(self, session: ringfence.Session) -> None:
        since: int | None = None
        for _ in range(self.dice.randrange(5, 40)):
            if self.stop.is_set() or since is not None or session.loss is not None:
                break
            name = f"{self.options.prefix}{self.dice.randint(1, self.options.leases)}"
            if self.dice.random() < 0.15:
                self.get(name)
            else:
                since = self.acquire(session, name)
            self.stop.wait(self.dice.uniform(0.002, 0.06))
        number = self.recorder.invoked("close", session.id, since)
        try:
            session.close()
        except ringfence.RingfenceError as error:
            self.recorder.returned(number, outcome_of(error))
        else:
            # `close` ends belief and asks; whether the cluster answered in time it does not say.
            self.recorder.returned(number, {"unknown": {}})

    def get(self, name: str) -> None:
        number = self.recorder.invoked({"get": {"lease": name}})
        try:
            seen = self.client.get(name)
        except ringfence.RingfenceError as error:
            outcome = outcome_of(error)
            if isinstance(error, ringfence.Refused) and error.reason == "NOT_FOUND":
                outcome = {"lease": {"waiters": 0}}
        else:
            fields = {"session": seen.holder, "token": seen.token, "waiters": seen.waiters}
            outcome = {"lease": {key: value for key, value in fields.items() if value is not None}}
        self.recorder.returned(number, outcome)

    def acquire(self, session: ringfence.Session, name: str) -> int | None:
        """Returns since when something is under way in the session that the history does not tell."""
        wait = self.dice.randrange(200, 3_000) if self.dice.random() < 0.7 else None
        begun = now()
        op = {"acquire": {"lease": name, **({} if wait is None else {"wait_ms": wait})}}
        number = self.recorder.invoked(op, session.id, begun)
        try:
            lease = session.acquire(name, wait=(wait or 0) / 1000)
        except ringfence.RingfenceError as error:
            outcome = outcome_of(error)
            self.recorder.returned(number, outcome)
            return begun if isinstance(outcome, dict) and "unknown" in outcome else None
        self.recorder.returned(number, {"granted": {"token": lease.token}})
        return self.hold(session, lease)

    def hold(self, session: ringfence.Session, lease: ringfence.Lease) -> int | None:
        begun = last = now()
        until = begun + self.dice.randrange(2, 400) * 1_000_000
        while last < until:
            time.sleep(LOOK_EVERY)
            # Read before the question: if the answer is yes, it was held then.
            asked = now()
            if not lease.is_valid:
                break
            last = asked
        releases = self.dice.random() < 0.85
        asked = now()
        held = lease.is_valid
        why = ("released" if releases else "closed") if held else "told"
        if held:
            last = asked
        elif lease.loss is not None and lease.loss.kind is ringfence.LossKind.WINDOW_PASSED:
            why = "window"
        self.recorder.put(
            "belief", client=self.options.number, session=lease.session_id, lease=lease.name,
            token=lease.token, until=max(last, begun), why=why, **{"from": begun},
        )  # fmt: skip
        release = {"release": {"lease": lease.name, "token": lease.token}}
        number = self.recorder.invoked(release, session.id)
        if held and not releases:
            # Closing the session ends it.
            return begun
        try:
            lease.release()
        except ringfence.RingfenceError:
            # The package goes on with it in the background.
            self.recorder.returned(number, {"unknown": {}})
            return begun
        self.recorder.returned(number, "released")
        return None


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--number", type=int, required=True)
    options.add_argument("--seed", type=int, required=True)
    options.add_argument("--nodes", required=True)
    options.add_argument("--prefix", required=True)
    options.add_argument("--leases", type=int, required=True)
    given, _ = options.parse_known_args()
    client = ringfence.connect(given.nodes.split(","), connect_timeout=60, request_timeout=4)
    actor = Actor(given, client)

    def listen() -> None:
        while True:
            line = sys.stdin.readline()
            # `flood` and `calm` ask for load of no consequence, which is left to others.
            if line.strip() not in ("flood", "calm"):
                actor.stop.set()
                return

    threading.Thread(target=listen, daemon=True).start()
    actor.live()


if __name__ == "__main__":
    main()
