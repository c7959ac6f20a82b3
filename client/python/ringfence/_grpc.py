"""grpcio, imported so that it leaves the children of this process alone.

Its core has handlers that run at each fork, in the child too, also if the child is about to run another
program: with a connection in use, which a client always has, they print to the child's stderr, and with
grpcio 1.80 and later they abort one child in some hundreds before it runs (grpc/grpc#43055). They
are of use only to a child that goes on with the parent's channels, which a client of Ringfence must not
do. Python's own `GRPC_ENABLE_FORK_SUPPORT` says whether they run; grpcio documents that they do not
unless it is set, but its core reads the absence otherwise. So it is set to 0 while the core reads it,
unless the program has set it or has imported grpcio before.
"""

from __future__ import annotations

import os
import sys

from ringfence.errors import ConnectError

_SETTING = "GRPC_ENABLE_FORK_SUPPORT"

if _SETTING in os.environ or "grpc" in sys.modules:
    import grpc as grpc
else:
    os.environ[_SETTING] = "0"
    try:
        import grpc as grpc

        # The core reads it when the first channel is made, once; this one connects to nothing.
        grpc.insecure_channel("127.0.0.1:1").close()
    finally:
        del os.environ[_SETTING]


class _Process:
    """What is known of this process."""

    # Connections were made in it, …
    has_connected = False
    # … or in the one that it was forked from, whose state grpcio has inherited.
    inherited = False


def connecting() -> None:
    """A connection is about to be made. Raises ConnectError in a process where it would hang, or end
    the process."""
    if _Process.inherited and os.environ.get(_SETTING, "").lower() not in ("1", "true", "yes"):
        raise ConnectError(
            "this process was forked from one in which a client was connected, and grpcio does not "
            "work in such a child; connect only after the fork, start the process by `spawn`, or set "
            f"{_SETTING}=1 before the parent starts"
        )
    _Process.has_connected = True


def _forked() -> None:
    _Process.inherited = _Process.inherited or _Process.has_connected


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
