"""Events of day streams as columns; what they are: see `days`.

A compressed batch is columns already and stays so. Of a hot page, ids and events are taken apart by list, and only an
entry with more than an event is looked at alone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.days.exchange import fields
from tidelog.days.message import message_of_entry
from tidelog.spark.entries import fitting, halves_of_ids, id_texts, timestamps_of_ms
from tidelog.spark.kind import check_columns

SCHEMA: Final = StructType(
    [
        StructField("queue", StringType()),
        StructField("jobset", StringType()),
        StructField("day", DateType()),
        StructField("id", StringType()),
        StructField("ms", LongType()),
        StructField("seq", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("event", StringType()),
        StructField("is_compressed", BooleanType()),
    ]
)
_MAY_BE: Final = {"event": (BinaryType(),)}


class DayEvents(NamedTuple):
    """Some events of one day."""

    queue: str
    jobset: str
    day: date
    is_compressed: bool
    ms: Any
    seqs: Any
    times_ms: Any
    events: Any

    def __len__(self) -> int:
        return len(self.ms)


class DayColumns:
    """Makes batches of the columns that are wanted."""

    def __init__(self, schema: StructType) -> None:
        check_columns(schema, SCHEMA, _MAY_BE)
        self._schema = schema

    def batch(self, events: DayEvents) -> pa.RecordBatch:
        arrow_schema = to_arrow_schema(self._schema, timezone="UTC")
        columns = [_MAKERS[field.name](events, field.type) for field in arrow_schema]
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema)


def hot_columns(key: bytes, reply: Sequence[tuple[bytes, Sequence[bytes]]]) -> list[Any]:
    """Both halves of the ids, times and events of a page of a hot stream."""
    ms, seqs = halves_of_ids([identity for identity, _ in reply])
    if all(len(flat) == 2 and flat[0] == b"event" for _, flat in reply):
        return [ms, seqs, ms, pa.array([flat[1] for _, flat in reply], pa.binary())]
    messages = [message_of_entry(key, identity, fields(flat)) for identity, flat in reply]
    times = pa.array([message.timestamp_ms for message in messages], pa.uint64())
    return [ms, seqs, times, pa.array([message.event for message in messages], pa.binary())]


def _constant(value: Any, wanted: Any, count: int) -> Any:
    return pa.repeat(pa.scalar(value, wanted), count)


def _events(events: DayEvents, wanted: Any) -> Any:
    if not pa.types.is_string(wanted):
        return events.events
    try:
        return events.events.cast(wanted)
    except pa.ArrowInvalid:  # not all of it is text
        return pa.array([_text(event) for event in events.events.to_pylist()], wanted)


def _text(event: bytes) -> str:
    try:
        return event.decode()
    except UnicodeDecodeError:
        return json.dumps({"base64": base64.b64encode(event).decode()})


_MAKERS: Final[dict[str, Callable[[DayEvents, Any], Any]]] = {
    "queue": lambda events, wanted: _constant(events.queue, wanted, len(events)),
    "jobset": lambda events, wanted: _constant(events.jobset, wanted, len(events)),
    "day": lambda events, wanted: _constant(events.day, wanted, len(events)),
    "id": lambda events, _: id_texts(events.ms, events.seqs),
    "ms": lambda events, _: fitting(events.ms),
    "seq": lambda events, _: fitting(events.seqs),
    "timestamp": lambda events, _: timestamps_of_ms(events.times_ms),
    "event": _events,
    "is_compressed": lambda events, wanted: _constant(events.is_compressed, wanted, len(events)),
}


def ids_between(ms: Any, seqs: Any, first: tuple[int, int], last: tuple[int, int]) -> Any:
    """Which ids lie in a range, both ends included."""
    return pc.and_(_is_at_least(ms, seqs, first), pc.invert(_is_after(ms, seqs, last)))


def _is_at_least(ms: Any, seqs: Any, bound: tuple[int, int]) -> Any:
    halves = [pa.scalar(half, pa.uint64()) for half in bound]
    return pc.or_(pc.greater(ms, halves[0]), pc.and_(pc.equal(ms, halves[0]), pc.greater_equal(seqs, halves[1])))


def _is_after(ms: Any, seqs: Any, bound: tuple[int, int]) -> Any:
    halves = [pa.scalar(half, pa.uint64()) for half in bound]
    return pc.or_(pc.greater(ms, halves[0]), pc.and_(pc.equal(ms, halves[0]), pc.greater(seqs, halves[1])))
