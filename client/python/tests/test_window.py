"""How long belief lasts: arithmetic."""

from __future__ import annotations

import random

from ringfence._clock import NS_PER_MS, NS_PER_S
from ringfence._window import LEAD_MAX, Extended, Window, validity


def test_a_window_is_the_ttl_less_one_percent_and_the_margin() -> None:
    for ttl_ms, expected_ms in [
        (15_000, 15_000 - 150 - 300),
        (1_000, 1_000 - 10 - 50),
        (100, 100 - 1 - 50),
        (50, 0),
        (0, 0),
    ]:
        assert validity(ttl_ms * NS_PER_MS) == max(0, expected_ms * NS_PER_MS - 1), ttl_ms


def test_the_greatest_acknowledged_send_counts() -> None:
    window = Window(10 * NS_PER_S, NS_PER_S)
    first = window.valid_until
    assert window.extend(3 * NS_PER_S, 3 * NS_PER_S + 10) is Extended.LATER
    assert window.extend(2 * NS_PER_S, 3 * NS_PER_S + 20) is Extended.NO_CHANGE
    assert window.valid_until == first + 2 * NS_PER_S


def test_a_late_acknowledgement_revives_nothing() -> None:
    window = Window(10 * NS_PER_S, 0)
    end = window.valid_until
    assert window.extend(9 * NS_PER_S, end) is Extended.TOO_LATE
    assert window.has_passed(end) and window.valid_until == end


def test_an_acknowledgement_before_its_send_stretches_nothing() -> None:
    window = Window(10 * NS_PER_S, 0)
    window.extend(9 * NS_PER_S, NS_PER_S)
    assert window.valid_until == NS_PER_S + validity(10 * NS_PER_S)


def test_jeopardy_comes_before_the_end() -> None:
    window = Window(15 * NS_PER_S, 0)
    assert 5 * NS_PER_S < window.jeopardy_at < window.leave_at
    assert window.leave_at + LEAD_MAX == window.valid_until


def test_belief_ends_before_the_session_can_with_clocks_that_are_off_by_one_percent() -> None:
    draw = random.Random(1)
    for _ in range(10_000):
        ttl = draw.randrange(50, 86_400_000) * NS_PER_MS
        slow, fast = draw.randrange(11), draw.randrange(11)
        # True time that passes while a clock of rate r shows x is x / r.
        assert validity(ttl) * 1_000 * (1_000 + fast) <= ttl * 1_000 * (1_000 - slow)
