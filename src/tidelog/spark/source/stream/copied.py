"""The entries of a stream that RENAME, COPY or MOVE has made: a feed tells of the copy and not of its entries.

They are read over Flight from the copy itself, when the event is taken in. Entries that were evicted or deleted since
are left out, and so is everything if the key is gone or has another stream by now: a later event tells of that. Entries
that were appended later have later offsets, and come with events of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from tidelog.errors import ClientError
from tidelog.spark.endpoint import Endpoint, call, explored
from tidelog.spark.source.entry_range import parse_id
from tidelog.spark.source.stream.columns import SCHEMA, EntryColumns
from tidelog.spark.source.stream.reading import read_offsets

COPY: Final = b"copy"
"""The field of such an event."""
_COLUMNS: Final = ("offset", "id", "timestamp", "tag", "entry", "fields")


class CopiedEntries(NamedTuple):
    """Which entries a copy has."""

    first: int
    last: int
    last_id: int

    @classmethod
    def of_value(cls, value: bytes) -> CopiedEntries:
        """From the value of an event, as the data source has it."""
        first, last, last_id, *_ = value.split(b",", 6)
        return cls(int(first), int(last), _number(last_id.decode()))


def read_copied(server: Endpoint, stream: bytes, value: bytes) -> Iterator[pa.RecordBatch]:
    """The entries that a copy had when it was made, as far as they are still there, some at a time."""
    wanted = CopiedEntries.of_value(value)
    if wanted.last < wanted.first or not _is_there(server, stream, wanted.last):
        return
    server = server if server.flight is not None or server.address.is_searched else explored(server)
    if server.flight is None and not server.address.is_searched:
        raise ClientError(
            f"{server.url} has no Flight, which is needed to read the entries of stream {stream!r}, a copy of another. "
            "Start the server with --flight-port"
        )
    columns = EntryColumns(StructType([SCHEMA[name] for name in _COLUMNS]))
    for entries in read_offsets(server, stream, max(wanted.first, 1), wanted.last):
        batch = columns.batch("", entries)
        ids = batch.column("id")
        if len(ids) and _number(ids[-1].as_py()) > wanted.last_id:  # of a stream that was made later
            batch = batch.filter(pa.array([_number(each) <= wanted.last_id for each in ids.to_pylist()], pa.bool_()))
        if batch.num_rows:
            yield batch


def copies_in(events: pa.RecordBatch) -> list[dict[str, Any]]:
    """The events that tell of copies."""
    is_copy = pc.and_(pc.equal(events.column("type"), "stream"), pc.equal(events.column("field"), COPY))
    found: list[dict[str, Any]] = events.filter(pc.fill_null(is_copy, False)).to_pylist()
    return found


def _is_there(server: Endpoint, stream: bytes, last: int) -> bool:
    with server.connect() as client:
        if call(client, "TYPE", stream) != b"stream":
            return False
        newest: int = call(client, "TREAD", stream, 1, 0, "WITHINFO")[0][1]
        return newest >= last


def _number(text: str) -> int:
    return parse_id("id", text, 0)
