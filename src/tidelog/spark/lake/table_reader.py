"""Reads some rows and columns of the files of a table, as tasks need them.

Files may lack columns that JSON values added later: these are null. Statistics in a file say which groups of rows have
a ts that is wanted; the others are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pa_dataset

from tidelog.spark.delta.storage import Storage


def read_files(
    storage: Storage, table: str, paths: Sequence[str], schema: pa.Schema, *, after: int = -1, until: int | None = None
) -> pa.Table:
    """The columns of `schema` of the rows with a ts after one, and up to another."""
    files = pa_dataset.dataset(list(paths), schema=schema, format="parquet", filesystem=storage.files(table))
    wanted: Any = None
    if after >= 0:
        wanted = pa_dataset.field("ts") > after
    if until is not None:
        up_to = pa_dataset.field("ts") <= until
        wanted = up_to if wanted is None else wanted & up_to
    found: pa.Table = files.to_table(filter=wanted)
    return found
