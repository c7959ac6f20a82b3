"""Which process this is: a child that was forked holds nothing of its parent's leases."""

from __future__ import annotations

import os

_forks = 0


def this_process() -> tuple[int, int]:
    """Another one in each child. A child in a PID namespace of its own may have its parent's number: in a
    container both are 1. A fork that Python does not see changes the number alone."""
    return os.getpid(), _forks


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
