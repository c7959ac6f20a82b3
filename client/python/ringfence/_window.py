"""How long a client may believe in what it holds: arithmetic only, no clock.

`valid_until = t_send + TTL * (1 - rho) - delta`, the greatest of the session's `Open` and its
acknowledged keep-alives; no other answer reports what was lost, so no other moves it. `t_send` is
read before the request is first given to the stream. rho = 1 % covers a clock here that is slow by
as much; delta = max(50 ms, TTL / 50) covers one there that is fast.

All times are integers of nanoseconds.
"""

from __future__ import annotations

import enum

from ringfence._clock import NS_PER_MS

# The least that is taken off a TTL.
MARGIN_MIN = 50 * NS_PER_MS
# How long before the end of a window the timer thread ends belief, at most: a thread wakes up late,
# and a caller that waits for the loss has to be woken too, and is to know of it by the window's end.
LEAD_MAX = 20 * NS_PER_MS


def validity(ttl: int) -> int:
    """How long a session of this TTL may be believed in after an acknowledged keep-alive was sent."""
    drift = ttl // 100 + 1  # Division rounds down, belief must not gain.
    return max(0, max(0, ttl - drift) - max(MARGIN_MIN, ttl // 50))


class Extended(enum.Enum):
    """What an acknowledgement did."""

    LATER = "it moved the window's end"
    NO_CHANGE = "a keep-alive sent later was acknowledged before"
    TOO_LATE = "the window had passed when it came: it revives nothing"


class Window:
    """The interval in which a session may be believed in."""

    __slots__ = ("_sent", "_validity", "valid_until")

    def __init__(self, ttl: int, sent: int) -> None:
        self._validity = validity(ttl)
        self._sent = sent
        # From this moment on nothing may be believed any more. Read without a lock.
        self.valid_until = sent + self._validity

    @property
    def jeopardy_at(self) -> int:
        """From this moment on the session is in jeopardy: half the window has passed."""
        return self._sent + self._validity // 2

    @property
    def leave_at(self) -> int:
        """When to end belief, so that all threads have heard by `valid_until`."""
        return self.valid_until - min(LEAD_MAX, self._validity // 20)

    def has_passed(self, now: int) -> bool:
        """Whether belief has ended."""
        return now >= self.valid_until

    def extend(self, sent: int, now: int) -> Extended:
        """Takes the acknowledgement of a keep-alive that was sent at `sent`."""
        if self.has_passed(now):
            return Extended.TOO_LATE
        # A request cannot be acknowledged before it is sent; a clock that claims so is not allowed
        # to stretch belief.
        sent = min(sent, now)
        if sent <= self._sent:
            return Extended.NO_CHANGE
        self._sent = sent
        self.valid_until = sent + self._validity
        return Extended.LATER
