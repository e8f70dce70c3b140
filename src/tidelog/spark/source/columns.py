"""Columns that several kinds have: checked against a schema, and made of what a server sends.

Spark prunes no columns of a Python source, so the schema that a user gives decides which columns are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidelog.spark.options import BadOption

_LONG_MAX: Final = 2**63 - 1
TIMESTAMP_US_MAX: Final = 253_402_300_799_999_999
"""The end of the year 9999. Python and Spark know no later time."""


def check_columns(wanted: StructType, known: StructType, may_be: dict[str, tuple[Any, ...]]) -> None:
    """Refuse a schema with unknown columns; `may_be`: other types that a column can have."""
    types = {field.name: field.dataType for field in known}
    for field in wanted:
        if field.name not in types:
            raise BadOption(f"there is no column {field.name!r}: there are {', '.join(types)}")
        allowed = (types[field.name], *may_be.get(field.name, ()))
        if field.dataType not in allowed:
            shown = " or ".join(each.simpleString() for each in allowed)
            raise BadOption(f"column {field.name} is {shown}, not {field.dataType.simpleString()}")


class WantedColumns:
    """The columns of a schema, of which batches are made. It travels to the executors."""

    def __init__(self, schema: StructType, known: StructType, may_be: dict[str, tuple[Any, ...]]) -> None:
        check_columns(schema, known, may_be)
        self._schema = schema

    def _made(self, make: Callable[[Any], Any]) -> pa.RecordBatch:
        """A batch of the columns that `make` returns for each Arrow field."""
        fields = to_arrow_schema(self._schema, timezone="UTC")
        return pa.RecordBatch.from_arrays([make(field) for field in fields], schema=fields)


def constant(value: Any, wanted: pa.DataType, count: int) -> Any:
    return pa.repeat(pa.scalar(value, wanted), count)


def fitting(column: Any, most: int = _LONG_MAX) -> Any:
    """Unsigned numbers of 64 bits as signed ones; null for a number that does not fit."""
    if len(column) and pc.max(column).as_py() > most:
        column = pc.if_else(pc.less_equal(column, pa.scalar(most, pa.uint64())), column, pa.scalar(None, pa.uint64()))
    return column.cast(pa.int64())


def timestamps_of_us(us: Any) -> Any:
    """Null for a moment that is too late to be a timestamp."""
    if len(us) and pc.max(us).as_py() > TIMESTAMP_US_MAX:
        us = pc.if_else(pc.less_equal(us, TIMESTAMP_US_MAX), us, pa.scalar(None, pa.int64()))
    return us.cast(pa.timestamp("us", "UTC"))


def timestamps_of_ms(ms: Any) -> Any:
    """The same for unsigned milliseconds."""
    us = pc.multiply(fitting(ms, TIMESTAMP_US_MAX // 1000), pa.scalar(1000, pa.int64()))
    return us.cast(pa.timestamp("us", "UTC"))


def id_texts(ms: Any, seqs: Any) -> Any:
    return pc.binary_join_element_wise(ms.cast(pa.string()), seqs.cast(pa.string()), "-")


def halves_of_ids(ids: Sequence[bytes]) -> tuple[Any, Any]:
    """Milliseconds and sequence of ids such as `1700000000000-0`."""
    halves = pc.split_pattern(pa.array(ids, pa.binary()).cast(pa.string()), "-")
    return tuple(pc.list_element(halves, index).cast(pa.uint64()) for index in (0, 1))


def fields_map(is_fields: Any, flats: Sequence[Sequence[bytes]]) -> Any:
    """The map of each entry that has fields, null for the others. `flats`: field, value, field, value …"""
    chosen = is_fields.to_numpy(zero_copy_only=False)
    sizes = np.zeros(len(chosen) + 1, np.int32)
    sizes[1:][chosen] = [len(flat) // 2 for flat in flats]
    words = [word for flat in flats for word in flat]
    offsets = pa.array(sizes.cumsum(dtype=np.int32), pa.int32())
    keys, values = pa.array(words[::2], pa.binary()), pa.array(words[1::2], pa.binary())
    return pa.MapArray.from_arrays(offsets, keys, values, mask=pa.array(~chosen))
