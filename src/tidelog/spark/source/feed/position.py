"""Where a server stands: what a job asks before it reads a feed."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidelog.errors import ClientError, TooOld
from tidelog.feeds.span import Span
from tidelog.spark.endpoint import Endpoint, call, explored
from tidelog.spark.options import BadOption


def explored_feed_server(server: Endpoint) -> Endpoint:
    found = explored(server)
    if not found.is_tidelog:
        raise ClientError(f"{server.url} is not a Tidelog, and only a Tidelog has feeds")
    return found


class FeedPosition(NamedTuple):
    """Where a server stands."""

    shards: list[int]
    visible: int
    """The ts up to which everything may be read; the same for all shards."""
    epoch: int
    until: int
    """A ts at or below it, up to which there are about as many records as were asked for."""


def ask_position(client: Any, since: int = 0, records: int | None = None) -> FeedPosition:
    words = ("SINCE", since, "RECORDS", records) if records is not None else ()
    rows = call(client, "FEED", "POSITION", *words)
    visible, epoch = min(row[1] for row in rows), rows[0][2]
    return FeedPosition(
        [row[0] for row in rows], visible, epoch, min([visible, *(ts for row in rows for ts in row[3:])])
    )


def refuse_future(client: Any, option: str, ts: int, visible: int) -> None:
    """Refuse a moment that the server has not reached, as CHANGEFEED does: it is a mistake, such as ms for µs."""
    seconds, microseconds = map(int, call(client, "TIME"))
    if ts > max(visible, 1_000_000 * seconds + microseconds):
        raise BadOption(f"{option}={ts} lies ahead of the server's clock: give a ts in µs, or an ISO time")


class Behind(NamedTuple):
    """What a journal has after some ts."""

    begin: int
    """That ts, or a later one, up to which the journal has nothing."""
    visible: int
    """The newest ts that may be read."""
    records: int
    """Over all shards and databases; 0 only if there are none."""

    @property
    def seconds(self) -> float:
        """Between where they begin and the newest."""
        return max(0, self.visible - self.begin) / 1e6


def ask_behind(client: Any, since: int) -> Behind:
    rows = call(client, "FEED", "POSITION", "SINCE", since, "BEHIND")
    begin, visible = rows[0][4], rows[0][1]
    return Behind(begin, visible, max(1, sum(row[3] for row in rows)) if visible > begin else 0)


def ask_oldest(server: Endpoint, span: Span) -> int:
    """The ts after which the journal has everything."""
    words: list[bytes | str | int] = ["CHANGEFEED", "SHARD", 0, "SINCE", 0, "UNTIL", 0, "SPAN", span.start, span.end]
    try:
        with server.connect() as client:
            call(client, *words)
    except TooOld as error:
        return error.oldest
    return 0
