"""The entries that a stream has when a lake begins with the values of now: they are read by offset, over Flight.

A value tells the first and the last offset that the stream has at its ts. What is appended later has later offsets, and
comes as a change; what is evicted meanwhile is not there any more, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.flight as flight
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.errors import ClientError
from tidelog.flight.nodes import unpacked
from tidelog.flight.request import RangeEnd, ReadRequest
from tidelog.spark.endpoint import Endpoint
from tidelog.spark.entries import SCHEMA, EntryColumns, from_flight

_COLUMNS: Final = ("offset", "id", "timestamp", "tag", "entry", "fields")


def read_standing(server: Endpoint, stream: bytes, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """The entries from an offset up to and with another, some at a time."""
    if last < first or last < 1:
        return
    if server.flight is None:
        raise ClientError(
            f"{server.url} has no Flight, over which the entries of stream {stream!r} would be read. Start it with "
            "--flight-port, or the lake with --start latest or earliest"
        )
    columns = EntryColumns(StructType([SCHEMA[name] for name in _COLUMNS]))
    places = RangeEnd(offset=max(first, 1)), RangeEnd(offset=last)
    request = ReadRequest(stream, server.database, *places, is_packed=True)
    with server.open_flight() as (client, options):
        reader = client.do_get(flight.Ticket(request.ticket()), options)
        nodes = (chunk.data for chunk in reader)
        for batch in unpacked(nodes, limits.SPARK_BATCH_ROWS, limits.SPARK_BATCH_BYTES):
            yield columns.batch("", from_flight(batch))
