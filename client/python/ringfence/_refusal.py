"""What refusals mean: an answer, not done, or unknown; and when to try again."""

from __future__ import annotations

import enum
import random

from ringfence import errors
from ringfence._clock import NS_PER_MS
from ringfence._proto import types_pb2
from ringfence.errors import Refused

# The first pause after a failure, and the longest between two tries.
PAUSE_MIN = 20 * NS_PER_MS
PAUSE_MAX = 500 * NS_PER_MS

_PREFIX = "REASON_"
_DOMAIN = "ringfence"

_CLASSES: dict[str, type[Refused]] = {
    "HELD": errors.Held,
    "QUEUED": errors.Queued,
    "LOCK_DELAY": errors.Blocked,
    "REVOKING": errors.Blocked,
    "QUIET_TIME": errors.Blocked,
    "STALE_TOKEN": errors.StaleToken,
    "NOT_HOLDER": errors.StaleToken,
    "NOT_WAITING": errors.NotWaiting,
    "LIMIT": errors.LimitReached,
    "UNAUTHENTICATED": errors.AccessDenied,
    "PERMISSION_DENIED": errors.AccessDenied,
}


class Meaning(enum.Enum):
    """What a refusal means for the request."""

    FINAL = "an answer: trying again would bring the same"
    NOT_DONE = "not done, and worth another try"
    OPEN = "it may have been done: only a repeat with the same number tells"


def of_wire(refusal: types_pb2.Refusal) -> Refused | None:
    """The refusal in a message. None if its reason is none that this version knows: then nothing is
    known of the request's fate."""
    try:
        name = types_pb2.Reason.Name(refusal.reason)
    except ValueError:
        return None
    if refusal.reason == types_pb2.REASON_UNSPECIFIED:
        return None
    reason = name[len(_PREFIX) :]
    after = refusal.retry_after_ms / 1_000 if refusal.retry_after_ms else None
    made = _CLASSES.get(reason, Refused)
    return made(reason, refusal.message, dict(refusal.metadata), after)


def meaning(refusal: Refused) -> Meaning:
    """Sorts refusals. What is not known here is an answer of a newer cluster and goes to the
    caller."""
    if refusal.reason == "UNAVAILABLE":
        return Meaning.NOT_DONE
    # A node that fails in the middle of a request cannot know either.
    if refusal.reason in ("OUTCOME_UNKNOWN", "FAULT"):
        return Meaning.OPEN
    return Meaning.FINAL


def covers_earlier_tries(refusal: Refused, request: str) -> bool:
    """Whether a final refusal of a request, named by its field in a frame, also says what becomes of
    its earlier tries. What the replicated state refuses is remembered under the request's number,
    so a late try is answered alike. A limit, and who asks, speak of one try alone; a missing right,
    too, unless the request has a number under which it is remembered."""
    if request in ("get", "check", "keep_alive"):
        return True
    if refusal.reason in ("LIMIT", "UNAUTHENTICATED"):
        return False
    if refusal.reason == "PERMISSION_DENIED":
        # Only a missing right names the rule that would be needed.
        return request not in ("open", "close") and "rule" in refusal.details
    return True


def pause(tries: int, asked: float | None = None) -> int:
    """Nanoseconds before try number `tries + 1`: doubling, with jitter, so that clients that lost
    their leader together do not come back together. Never less than what the refusal asks."""
    doubled = min(PAUSE_MIN << min(tries, 8), PAUSE_MAX)
    jittered = int(doubled * random.uniform(0.5, 1.0))
    return max(jittered, int((asked or 0) * 1_000_000_000))


def of_status_details(details: bytes) -> Refused | None:
    """The refusal in a status's `grpc-status-details-bin`: a google.rpc.Status with an ErrorInfo of
    our domain. None if there is none."""
    try:
        message, info = "", None
        for number, value in _fields(details):
            if number == 2:
                message = value.decode()
            elif number == 3:
                packed = dict(_fields(value))
                if packed.get(1, b"").endswith(b"/google.rpc.ErrorInfo"):
                    info = packed.get(2, b"")
        if info is None:
            return None
        reason, domain, metadata = "", "", {}
        for number, value in _fields(info):
            if number == 1:
                reason = value.decode()
            elif number == 2:
                domain = value.decode()
            elif number == 3:
                pair = dict(_fields(value))
                metadata[pair.get(1, b"").decode()] = pair.get(2, b"").decode()
    except (ValueError, IndexError):
        return None
    if domain != _DOMAIN or _PREFIX + reason not in types_pb2.Reason.keys():
        return None
    return _CLASSES.get(reason, Refused)(reason, message, metadata)


def _fields(data: bytes) -> list[tuple[int, bytes]]:
    """The fields of a protobuf message that have a length. google.rpc is read by hand, since another
    package may bring its own copy of it into the process."""
    fields, at = [], 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError("a field is cut off")
            fields.append((key >> 3, data[at : at + size]))
            at += size
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError("a wire type that is not used any more")
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number of more than ten bytes")
