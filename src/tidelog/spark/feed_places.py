"""What a feed watches, and what its server is asked before it is read."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.errors import ClientError, TooOld
from tidelog.feeds.span import Span, span_of_key, span_of_prefix
from tidelog.spark.endpoint import Endpoint, call, explored
from tidelog.spark.options import BadOption


def spans_of(target: str) -> tuple[Span, ...]:
    """The spans that a target names, each once."""
    if target == "*":
        return (span_of_prefix(b""),)
    kind, colon, name = target.partition(":")
    if colon and kind in _SPANS:
        return (_SPANS[kind](name),)
    try:
        found = [_span_of(each) for each in json.loads(target)]
    except (ValueError, TypeError, KeyError, AttributeError):
        found = []
    if not found or len(found) > limits.FEED_SPANS_MAX or any(span.is_empty for span in found):
        raise BadOption(
            f'feed={target!r}: it is *, prefix:PREFIX, key:KEY, or a JSON list such as [{{"prefix": "order:"}}, '
            f'{{"key": "config"}}, {{"span": ["a", "c"]}}] with at most {limits.FEED_SPANS_MAX} of them'
        )
    return tuple(dict.fromkeys(found))


_SPANS: Final = {
    "prefix": lambda name: span_of_prefix(name.encode()),
    "key": lambda name: span_of_key(name.encode()),
}


def _span_of(given: dict[str, Any]) -> Span:
    [(kind, what)] = given.items()
    if kind == "span":
        start, end = what
        return Span(start.encode(), end.encode())
    if not isinstance(what, str):
        raise TypeError(f"{what!r} is no text")
    return _SPANS[kind](what)


def explored_feed_server(server: Endpoint) -> Endpoint:
    found = explored(server)
    if not found.is_tidelog:
        raise ClientError(f"{server.url} is no Tidelog: it has no feeds")
    return found


# --- where things stand -----------------------------------------------------------------------------------------------


class Position(NamedTuple):
    """Where a server stands."""

    shards: list[int]
    visible: int
    """The ts up to which everything may be read; the same for all shards."""
    epoch: int
    place: int
    """A ts at or below it, up to which there are as many records as were asked for."""


def ask_position(client: Any, since: int = 0, records: int | None = None) -> Position:
    words = ("SINCE", since, "RECORDS", records) if records is not None else ()
    rows = call(client, "FEED", "POSITION", *words)
    visible, epoch = min(row[1] for row in rows), rows[0][2]
    return Position([row[0] for row in rows], visible, epoch, min([visible, *(ts for row in rows for ts in row[3:])]))


class Behind(NamedTuple):
    """What a server has after some ts."""

    seconds: float
    """Between that ts, or the first that the journal has, and the newest that is visible."""
    records: int
    """Of its journal, over all shards and databases, about; 0 only if there are none."""


def ask_behind(client: Any, since: int) -> Behind:
    rows = call(client, "FEED", "POSITION", "SINCE", since, "BEHIND")
    behind_us = max(0, rows[0][1] - rows[0][4])  # from where they begin to what is visible
    return Behind(behind_us / 1e6, max(1, sum(row[3] for row in rows)) if behind_us else 0)


def ask_oldest(server: Endpoint, span: Span) -> int:
    """The ts after which the journal has everything."""
    words: list[bytes | str | int] = ["CHANGEFEED", "SHARD", 0, "SINCE", 0, "UNTIL", 0, "SPAN", span.start, span.end]
    try:
        with server.connect() as client:
            call(client, *words)
    except TooOld as error:
        return error.oldest
    return 0
