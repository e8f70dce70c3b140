"""Which tasks read a stream, and which part of it each reads.

Tidelog numbers its entries, so a part is a range of offsets: cut into tasks of equal size, and the same whenever it is
read again. A plain Redis has only ids; there a part is a range of ids, cut by the time in them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow.flight as flight
from pyspark.sql.datasource import InputPartition

from tidelog import limits
from tidelog.errors import ClientError
from tidelog.flight.request import RangeEnd, ReadRequest
from tidelog.spark.endpoint import Endpoint, call, call_all
from tidelog.spark.options import Options
from tidelog.spark.source.entry_range import NUMBER_MAX, EntryRange, number_at_us, parse_id, split_ids
from tidelog.spark.source.key_names import NameFilter, is_pattern, name_of, scan_keys
from tidelog.spark.source.pieces import cut_evenly, pieces_of
from tidelog.streams.rows import SEQ_MAX, pack_id


class StreamPart(InputPartition):
    """What one task reads: offsets, or ids as numbers; both ends are included."""

    def __init__(self, stream: str, first: int, last: int, *, by_offset: bool) -> None:
        self.stream = stream
        self.first = first
        self.last = last
        self.by_offset = by_offset


def take_range(options: Options) -> EntryRange:
    """What the options `from_…` and `to_…` say."""
    found = EntryRange()
    match options.one_of("from_offset", "from_id", "from_time", "startingTimestamp"):
        case "from_offset":
            found = replace(found, first_offset=options.number("from_offset") or 0)
        case "from_id":
            found = replace(found, first_number=parse_id("from_id", options.text("from_id") or "", 0))
        case "from_time":
            found = replace(found, first_number=number_at_us(options.moment_us("from_time") or 0))
        case "startingTimestamp":
            found = replace(found, first_number=number_at_us(options.starting_us() or 0))
    match options.one_of("to_offset", "to_id", "to_time"):
        case "to_offset":
            found = replace(found, last_offset=options.number("to_offset") or 0)
        case "to_id":
            found = replace(found, last_number=parse_id("to_id", options.text("to_id") or "", SEQ_MAX))
        case "to_time":
            ms = (options.moment_us("to_time") or 0) // 1000
            found = replace(found, last_number=pack_id(ms, SEQ_MAX) if ms >= 0 else -1)
    return found


def list_streams(client: Any, target: str) -> list[str]:
    """The streams that a name or a pattern means; a name counts even if there is no such stream yet."""
    if not is_pattern(target):
        return [target]
    found: set[bytes] = set()
    for keys in scan_keys(client, target, "stream"):
        found.update(keys)
        if len(found) > limits.SPARK_STREAMS_MAX:
            raise ClientError(f"{target!r} names more than {limits.SPARK_STREAMS_MAX} streams: name fewer")
    return sorted(map(name_of, found))


def plan_parts(
    server: Endpoint, target: str, wanted: EntryRange, names: NameFilter, rows: int, pieces_min: int | None
) -> list[StreamPart]:
    """The tasks of a batch. What they read is decided here: entries that come later are not part of it."""
    if not is_pattern(target) and not names.has(target):
        return []
    with server.connect() as client:
        streams = [name for name in list_streams(client, target) if names.has(name)]
        if not is_pattern(target):
            _check_type(client, target, server)
        if wanted.is_empty:
            return []
        if server.flight is not None:
            return list(split_ranges(_plan_offsets(server, streams, wanted), rows, pieces_min))
        if wanted.has_offsets:
            raise ClientError(f"{server.url} has no Flight, and without it there are no offsets: give ids or times")
        return list(_plan_ids(client, streams, wanted, rows, pieces_min))


def _check_type(client: Any, stream: str, server: Endpoint) -> None:
    kind = call(client, "TYPE", stream).decode()
    if kind != "stream":
        what = "there is no stream" if kind == "none" else f"there is a {kind} and no stream"
        raise ClientError(f"{what} {stream!r} in database {server.database} of {server.url}")


def _plan_offsets(server: Endpoint, streams: list[str], wanted: EntryRange) -> list[OffsetRange]:
    found: list[OffsetRange] = []
    with server.open_flight() as (client, options):
        for stream in streams:
            first, last = _bounds(client, options, server, stream, wanted)
            first, last = max(first, wanted.first_offset), min(last, wanted.last_offset)
            if first <= last:
                found.append(OffsetRange(stream, first, last))
    return found


def _bounds(client: Any, options: Any, server: Endpoint, stream: str, wanted: EntryRange) -> tuple[int, int]:
    """The offsets of a range of ids, as things are now."""
    request = ReadRequest(
        stream.encode(),
        server.database,
        RangeEnd(number=wanted.first_number) if wanted.first_number else RangeEnd(),
        RangeEnd(number=wanted.last_number) if wanted.last_number < NUMBER_MAX else RangeEnd(),
    )
    first, last, _ = _asked_range(client, options, request)
    return first, last


def _asked_range(client: Any, options: Any, request: ReadRequest) -> tuple[int, int, int]:
    """The offsets of a range, and about how many bytes are in it; the last below the first: there is no such stream."""
    try:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(request.ticket()), options)
    except flight.FlightServerError as error:
        if "no such stream" in str(error):  # it was there when they were listed
            return 1, 0, 0
        raise
    parts = [json.loads(endpoint.ticket.ticket) for endpoint in info.endpoints]
    return parts[0]["from"]["offset"], parts[-1]["to"]["offset"], info.total_bytes


class OffsetReach:
    """How far so many bytes of a stream reach. To be used in a `with`, for any number of streams."""

    def __init__(self, server: Endpoint) -> None:
        self._server = server
        self._opened = ExitStack()

    def __enter__(self) -> OffsetReach:
        self._client, self._options = self._opened.enter_context(self._server.open_flight())
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._opened.__exit__(*error)

    def of(self, stream: str, first: int, last: int, size_bytes: int) -> tuple[int, int]:
        """The last offset of about so many bytes from an offset on, and how many bytes these are.

        At least one entry, if there is one. Offsets of entries that were deleted take nothing.
        """
        request = ReadRequest(
            stream.encode(),
            self._server.database,
            RangeEnd(offset=first),
            RangeEnd(offset=last),
            size_bytes_max=size_bytes,
        )
        begins, reached, size = _asked_range(self._client, self._options, request)
        return (reached, size) if reached >= begins else (last, 0)


def offset_of_id(server: Endpoint, stream: str, number: int) -> int:
    """The offset of the first entry at or after an id."""
    with server.open_flight() as (client, options):
        return _bounds(client, options, server, stream, EntryRange(first_number=number))[0]


class OffsetRange(NamedTuple):
    """Entries of one stream; both ends are included."""

    stream: str
    first: int
    last: int


def split_ranges(ranges: Sequence[OffsetRange], rows: int, pieces_min: int | None) -> Iterator[StreamPart]:
    """Ranges of offsets as tasks. Nothing else decides them, so a batch that is repeated has the same tasks."""
    sizes = [max(last - first + 1, 0) for _, first, last in ranges]
    wanted = [0] * len(sizes) if pieces_min is None else pieces_of(sizes, pieces_min)
    for (stream, first, last), size, pieces in zip(ranges, sizes, wanted, strict=True):
        if pieces * rows >= size:
            cuts = cut_evenly(first, last, pieces)
        else:
            cuts = ((start, min(start + rows - 1, last)) for start in range(first, last + 1, rows))
        yield from (StreamPart(stream, *cut, by_offset=True) for cut in cuts)


def _plan_ids(
    client: Any, streams: list[str], wanted: EntryRange, rows: int, pieces_min: int | None
) -> Iterator[StreamPart]:
    commands: list[tuple[str, str]] = [("XLEN", stream) for stream in streams]
    lengths = call_all(client, commands)
    pieces = [0] * len(lengths) if pieces_min is None else pieces_of(lengths, pieces_min)
    for stream, length, least in zip(streams, lengths, pieces, strict=True):
        ends = [call(client, name, stream, *bounds, "COUNT", 1) for name, bounds in _ENDS]
        if not all(ends):
            continue
        first, last = (parse_id("id", reply[0][0].decode(), 0) for reply in ends)
        first, last = max(first, wanted.first_number), min(last, wanted.last_number)
        for low, high in split_ids(first, last, max(least, -(-length // rows))):
            yield StreamPart(stream, low, high, by_offset=False)


_ENDS: Final = (("XRANGE", ("-", "+")), ("XREVRANGE", ("+", "-")))
