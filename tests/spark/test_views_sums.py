"""Sums are exact: whatever comes and goes, and in whatever order, only what is there is in them."""

from __future__ import annotations

import math
import random
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.spark.views.dataflow.sums import DoubleSum, packed_int, sum_decimals, sum_doubles, unpacked_int

GROUPS = 3
LARGEST = 1.7976931348623157e308
SMALLEST = 5e-324
STRANGE = [0.0, -0.0, SMALLEST, -SMALLEST, 2.0**-1022, 2.0**-1022 - SMALLEST, LARGEST, -LARGEST, 1.0, 0.1, 2.0**53 + 2]

finite = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(STRANGE)
signs = st.sampled_from([-1, 1])
codes = st.integers(0, GROUPS - 1)


def summed(rows: list[tuple[int, float, int]]) -> list[DoubleSum]:
    at, signs = (np.array([row[n] for row in rows], np.int64) for n in (0, 2))
    return sum_doubles(at, np.array([value for _, value, _ in rows], np.float64), signs, GROUPS)


def nearest(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


@given(st.lists(st.tuples(codes, finite, signs)))
@example([(0, LARGEST, 1), (0, LARGEST, 1), (0, LARGEST, -1)])
@example([(0, SMALLEST, 1), (0, LARGEST, 1), (0, -LARGEST, 1)])
def test_sums_of_doubles_are_exact(rows: list[tuple[int, float, int]]) -> None:
    found = summed(rows)
    for group in range(GROUPS):
        exact = sum((sign * Fraction(value) for code, value, sign in rows if code == group), Fraction())
        assert Fraction(found[group].number, 2**1126) == exact
        assert found[group].value() == nearest(exact)


@given(st.lists(st.tuples(codes, st.floats() | st.sampled_from(STRANGE), signs)), st.integers(0, 50))
def test_values_that_go_leave_nothing_behind(rows: list[tuple[int, float, int]], cut: int) -> None:
    whole = summed(rows)
    parts = zip(summed(rows[:cut]), summed(rows[cut:]), strict=True)
    assert [one.plus(other) for one, other in parts] == whole
    back = summed([(code, value, -sign) for code, value, sign in reversed(rows)])
    assert [one.plus(other) for one, other in zip(whole, back, strict=True)] == [DoubleSum()] * GROUPS
    assert [DoubleSum.unpacked(each.packed()) for each in whole] == whole


@given(st.lists(st.sampled_from([1.0, math.nan, math.inf, -math.inf])))
def test_what_is_no_number_decides(values: list[float]) -> None:
    [found, *_] = summed([(0, value, 1) for value in values])
    expected = sum(values)
    assert found.value() == expected or (math.isnan(found.value()) and math.isnan(expected))


def test_many_values_at_once_do_not_overflow() -> None:
    """Limbs are added up in 64 bits."""
    chance = random.Random(3)
    values = [chance.choice([LARGEST, 0.1, -1e300, SMALLEST, 3.0]) for _ in range(200_000)]
    found = sum_doubles(np.zeros(len(values), int), np.array(values), np.ones(len(values), int), 1)
    exact = sum(values.count(value) * Fraction(value) for value in set(values))
    assert Fraction(found[0].number, 2**1126) == exact


def test_a_sum_is_short_when_it_is_simple() -> None:
    """There may be millions of them."""
    for value in (0.0, 1.0, -1.0, 0.25, 1e300, SMALLEST):
        [found] = sum_doubles(np.array([0]), np.array([value]), np.array([1]), 1)
        assert len(found.packed()) <= 10
    assert DoubleSum.unpacked(None) == DoubleSum()
    assert DoubleSum().value() == 0.0


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_singles_are_doubles(kind: Any) -> None:
    values = np.array([0.1, 1e-45, 3e38], kind)
    [found] = sum_doubles(np.zeros(3, int), values, np.ones(3, int), 1)
    assert Fraction(found.number, 2**1126) == sum(Fraction(float(value)) for value in values)


@given(st.integers())
def test_whole_numbers_are_packed(number: int) -> None:
    assert unpacked_int(packed_int(number)) == number


def test_nothing_is_zero() -> None:
    assert unpacked_int(None) == 0
    assert summed([]) == [DoubleSum()] * GROUPS
    nothing = np.array([], int)
    assert sum_decimals(nothing, pa.array([], pa.decimal128(10, 2)), nothing, 2) == [0, 0]


units = st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-1000, 1000) | st.sampled_from([2**32, -(2**64), 2**96])


@pytest.mark.parametrize("scale", [0, 2, 38])
@given(rows=st.lists(st.tuples(codes, units, signs)), cut=st.integers(0, 10))
def test_sums_of_decimals_are_exact(scale: int, rows: list[tuple[int, int, int]], cut: int) -> None:
    with localcontext(prec=50):
        numbers = [Decimal(unit).scaleb(-scale) for _, unit, _ in rows]
    values = pa.array(numbers, pa.decimal128(38, scale)).slice(cut)
    rows = rows[cut:]
    at = np.array([code for code, _, _ in rows], int)
    found = sum_decimals(at, values, np.array([sign for _, _, sign in rows], int), GROUPS)
    assert found == [sum(sign * unit for code, unit, sign in rows if code == group) for group in range(GROUPS)]


def test_sums_of_narrow_decimals_are_exact() -> None:
    values = pa.array([Decimal("1.25"), Decimal("-9.99")], pa.decimal128(3, 2))
    assert sum_decimals(np.array([0, 0]), values, np.array([1, -1]), 1) == [125 + 999]
