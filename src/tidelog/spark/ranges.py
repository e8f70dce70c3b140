"""Which part of a stream is read, and by which tasks.

A Tidelog counts its entries, so a part is a range of offsets, which is cut into tasks of the same size and read again
exactly. A plain Redis knows ids only; there a part is a range of ids, cut by the time in them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow.flight as flight
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from tidelog import limits
from tidelog.errors import ClientError
from tidelog.flight.request import RangeEnd, ReadRequest
from tidelog.spark.endpoint import Endpoint, call, call_all
from tidelog.spark.options import BadOption, Options, moment_us
from tidelog.streams.rows import SEQ_MAX, pack_id

_ID: Final = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")
_GLOB: Final = re.compile(r"[*?\[\\]")
NUMBER_MAX: Final = (1 << 128) - 1


@dataclass(frozen=True, slots=True)
class Range:
    """What is wanted of each stream. Both ends are included; all bounds hold."""

    first_offset: int = 0
    last_offset: int = 2**63 - 1
    first_number: int = 0
    """Of the id, as one number."""
    last_number: int = NUMBER_MAX

    @property
    def has_numbers(self) -> bool:
        return self.first_number > 0 or self.last_number < NUMBER_MAX

    @property
    def has_offsets(self) -> bool:
        return self.first_offset > 0 or self.last_offset < 2**63 - 1

    @property
    def is_empty(self) -> bool:
        return self.first_offset > self.last_offset or self.first_number > self.last_number

    def narrowed(self, other: Range) -> Range:
        return Range(
            max(self.first_offset, other.first_offset),
            min(self.last_offset, other.last_offset),
            max(self.first_number, other.first_number),
            min(self.last_number, other.last_number),
        )


class StreamPart(InputPartition):
    """What one task reads: offsets, or ids as numbers; both ends are included."""

    def __init__(self, stream: str, first: int, last: int, *, by_offset: bool) -> None:
        self.stream = stream
        self.first = first
        self.last = last
        self.by_offset = by_offset


# --- what options and filters say -------------------------------------------------------------------------------------


def take_range(options: Options) -> Range:
    """`from_…` and `to_…`."""
    found = Range()
    match options.one_of("from_offset", "from_id", "from_time"):
        case "from_offset":
            found = replace(found, first_offset=options.number("from_offset") or 0)
        case "from_id":
            found = replace(found, first_number=parse_id("from_id", options.text("from_id") or "", 0))
        case "from_time":
            ms = -(-(options.moment_us("from_time") or 0) // 1000)
            found = replace(found, first_number=pack_id(max(ms, 0), 0))
    match options.one_of("to_offset", "to_id", "to_time"):
        case "to_offset":
            found = replace(found, last_offset=options.number("to_offset") or 0)
        case "to_id":
            found = replace(found, last_number=parse_id("to_id", options.text("to_id") or "", SEQ_MAX))
        case "to_time":
            ms = (options.moment_us("to_time") or 0) // 1000
            found = replace(found, last_number=pack_id(ms, SEQ_MAX) if ms >= 0 else -1)
    return found


def parse_id(name: str, text: str, seq: int) -> int:
    """An id as one number; `seq`: what one has that is given by its time alone."""
    found = _ID.fullmatch(text)
    if found is None or max(int(found[1]), int(found[2] or 0)) > SEQ_MAX:
        raise BadOption(f"{name}={text!r}: it is an id such as 1700000000000-0")
    return pack_id(int(found[1]), seq if found[2] is None else int(found[2]))


def range_of_filters(filters: list[Filter]) -> tuple[Range, StreamNames]:
    """What filters leave of a stream, and of streams. They only make it less: Spark evaluates all of them again."""
    found, names = Range(), StreamNames()
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        if attribute == ("stream",):
            names = names.narrowed(each)
        elif attribute:
            found = found.narrowed(_range_of(".".join(attribute), each))
    return found, names


def _range_of(column: str, condition: Filter) -> Range:
    if column not in ("offset", "ms", "timestamp", "id"):
        return Range()
    value: Any = getattr(condition, "value", None)
    if column == "id":
        match = _ID.fullmatch(value) if isinstance(condition, EqualTo) and isinstance(value, str) else None
        if match is None or match[2] is None:
            return Range()
        number = pack_id(min(int(match[1]), SEQ_MAX), min(int(match[2]), SEQ_MAX))
        return Range(first_number=number, last_number=number)
    if column == "timestamp":
        us = moment_us(column, value) if hasattr(value, "tzinfo") else None
        low, high = (None, None) if us is None else (-(-us // 1000), us // 1000)
    else:
        low = high = value if isinstance(value, int) else None
    if low is None or high is None:
        return Range()
    first = last = None
    if isinstance(condition, EqualTo):
        first, last = low, high
    elif isinstance(condition, GreaterThan | GreaterThanOrEqual):
        first = low  # one too many does no harm
    elif isinstance(condition, LessThan | LessThanOrEqual):
        last = high
    if column == "offset":
        return Range(first_offset=max(first or 0, 0), last_offset=2**63 - 1 if last is None else last)
    return Range(
        first_number=pack_id(min(max(first or 0, 0), SEQ_MAX), 0),
        last_number=NUMBER_MAX if last is None else pack_id(min(last, SEQ_MAX), SEQ_MAX) if last >= 0 else -1,
    )


@dataclass(frozen=True, slots=True)
class StreamNames:
    """Which streams are wanted, of those that a pattern names."""

    among: frozenset[str] | None = None
    """None: any."""
    prefix: str = ""

    def narrowed(self, condition: Filter) -> StreamNames:
        among: frozenset[str] | None = None
        if isinstance(condition, EqualTo):
            among = frozenset([condition.value])
        elif isinstance(condition, In):
            among = frozenset(condition.value)
        elif isinstance(condition, StringStartsWith) and len(condition.value) > len(self.prefix):
            return replace(self, prefix=condition.value)
        if among is None:
            return self
        return replace(self, among=among if self.among is None else among & self.among)

    def has(self, name: str) -> bool:
        return (self.among is None or name in self.among) and name.startswith(self.prefix)


# --- which streams there are ------------------------------------------------------------------------------------------


def is_pattern(target: str) -> bool:
    return _GLOB.search(target) is not None


def list_streams(client: Any, target: str) -> list[str]:
    """The streams that a name or a pattern means; a name also if there is no such stream yet."""
    if not is_pattern(target):
        return [target]
    found: set[bytes] = set()
    cursor: bytes = b"0"
    while True:
        cursor, keys = call(client, "SCAN", cursor, "MATCH", target, "COUNT", 1000, "TYPE", "stream")
        found.update(keys)
        if len(found) > limits.SPARK_STREAMS_MAX:
            raise ClientError(f"{target!r} names more than {limits.SPARK_STREAMS_MAX} streams: name fewer")
        if cursor == b"0":
            return sorted(map(name_of, found))


def name_of(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise ClientError(f"the name {key!r} is no UTF-8: Spark has no such strings") from None


# --- tasks ------------------------------------------------------------------------------------------------------------


def plan(server: Endpoint, target: str, wanted: Range, names: StreamNames, rows: int) -> list[StreamPart]:
    """The tasks of a batch. What they read is settled here: entries that come later are not in it."""
    if not is_pattern(target) and not names.has(target):
        return []
    with server.connect() as client:
        streams = [name for name in list_streams(client, target) if names.has(name)]
        if not is_pattern(target):
            _check_type(client, target, server)
        if wanted.is_empty:
            return []
        if server.flight is not None:
            return list(_plan_offsets(server, streams, wanted, rows))
        if wanted.has_offsets:
            raise ClientError(f"{server.url} has no Flight, and without it there are no offsets: give ids or times")
        return list(_plan_ids(client, streams, wanted, rows))


def _check_type(client: Any, stream: str, server: Endpoint) -> None:
    kind = call(client, "TYPE", stream).decode()
    if kind != "stream":
        what = "there is no stream" if kind == "none" else f"there is a {kind} and no stream"
        raise ClientError(f"{what} {stream!r} in database {server.database} of {server.url}")


def _plan_offsets(server: Endpoint, streams: list[str], wanted: Range, rows: int) -> Iterator[StreamPart]:
    with server.open_flight() as (client, options):
        for stream in streams:
            first, last = _bounds(client, options, server, stream, wanted)
            yield from split(stream, max(first, wanted.first_offset), min(last, wanted.last_offset), rows)


def _bounds(client: Any, options: Any, server: Endpoint, stream: str, wanted: Range) -> tuple[int, int]:
    """The offsets of a range of ids, as things are now."""
    request = ReadRequest(
        stream.encode(),
        server.database,
        RangeEnd(number=wanted.first_number) if wanted.first_number else RangeEnd(),
        RangeEnd(number=wanted.last_number) if wanted.last_number < NUMBER_MAX else RangeEnd(),
    )
    try:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(request.ticket()), options)
    except flight.FlightServerError as error:
        if "no such stream" in str(error):  # it was there when they were listed
            return 1, 0
        raise
    parts = [json.loads(endpoint.ticket.ticket) for endpoint in info.endpoints]
    return parts[0]["from"]["offset"], parts[-1]["to"]["offset"]


def offset_of_id(server: Endpoint, stream: str, number: int) -> int:
    """The offset of the first entry at or after an id."""
    with server.open_flight() as (client, options):
        return _bounds(client, options, server, stream, Range(first_number=number))[0]


def split(stream: str, first: int, last: int, rows: int) -> Iterator[StreamPart]:
    """A range of offsets as tasks. It depends on nothing else, so a batch that is done again has the same tasks."""
    for start in range(first, last + 1, rows):
        yield StreamPart(stream, start, min(start + rows - 1, last), by_offset=True)


def _plan_ids(client: Any, streams: list[str], wanted: Range, rows: int) -> Iterator[StreamPart]:
    commands: list[tuple[str, str]] = [("XLEN", stream) for stream in streams]
    for stream, length in zip(streams, call_all(client, commands), strict=True):
        ends = [call(client, name, stream, *bounds, "COUNT", 1) for name, bounds in _ENDS]
        if not all(ends):
            continue
        first, last = (parse_id("id", reply[0][0].decode(), 0) for reply in ends)
        first, last = max(first, wanted.first_number), min(last, wanted.last_number)
        yield from split_ids(stream, first, last, -(-length // rows))


_ENDS: Final = (("XRANGE", ("-", "+")), ("XREVRANGE", ("+", "-")))


def split_ids(stream: str, first: int, last: int, parts: int) -> Iterator[StreamPart]:
    """A range of ids as tasks of about the same time each."""
    if first > last:
        return
    first_ms, last_ms = first >> 64, last >> 64
    step = max(-(-(last_ms - first_ms + 1) // max(parts, 1)), 1)
    for ms in range(first_ms, last_ms + 1, step):
        low, high = pack_id(ms, 0), pack_id(min(ms + step - 1, SEQ_MAX), SEQ_MAX)
        yield StreamPart(stream, max(low, first), min(high, last), by_offset=False)
