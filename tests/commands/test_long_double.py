"""Numbers of 64 bits of mantissa: rounding, printing and what is out of range. `numpy.longdouble` is the oracle."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.commands.long_double import Finite, add_long_doubles, format_long_double, parse_long_double

IS_X87 = np.finfo(np.longdouble).nmant == 63


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (b"0", b"0"), (b"-0", b"0"), (b"1.50", b"1.5"), (b"100", b"100"), (b"-.5", b"-0.5"), (b"0.1", b"0.1"),
        (b"1e-17", b"0.00000000000000001"), (b"5e-18", b"0"), (b"-3e-18", b"0"), (b"0x10", b"16"),
        (b"1e22", b"10000000000000000000000"), (b"18446744073709551617", b"18446744073709551616"),
    ],
)  # fmt: skip
def test_print(text: bytes, printed: bytes) -> None:
    number = parse_long_double(text)
    assert isinstance(number, Finite)
    assert format_long_double(number) == printed


@pytest.mark.parametrize(
    "text", [b"", b" 1", b"1 ", b"1e", b"nan", b"x", b"1e5000", b"1e-5000", b"1e" + b"9" * 50, b"1_0"]
)
def test_no_number(text: bytes) -> None:
    assert parse_long_double(text) is None


def test_infinities() -> None:
    assert parse_long_double(b"inf") == float("inf")
    assert parse_long_double(b"-Infinity") == float("-inf")
    assert add_long_doubles(Finite(1, 0), float("inf")) is None
    largest = parse_long_double(b"1.18e4932")
    assert largest is not None
    assert add_long_doubles(largest, largest) is None


NUMBER = st.builds(
    lambda sign, digits, places, exponent: f"{sign}{digits}.{places}e{exponent}",
    st.sampled_from(["", "-"]),
    st.integers(0, 10**25),
    st.integers(0, 10**25),
    st.integers(-60, 60),
)


@pytest.mark.skipif(not IS_X87, reason="the machine's long double is another one")
@given(NUMBER, NUMBER)
@example("0.1", "0.2")
@example("1e22", "0.1")
@example("9223372036854775807", "0.5")
@example("9223372036854775808", "1.5")
def test_sums_as_the_machine_has_them(one: str, other: str) -> None:
    left, right = parse_long_double(one.encode()), parse_long_double(other.encode())
    assert left is not None
    assert right is not None
    ours = add_long_doubles(left, right)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = np.longdouble(one) + np.longdouble(other)
    assert ours is not None
    exact = ours.mantissa * Fraction(2) ** ours.exponent
    assert Fraction(*theirs.as_integer_ratio()) == exact
    assert Fraction(format_long_double(ours).decode()) == round(exact * 10**17) / Fraction(10**17)
