"""The ring of clocks: what follows, how far, and which of two is later."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.channels.clock import LARGEST, RING, after, is_at_or_before, is_clock, steps_between

EDGES = [clock + step for clock in (-LARGEST, -(LARGEST // 2), 0, LARGEST // 2, LARGEST) for step in range(-3, 4)]
CLOCKS = st.sampled_from([clock for clock in EDGES if is_clock(clock)]) | st.integers(-LARGEST, LARGEST)


def test_the_largest_is_what_a_double_counts_to() -> None:
    assert LARGEST == 2**53 - 1
    assert float(LARGEST) + 1 != float(LARGEST)
    assert float(LARGEST + 1) + 1 == float(LARGEST + 1)
    assert [is_clock(clock) for clock in (-LARGEST - 1, -LARGEST, LARGEST, LARGEST + 1)] == [False, True, True, False]


@pytest.mark.parametrize(
    ("clock", "following"),
    [(0, 1), (-1, 0), (LARGEST - 1, LARGEST), (LARGEST, -LARGEST), (-LARGEST, -LARGEST + 1)],
)
def test_what_follows(clock: int, following: int) -> None:
    assert after(clock) == following
    assert steps_between(clock, following) == 1
    assert steps_between(following, clock) is None


@given(CLOCKS, st.integers(0, LARGEST))
def test_so_many_steps_are_so_far(clock: int, steps: int) -> None:
    assert is_clock(after(clock, steps))
    assert steps_between(clock, after(clock, steps)) == steps
    assert is_at_or_before(clock, after(clock, steps))


@given(CLOCKS, CLOCKS)
def test_of_two_that_differ_one_is_later(one: int, other: int) -> None:
    assert (is_at_or_before(one, other) and is_at_or_before(other, one)) == (one == other)
    assert is_at_or_before(one, other) or is_at_or_before(other, one)
    forth, back = steps_between(one, other), steps_between(other, one)
    assert (forth is None) == (back is not None and back > 0)
    assert after(one, (forth if forth is not None else RING - (back or 0))) == other
