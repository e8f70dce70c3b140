"""Events of day streams as columns. What the columns mean: see `kind`.

A compressed batch already consists of columns and stays that way. Ids and events of a hot page are taken apart as
lists; only an entry that has more than an event is handled alone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
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
from tidelog.spark.source.columns import (
    WantedColumns,
    constant,
    fitting,
    halves_of_ids,
    id_texts,
    timestamps_of_ms,
)

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


class DayColumns(WantedColumns):
    """Makes batches of events of days."""

    def __init__(self, schema: StructType) -> None:
        super().__init__(schema, SCHEMA, _MAY_BE)

    def batch(self, events: DayEvents) -> pa.RecordBatch:
        return self._made(lambda field: _MAKERS[field.name](events, field.type))


def hot_columns(key: bytes, reply: Sequence[tuple[bytes, Sequence[bytes]]]) -> list[Any]:
    """Both halves of the ids, times and events of a page of a hot stream."""
    ms, seqs = halves_of_ids([identity for identity, _ in reply])
    if all(len(flat) == 2 and flat[0] == b"event" for _, flat in reply):
        return [ms, seqs, ms, pa.array([flat[1] for _, flat in reply], pa.binary())]
    messages = [message_of_entry(key, identity, fields(flat)) for identity, flat in reply]
    times = pa.array([message.timestamp_ms for message in messages], pa.uint64())
    return [ms, seqs, times, pa.array([message.event for message in messages], pa.binary())]


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
    "queue": lambda events, wanted: constant(events.queue, wanted, len(events)),
    "jobset": lambda events, wanted: constant(events.jobset, wanted, len(events)),
    "day": lambda events, wanted: constant(events.day, wanted, len(events)),
    "id": lambda events, _: id_texts(events.ms, events.seqs),
    "ms": lambda events, _: fitting(events.ms),
    "seq": lambda events, _: fitting(events.seqs),
    "timestamp": lambda events, _: timestamps_of_ms(events.times_ms),
    "event": _events,
    "is_compressed": lambda events, wanted: constant(events.is_compressed, wanted, len(events)),
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
