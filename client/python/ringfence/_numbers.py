"""A session's request numbers, and the lowest it still waits for. No clock, no lock, no I/O."""

from __future__ import annotations

import enum

# How far a number may be above the lowest unconfirmed one; what the cluster remembers.
SPAN_MAX = 256
# Numbers that acquires leave free, so that what ends waits and grants always gets through.
RESERVED = 64


class Kind(enum.Enum):
    """What a number is for."""

    ACQUIRE = "an acquire that is answered at once"
    # The cluster remembers it as long as it waits or holds, whatever is confirmed meanwhile, so it
    # holds up no later number.
    WAIT = "an acquire that waits for its lease, perhaps for hours"
    ENDING = "a cancel, release or transfer"


class RequestNumbers:
    """The numbers of one session."""

    def __init__(self) -> None:
        self._next = 1
        self._unconfirmed: set[int] = set()

    def take(self, kind: Kind, taken: list[int] | None = None) -> tuple[int, int] | None:
        """The next number and the lowest unconfirmed one; None while those are too far apart. `taken`
        has the number before it holds up others: an interrupt may come before the caller has it."""
        number = self._next
        lowest = min(self._unconfirmed, default=number)
        room = SPAN_MAX if kind is Kind.ENDING else SPAN_MAX - RESERVED
        if number - lowest >= room:
            return None
        if taken is not None:
            taken.append(number)
        self._next += 1
        if kind is not Kind.WAIT:
            self._unconfirmed.add(number)
        return number, lowest

    def confirm(self, number: int) -> None:
        """The answer of this number has come, or no caller wants it any more."""
        self._unconfirmed.discard(number)

    def skip_to(self, lowest: int) -> None:
        """Another client used the session: its numbers up to `lowest` are spent."""
        self._next = max(self._next, lowest + 1)
