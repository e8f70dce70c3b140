"""Values as they are kept: in an order that is Spark's, and equal where Spark takes them for equal.

Doubles are kept as whole numbers in the same order: for Arrow NaN is not equal to itself, and for Spark it is, and
larger than any number; 0.0 and -0.0 are equal.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LOW_BITS: Final = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_NAN: Final = np.int64(0x7FF8_0000_0000_0000)


def kept_type(kind: Any) -> Any:
    """The type in which values of a type are kept."""
    return pa.int64() if pa.types.is_floating(kind) else kind


def to_kept(values: Any) -> Any:
    values = one_chunk(values)
    if not pa.types.is_floating(values.type):
        return values
    is_null = pc.is_null(values).to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) + 0.0
    bits = np.where(np.isnan(numbers), _NAN, numbers.view(np.int64))
    return pa.array(np.where(bits < 0, bits ^ _LOW_BITS, bits), pa.int64(), mask=is_null)


def from_kept(values: Any, kind: Any) -> Any:
    values = one_chunk(values)
    if not pa.types.is_floating(kind):
        return values
    is_null = pc.is_null(values).to_numpy(zero_copy_only=False)
    bits = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    numbers = np.where(bits < 0, bits ^ _LOW_BITS, bits).view(np.float64)
    return pa.array(numbers, pa.float64(), mask=is_null).cast(kind)


def one_chunk(array: Any) -> Any:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
