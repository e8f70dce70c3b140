"""Tables in Arrow that grow in memory, change after change."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

_CHUNKS_MAX: Final = 16


def with_rows(table: pa.Table, more: pa.Table) -> pa.Table:
    """A table with more rows. Appending leaves chunks behind; a table with too many of them is copied into one."""
    made = pa.concat_tables([table, more])
    return made.combine_chunks() if made.column(0).num_chunks > _CHUNKS_MAX else made


def one_chunk(array: Any) -> Any:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
