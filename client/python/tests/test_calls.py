"""What is known of a request's fate: bookkeeping without a network."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence import errors
from ringfence._calls import Call, CallFuture, Calls, Mode
from ringfence._numbers import RESERVED, SPAN_MAX, Kind, RequestNumbers
from ringfence._proto import connection_pb2, leases_pb2, sessions_pb2, types_pb2
from ringfence._refusal import of_status_details

DEADLINE = 10_000_000_000


class Lone:
    """One request, and what becomes of it."""

    def __init__(self, request: str = "release", mode: Mode = Mode.PROMPT) -> None:
        bodies: dict[str, Any] = {
            "release": leases_pb2.ReleaseRequest(),
            "open": sessions_pb2.OpenRequest(),
            "keep_alive": sessions_pb2.KeepAliveRequest(id=1),
        }
        self.calls = Calls()
        self.future = CallFuture()
        self.resolved: list[Any] = []
        call = Call(request, bodies[request], mode, 0, DEADLINE, self.future)
        number = self.calls.insert(call, self.resolved)
        assert number is not None
        self.number = number

    def send(self) -> None:
        assert self.calls.frame(self.number, 0) is not None

    def refuse(self, reason: str, now: int = 1, **details: str) -> Any:
        refusal = types_pb2.Refusal(
            reason=types_pb2.Reason.Value(f"REASON_{reason}"), message="no", metadata=details
        )
        frame = connection_pb2.ServerFrame(id=self.number, refusal=refusal)
        return self.calls.answer(frame, now, self.resolved)

    @property
    def result(self) -> Any:
        return self.resolved[0][1] if self.resolved else None


def test_what_never_left_is_not_done() -> None:
    lone = Lone()
    lone.calls.due(DEADLINE, lone.resolved)
    assert isinstance(lone.result, errors.Unavailable)


def test_what_left_and_was_not_answered_is_unknown() -> None:
    lone = Lone()
    lone.send()
    lone.calls.due(DEADLINE, lone.resolved)
    assert isinstance(lone.result, errors.OutcomeUnknown)


def test_what_each_member_refused_to_carry_out_is_not_done() -> None:
    lone = Lone()
    lone.send()
    assert lone.refuse("UNAVAILABLE", leader="n2:1").leader == "n2:1"
    lone.calls.due(DEADLINE, lone.resolved)
    assert isinstance(lone.result, errors.Unavailable)


def test_a_broken_stream_leaves_the_outcome_open_whatever_is_refused_later() -> None:
    lone = Lone("open")
    lone.send()
    lone.calls.stream_lost("it broke", lone.resolved)
    lone.send()
    lone.refuse("LIMIT")
    assert isinstance(lone.result, errors.OutcomeUnknown)


def test_a_remembered_refusal_speaks_of_all_tries() -> None:
    lone = Lone()
    lone.send()
    lone.calls.stream_lost("it broke", lone.resolved)
    lone.send()
    lone.refuse("STALE_TOKEN")
    assert isinstance(lone.result, errors.StaleToken)


def test_a_refusal_of_who_asks_speaks_of_one_try() -> None:
    for details, expected in [({}, errors.OutcomeUnknown), ({"rule": "r"}, errors.AccessDenied)]:
        lone = Lone()
        lone.send()
        lone.calls.stream_lost("it broke", lone.resolved)
        lone.send()
        lone.refuse("PERMISSION_DENIED", **details)
        assert isinstance(lone.result, expected)


@pytest.mark.parametrize("reason", ["OUTCOME_UNKNOWN", "FAULT"])
def test_an_open_outcome_is_asked_about_again_under_the_same_number(reason: str) -> None:
    lone = Lone()
    lone.send()
    assert lone.refuse(reason) is not None and lone.result is None
    assert lone.calls.next_due() < DEADLINE  # type: ignore[operator]
    for ready in lone.calls.due(lone.calls.next_due() or 0, lone.resolved):
        assert ready == lone.number
    lone.calls.due(DEADLINE, lone.resolved)
    assert isinstance(lone.result, errors.OutcomeUnknown)


def test_a_keep_alive_is_not_repeated() -> None:
    lone = Lone("keep_alive", Mode.ONCE)
    lone.send()
    lone.calls.stream_lost("it broke", lone.resolved)
    assert isinstance(lone.result, errors.OutcomeUnknown)
    assert lone.calls.ready() == []


def test_a_reason_of_a_newer_cluster_is_unknown() -> None:
    lone = Lone()
    lone.send()
    frame = connection_pb2.ServerFrame(id=lone.number, refusal=types_pb2.Refusal(reason=999))  # type: ignore[arg-type]
    lone.calls.answer(frame, 1, lone.resolved)
    assert isinstance(lone.result, errors.OutcomeUnknown)


def test_each_request_names_the_lowest_that_is_unconfirmed() -> None:
    numbers = RequestNumbers()
    assert [numbers.take(Kind.ACQUIRE) for _ in range(2)] == [(1, 1), (2, 1)]
    numbers.confirm(1)
    assert numbers.take(Kind.ENDING) == (3, 2)
    numbers.confirm(3)
    numbers.confirm(2)
    assert numbers.take(Kind.ENDING) == (4, 4)


def test_acquires_leave_room_for_what_ends_them_and_waits_hold_up_no_number() -> None:
    numbers = RequestNumbers()
    assert sum(1 for _ in iter(lambda: numbers.take(Kind.ACQUIRE), None)) == SPAN_MAX - RESERVED
    assert sum(1 for _ in iter(lambda: numbers.take(Kind.ENDING), None)) == RESERVED
    numbers = RequestNumbers()
    numbers.take(Kind.WAIT)
    for number in range(2, 1_000):
        assert numbers.take(Kind.ACQUIRE) == (number, number)
        numbers.confirm(number)


def test_what_is_no_status_of_ours_is_no_refusal() -> None:
    for junk in [b"", b"\xff", b"\x1a\x7f", b"\x08\x10", bytes(range(64))]:
        assert of_status_details(junk) is None
