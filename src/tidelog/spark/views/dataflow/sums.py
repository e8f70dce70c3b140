"""Sums that are exact, so that taking a value away again leaves nothing behind.

Adding fractions rounds, and a sum that values are added to and taken from would drift. So a sum is kept as a whole
number: every double is a whole number of 2**-1126, and every decimal one of its last place. Many rows are added at
once: their numbers are cut into limbs of 32 bits, which columns of 64 bits add up without overflow for as many rows as
fit into memory. Sums of whole numbers wrap around at 64 bits, as those of Spark do.

    state of a sum, binary      decimal: the number, signed, big endian
    of doubles                  shift 2 | number >> shift, signed, big endian
    with infinities or NaN      0xffff | how many are NaN 8 | +inf 8 | -inf 8 | the same as above
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

_SCALE_BITS: Final = 1126
"""2**-1126 is the last bit of the smallest double, with 52 bits behind it for `frexp`."""
_LIMB_BITS: Final = 32
_LIMB_MASK: Final = (1 << _LIMB_BITS) - 1
_SHIFT: Final = struct.Struct(">H")
_STRANGE: Final = struct.Struct(">Hqqq")
_IS_STRANGE: Final = 0xFFFF
_UNIT: Final = 1 << _SCALE_BITS


class DoubleSum(NamedTuple):
    """An exact sum of doubles."""

    number: int = 0
    """In units of 2**-1126."""
    nans: int = 0
    highs: int = 0
    """How often +inf is in it."""
    lows: int = 0
    """How often -inf is in it."""

    def plus(self, other: DoubleSum) -> DoubleSum:
        return DoubleSum(*(one + more for one, more in zip(self, other, strict=True)))

    def value(self) -> float:
        """The double that is nearest."""
        if self.nans or (self.highs and self.lows):
            return math.nan
        if self.highs or self.lows:
            return math.inf if self.highs else -math.inf
        try:
            return self.number / _UNIT
        except OverflowError:
            return math.inf if self.number > 0 else -math.inf

    def packed(self) -> bytes:
        number = self.number
        shift = (number & -number).bit_length() - 1 if number else 0
        made = _SHIFT.pack(shift) + packed_int(number >> shift)
        if self.nans or self.highs or self.lows:
            return _STRANGE.pack(_IS_STRANGE, self.nans, self.highs, self.lows) + made
        return made

    @classmethod
    def unpacked(cls, data: bytes | None) -> DoubleSum:
        if data is None:
            return _NO_SUM
        [shift] = _SHIFT.unpack_from(data)
        counts: tuple[int, ...] = ()
        if shift == _IS_STRANGE:
            _, *counts = _STRANGE.unpack_from(data)  # type: ignore[assignment]
            data = data[_STRANGE.size :]
            [shift] = _SHIFT.unpack_from(data)
        return cls(unpacked_int(data[_SHIFT.size :]) << shift, *counts)


_NO_SUM: Final = DoubleSum()


def packed_int(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def unpacked_int(data: bytes | None) -> int:
    return 0 if data is None else int.from_bytes(data, "big", signed=True)


def sum_doubles(codes: Any, values: Any, signs: Any, count: int) -> list[DoubleSum]:
    """For each group, given by the codes of rows, the sum of its values, each times its sign."""
    values = values.astype(np.float64)
    is_finite = np.isfinite(values)
    strange: list[list[int]] = []
    if not is_finite.all():
        for mask in (np.isnan(values), values == np.inf, values == -np.inf):
            made = np.zeros(count, np.int64)
            np.add.at(made, codes[mask], signs[mask])
            strange.append(made.tolist())
        codes, values, signs = codes[is_finite], values[is_finite], signs[is_finite]
    fractions, exponents = np.frexp(values)
    numbers = np.abs(np.ldexp(fractions, 53)).astype(np.uint64)
    signs = np.where(values < 0, -signs, signs)
    shifts = exponents.astype(np.int64) - 53 + _SCALE_BITS
    limbs, rests = shifts // _LIMB_BITS, (shifts % _LIMB_BITS).astype(np.uint64)
    low = (numbers & np.uint64(_LIMB_MASK)) << rests
    high = (numbers >> np.uint64(_LIMB_BITS)) << rests
    mask = np.uint64(_LIMB_MASK)
    bits = np.uint64(_LIMB_BITS)
    parts = [(0, low & mask), (1, low >> bits), (1, high & mask), (2, high >> bits)]
    totals = _totals(codes, [(limbs + more, part.astype(np.int64) * signs) for more, part in parts], count)
    if not strange:
        return [DoubleSum(total) for total in totals]
    return [DoubleSum(*each) for each in zip(totals, *strange, strict=True)]


def sum_decimals(codes: Any, values: pa.Array, signs: Any, count: int) -> list[int]:
    """The same of decimals without nulls, in units of their last place."""
    wide = values.cast(pa.decimal128(38, values.type.scale))
    words = np.frombuffer(wide.buffers()[1], np.uint64)[2 * wide.offset : 2 * (wide.offset + len(wide))]
    low, high = words[0::2], words[1::2].astype(np.int64)
    mask, bits = np.uint64(_LIMB_MASK), np.uint64(_LIMB_BITS)
    parts = [
        (low & mask).astype(np.int64),
        (low >> bits).astype(np.int64),
        high & _LIMB_MASK,
        high >> _LIMB_BITS,  # with the sign
    ]
    limbs = np.zeros(len(codes), np.int64)
    return _totals(codes, [(limbs + number, part * signs) for number, part in enumerate(parts)], count)


def _totals(codes: Any, parts: Sequence[tuple[Any, Any]], count: int) -> list[int]:
    """Add up limbs: for each group the sum of `limb << 32 * place`."""
    totals = [0] * count
    if not len(codes):
        return totals
    most = max(int(places.max()) for places, _ in parts) + 1
    at = np.concatenate([codes.astype(np.int64) * most + places for places, _ in parts])
    found, which = np.unique(at, return_inverse=True)
    sums = np.zeros(len(found), np.int64)
    np.add.at(sums, which, np.concatenate([limbs for _, limbs in parts]))
    for place, total in zip(found.tolist(), sums.tolist(), strict=True):
        group, limb = divmod(place, most)
        totals[group] += total << (_LIMB_BITS * limb)
    return totals
