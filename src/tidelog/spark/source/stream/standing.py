"""The entries that a stream has when a lake begins with the values of now. They are read by offset, over Flight.

The value of a stream names the first and the last offset at its ts. Entries that are appended later have later offsets,
and come as changes; entries that are evicted meanwhile are gone, and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from tidelog.errors import ClientError
from tidelog.spark.endpoint import Endpoint
from tidelog.spark.source.stream.columns import SCHEMA, EntryColumns
from tidelog.spark.source.stream.reading import read_offsets

_COLUMNS: Final = ("offset", "id", "timestamp", "tag", "entry", "fields")


def read_standing(server: Endpoint, stream: bytes, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """The entries from an offset up to and including another, some at a time."""
    if last < first or last < 1:
        return
    if server.flight is None:
        raise ClientError(
            f"{server.url} has no Flight, which is needed to read the entries of stream {stream!r}. Start the server "
            "with --flight-port, or the lake with --start latest or earliest"
        )
    columns = EntryColumns(StructType([SCHEMA[name] for name in _COLUMNS]))
    for entries in read_offsets(server, stream, max(first, 1), last):
        yield columns.batch("", entries)
