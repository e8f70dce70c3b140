"""Redis's `long double`: the numbers of INCRBYFLOAT and HINCRBYFLOAT, to the last digit.

On most machines that Redis runs on it is x87's 80-bit format: 64 bits of mantissa, about 19 digits. Python has no such
type, so a finite one is a mantissa and an exponent, rounded as the format would: to the nearest, a tie to the even one.
Infinities are Python's. Decimal arithmetic would be simpler, and differ: 0.1 + 0.2 comes out the same, 1e22 + 0.1 does
not.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final, NamedTuple

_MANTISSA_BITS: Final = 64
_EXPONENT_MAX: Final = 16384
"""2 to this is too large."""
_EXPONENT_MIN: Final = -16445
"""2 to this is the smallest there is."""
_TEXT_BYTES_MAX: Final = 5 * 1024 - 1
_EXPONENT_DIGITS_MAX: Final = 6
"""An exponent with more digits is out of range, whatever mantissa the longest text has."""
_POWER_MAX: Final = 2 * _EXPONENT_MAX
"""Powers of ten and two that are larger, or smaller, than this are far out of range and not worth writing out."""
_PRINTED_DIGITS: Final = 17
"""After the point."""

_DECIMAL: Final = re.compile(rb"([+-]?)(?:([0-9]+)\.?([0-9]*)|\.([0-9]+))(?:e([+-]?)0*([0-9]+))?", re.IGNORECASE)
_HEX: Final = re.compile(rb"([+-]?)0x(?:([0-9a-f]+)\.?([0-9a-f]*)|\.([0-9a-f]+))(?:p([+-]?)0*([0-9]+))?", re.IGNORECASE)
_INFINITY: Final = re.compile(rb"([+-]?)inf(?:inity)?", re.IGNORECASE)


class Finite(NamedTuple):
    """mantissa * 2 ** exponent"""

    mantissa: int
    exponent: int


LongDouble = Finite | float
"""A float is an infinity."""

_ZERO: Final = Finite(0, 0)


def parse_long_double(text: bytes) -> LongDouble | None:
    """The number that strtold reads; None: it is none, or too large, or so small that nothing remains of it."""
    if len(text) > _TEXT_BYTES_MAX:
        return None
    if found := _DECIMAL.fullmatch(text):
        base, points = 10, 1
    elif found := _HEX.fullmatch(text):
        base, points = 2, 4
    elif found := _INFINITY.fullmatch(text):
        return -math.inf if found[1] == b"-" else math.inf
    else:
        return None
    sign, whole, places, only_places, exponent_sign, exponent_digits = found.groups(b"")
    places += only_places
    digits = whole + places
    if not digits.strip(b"0"):
        return _ZERO
    if len(exponent_digits) > _EXPONENT_DIGITS_MAX:
        return None
    power = int(exponent_sign + exponent_digits) if exponent_digits else 0
    power -= points * len(places)
    # Decimal, because Python refuses to read an int of more than 4300 digits.
    mantissa = int(Decimal(digits.decode())) if base == 10 else int(digits, 16)
    if abs(power) > _POWER_MAX:
        return None
    if sign == b"-":
        mantissa = -mantissa
    number = _nearest(mantissa * base**power, 1) if power >= 0 else _nearest(mantissa, base**-power)
    return number if isinstance(number, Finite) and number.mantissa else None


def add_long_doubles(one: LongDouble, other: LongDouble) -> Finite | None:
    """The sum; None: it is infinite or not a number."""
    if not isinstance(one, Finite) or not isinstance(other, Finite):
        return None
    low = min(one.exponent, other.exponent)
    exact = (one.mantissa << (one.exponent - low)) + (other.mantissa << (other.exponent - low))
    total = _nearest(exact << max(low, 0), 1 << max(-low, 0))
    return total if isinstance(total, Finite) else None


def scaled_up(number: Finite, factor: int) -> int:
    """The product, rounded as the format does, and then up to the next whole number."""
    product = _nearest(number.mantissa * factor << max(number.exponent, 0), 1 << max(-number.exponent, 0))
    if not isinstance(product, Finite):
        return number.mantissa * factor << number.exponent
    if product.exponent >= 0:
        return product.mantissa << product.exponent
    return -(-product.mantissa >> -product.exponent)


def format_long_double(number: Finite) -> bytes:
    """With 17 digits after the point (`%.17Lf`) and without the zeros at the end."""
    scaled = abs(number.mantissa) * 10**_PRINTED_DIGITS
    scaled = scaled << number.exponent if number.exponent >= 0 else _divide(scaled, 1 << -number.exponent)
    # Decimal, because Python refuses to print an int of more than 4300 digits.
    digits = str(Decimal(scaled)).rjust(_PRINTED_DIGITS + 1, "0")
    text = f"{digits[:-_PRINTED_DIGITS]}.{digits[-_PRINTED_DIGITS:]}".rstrip("0").rstrip(".")
    return (f"-{text}" if number.mantissa < 0 and scaled else text).encode()


def _nearest(numerator: int, denominator: int) -> LongDouble:
    """The number nearest to a fraction."""
    size = abs(numerator)
    exponent = size.bit_length() - denominator.bit_length() - _MANTISSA_BITS
    if size << max(-exponent - _MANTISSA_BITS, 0) >= denominator << max(exponent + _MANTISSA_BITS, 0):
        exponent += 1
    exponent = max(exponent, _EXPONENT_MIN)
    mantissa = _divide(size << max(-exponent, 0), denominator << max(exponent, 0))
    if mantissa.bit_length() + exponent > _EXPONENT_MAX:
        return math.inf if numerator > 0 else -math.inf
    return Finite(mantissa if numerator > 0 else -mantissa, exponent)


def _divide(numerator: int, denominator: int) -> int:
    """The nearest integer, a tie to the even one."""
    quotient, rest = divmod(numerator, denominator)
    return quotient + (2 * rest > denominator or (2 * rest == denominator and quotient & 1))
