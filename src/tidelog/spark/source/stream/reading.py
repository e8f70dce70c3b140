"""How a task reads its part of a stream: over Flight, or in pages of XRANGE.

Entries can be evicted after a part was planned and before it is read. So a task asks, after it has read, whether the
first entry of its part is still there: if it is, nothing was missed. Entries that were deleted one by one are not a
loss.

With several servers, a part is read from one of them: the leader, or one that follows and has come as far as the part.
If that one is lost, reading goes on at another, after the last entry that was read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow.flight as flight

from tidelog import limits
from tidelog.errors import ClientError, ServerUnreachable, TooOld
from tidelog.flight.nodes import unpacked
from tidelog.flight.request import RangeEnd, ReadRequest
from tidelog.spark.endpoint import Endpoint, call
from tidelog.spark.source.entry_range import id_text, parse_id
from tidelog.spark.source.loss import raise_or_log
from tidelog.spark.source.stream.columns import Entries, EntryColumns, from_flight, from_xrange
from tidelog.spark.source.stream.planning import StreamPart


class EntriesLost(TooOld):
    """Entries that were to be read have been evicted."""


def read_part(server: Endpoint, part: StreamPart, columns: EntryColumns, *, fail_on_loss: bool) -> Iterator[Any]:
    """The batches of a part. On an executor."""
    if part.by_offset:
        if server.flight is None:
            raise ClientError(f"{server.url} has no Flight: give its address as the option flight")
        for entries in read_offsets(server, part.stream.encode(), part.first, part.last):
            yield columns.batch(part.stream, entries)
        with server.connect() as client:
            loss = find_loss(part.stream, part.first, part.last, call(client, *loss_question(part.stream, part.first)))
        if loss is not None:
            raise_or_log(loss, fail_on_loss=fail_on_loss)
    else:
        for entries in _pages(server, part):
            yield columns.batch(part.stream, entries)


def read_offsets(server: Endpoint, stream: bytes, first: int, last: int) -> Iterator[Entries]:
    """The entries from an offset up to and including another, over Flight, in batches of a good size."""
    losses = _Losses(server)
    while True:
        try:
            at = server.pinned(lambda client: _newest_offset(client, stream) >= last)
            request = ReadRequest(
                stream, server.database, RangeEnd(offset=first), RangeEnd(offset=last), is_packed=True
            )
            with at.open_flight() as (client, options):
                reader = client.do_get(flight.Ticket(request.ticket()), options)
                nodes = (chunk.data for chunk in reader)
                for batch in unpacked(nodes, limits.SPARK_BATCH_ROWS, limits.SPARK_BATCH_BYTES):
                    entries = from_flight(batch)
                    if len(entries):
                        first = entries.offsets[-1].as_py() + 1
                    yield entries
                    losses.forget()
            return
        except ServerUnreachable as error:
            losses.add(error)


def _newest_offset(client: Any, stream: bytes) -> int:
    newest: int = call(client, "TREAD", stream, 1, 0, "WITHINFO")[0][1]
    return newest


class _Losses:
    """Servers that were lost in a row while a task read from them: another one is looked for, for a while."""

    def __init__(self, server: Endpoint) -> None:
        self._is_searched = server.address.is_searched
        self._since_s: float | None = None

    def forget(self) -> None:
        self._since_s = None

    def add(self, error: ServerUnreachable) -> None:
        """Raises it if that is enough."""
        now_s = time.monotonic()
        self._since_s = now_s if self._since_s is None else self._since_s
        if not self._is_searched or now_s - self._since_s > limits.SPARK_FEED_LOST_S:
            raise error
        time.sleep(limits.SPARK_FEED_RETRY_S)


def loss_question(stream: str, first: int) -> tuple[str, str, int, int, str]:
    """The command whose reply tells: TREAD answers null for an entry that was evicted."""
    return "TREAD", stream, max(first, 1), 1, "WITHINFO"


def find_loss(stream: str, first: int, last: int, reply: list[Any]) -> EntriesLost | None:
    """Whether the entry at the first offset was evicted, or the stream no longer goes as far as the last."""
    (oldest, newest), *entries = reply
    if newest < last:
        return EntriesLost(
            f"stream {stream!r} ends at offset {newest}, and {last} was there before: the stream was deleted. "
            "failOnDataLoss=false starts over with what it has now",
            oldest=oldest,
        )
    if not entries or entries[0] is not None:
        return None
    return EntriesLost(
        f"entries {first} to {oldest - 1} of stream {stream!r} were evicted before they were read: the oldest that is "
        f"left is {oldest}. failOnDataLoss=false goes on without them",
        oldest=oldest,
    )


def _pages(server: Endpoint, part: StreamPart) -> Iterator[Entries]:
    """The entries of a range of ids, some at a time."""
    start, end = id_text(part.first), id_text(part.last)
    losses = _Losses(server)
    while True:
        try:
            with server.pinned(lambda client: _newest_id(client, part.stream) >= part.last).connect() as client:
                while reply := call(client, "XRANGE", part.stream, start, end, "COUNT", limits.SPARK_PAGE_ROWS):
                    start = f"({reply[-1][0].decode()}"
                    yield from_xrange(reply)
                    losses.forget()
                    if len(reply) < limits.SPARK_PAGE_ROWS:
                        return
            return
        except ServerUnreachable as error:
            losses.add(error)


def _newest_id(client: Any, stream: str) -> int:
    found = call(client, "XREVRANGE", stream, "+", "-", "COUNT", 1)
    return parse_id("id", found[0][0].decode(), 0) if found else -1
