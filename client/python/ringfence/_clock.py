"""The clock that windows are measured by: the one place in this package that decides by time.

It counts while the machine is suspended, since a laptop that slept for an hour must not believe
what it knew before. On Linux that is CLOCK_BOOTTIME, on macOS CLOCK_MONOTONIC_RAW.

Elsewhere Python has no such clock that is known to count suspend on every version; `time.monotonic`
takes its place, with a `RuntimeWarning` when the first client connects: after a suspend, a lease may
be believed in for as long as the suspend lasted, and only guards in the stores refuse its writes.
"""

from __future__ import annotations

import sys
import time
import warnings

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


def _suspend_clock() -> int | None:
    name = "CLOCK_MONOTONIC_RAW" if sys.platform == "darwin" else "CLOCK_BOOTTIME"
    clock: int | None = getattr(time, name, None)
    if clock is None:
        return None
    try:
        time.clock_gettime_ns(clock)
    except OSError:
        return None  # A sandbox may not have it.
    return clock


_CLOCK = _suspend_clock()

# Whether the clock counts while the machine is suspended.
COUNTS_SUSPEND = _CLOCK is not None

if sys.platform != "win32" and _CLOCK is not None:
    _ID: int = _CLOCK

    def now() -> int:
        """Nanoseconds since a moment in the past; never set, and never back."""
        return time.clock_gettime_ns(_ID)

else:

    def now() -> int:
        """Nanoseconds since a moment in the past; never set, and never back."""
        return time.monotonic_ns()


def warn_unless_suspend_counts() -> None:
    """Says so if a suspend of this machine would go unnoticed."""
    if not COUNTS_SUSPEND:
        text = (
            "this system has no clock that counts suspend: after a suspend a lease may be believed "
            "in for as long as it lasted; rely on guards in the stores"
        )
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def seconds(duration_ns: int) -> float:
    """Nanoseconds as seconds."""
    return duration_ns / NS_PER_S


def nanos(duration_s: float) -> int:
    """Seconds as nanoseconds."""
    return int(duration_s * NS_PER_S)
