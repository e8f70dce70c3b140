"""GET /feed: a change feed as server-sent events.

    prefix=, key=       which keys; repeatable. Neither of them and no span: all keys
    span=a,b            keys from a to before b, which is unbounded if it is empty; repeatable
    since=              begin after this ts, or at an `id` that was sent before
    initial=1           begin with the values of now: `deleterange` first, because nothing from before counts any more
    until=              end after this ts, which is told with 204 when a browser comes back after the end
    name=               begin where the reader of this name was acknowledged (FEED ACK), and keep the journal from there
    txn=1, groups=1     a commit after each transaction; changes of the groups of streams
    expiry=1            tell also when keys expire
    db=, checkpoint=    the database; a checkpoint every so many ms
    onecheckpoint=1     one checkpoint for all keys, not one for each
    Last-Event-ID       a browser that connects again goes on where it was: wins over since and initial

Keys are percent-encoded bytes. A feed that cannot begin is answered with a status, after which a browser does not try
again: 400 for a bad request, 401 without the password, 410 when the journal no longer has that history, 503 when there
are too many feeds, or the data is still being loaded. What is a 503 passes by itself: a request that asks for a stream,
as a browser's does, gets one that says so and ends, and the browser comes back.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidelog import limits
from tidelog.engine.engine import Engine
from tidelog.engine.gate import LOADING
from tidelog.errors import ClientError, CommandError, FeedBehind, FeedDiverged, HolderLapsed, TooOld
from tidelog.feeds.event import encode_delete_range
from tidelog.feeds.feed import ChangeFeedRequest
from tidelog.feeds.span import Span, span_of_key, span_of_prefix
from tidelog.gateway.access import refusal
from tidelog.gateway.event_stream import EventStream, StreamSink, error_members, event_id, put_off
from tidelog.ids import U64_MAX, Ts
from tidelog.server.listener import address_of

_ID: Final = re.compile(r"(\d{1,20})(?:-(\d{1,20})-(\d{1,20}))?", re.ASCII)
_ONCE: Final = ("since", "initial", "until", "name", "txn", "groups", "expiry", "db", "checkpoint", "onecheckpoint")
_RETRY_AFTER_S: Final = 5
_RETRY_AFTER: Final = {"retry-after": f"{_RETRY_AFTER_S}"}


class BadQuery(ClientError):
    """A request that makes no sense."""


class FeedStart(NamedTuple):
    """Where a feed begins: a ts, and what is needed to tell whether it is still history."""

    ts: Ts
    epoch: int | None
    seen: Ts | None


def feed_page(engine_now: Callable[[], Engine]) -> Callable[[Request], Awaitable[Response]]:
    """The page. The engine may change at any time, but its password does not."""
    streams: set[StreamSink] = set()
    password = engine_now().password

    async def page(request: Request) -> Response:
        answer = await refusal(password, request)
        if answer is not None:
            return answer
        engine = engine_now()
        if engine.gate.is_loading:
            return _later(request, error_members(LOADING))
        if request.method == "HEAD":  # nobody would read a stream
            return Response(media_type=EventStream.media_type)
        streams.difference_update([sink for sink in streams if sink.is_abandoned])
        feeding = engine.feeding
        if feeding.is_closed or len(streams) >= feeding.http_feeds_max:
            return _later(request, {"error": "BUSY", "message": "no more feeds at the moment"})
        if engine.gate.read_refusal is not None:
            return _later(request, error_members(engine.gate.read_refusal))
        try:
            wanted = read_query(request.scope["query_string"], request.headers.get("last-event-id"))
            if wanted.until is not None and wanted.since is not None and wanted.since >= wanted.until:
                return Response(status_code=204)  # it has everything: a browser does not come back after this
            sink = StreamSink(address_of(request.scope.get("client"))[0], feeding.count_sent)
            opened = feeding.open_sink(wanted, 2, sink)
        except TooOld as error:
            return JSONResponse(error_members(f"FEEDTOOOLD oldest={error.oldest}"), 410)
        except FeedDiverged as error:
            return JSONResponse(error_members(f"FEEDDIVERGED since={error.since}"), 410)
        except FeedBehind as error:
            return _later(request, {"error": "TRYAGAIN", "message": str(error)})
        except HolderLapsed as error:
            return JSONResponse({"error": "ERR", "message": str(error)}, 410)
        except CommandError as error:  # a name, which is the leader's alone, and has to be journaled
            return _later(request, error_members(str(error)))
        except ClientError as error:
            return JSONResponse({"error": "ERR", "message": str(error)}, 400)
        streams.add(sink)
        return EventStream(feeding, opened, sink, _beginning(engine, opened.feed.position, wanted, sink))

    return page


def _later(request: Request, members: dict[str, Any]) -> Response:
    """What passes by itself, as those who ask for a stream or for anything take it."""
    if request.method == "GET" and EventStream.media_type in request.headers.get("accept", ""):
        headers = {**_RETRY_AFTER, "cache-control": "no-store"}
        return Response(put_off(members, _RETRY_AFTER_S), 200, headers, EventStream.media_type)
    return JSONResponse(members, 503, _RETRY_AFTER)


def _beginning(engine: Engine, position: Ts, wanted: ChangeFeedRequest, sink: StreamSink) -> bytes:
    """The event that gives a browser a position before the first checkpoint."""
    if wanted.is_initial:
        # It may have been here before, and lost the connection in the middle: keys that were deleted meanwhile are
        # not among the values that follow.
        for span in wanted.spans:
            sink.send(encode_delete_range(2, position, span))
        return b"\n"
    journal = engine.store.journal
    seen = max(min(journal.writer.visible.ts, position), wanted.seen or 0)
    return b"id: %b\n\n" % event_id(position, journal.epoch_id, seen)


def read_query(query: bytes, last_event_id: str | None) -> ChangeFeedRequest:
    """The feed that a request asks for; `BadQuery` if it cannot be understood."""
    spans: list[Span] = []
    given: dict[str, str] = {}
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="surrogateescape",
            max_num_fields=limits.FEED_SPANS_MAX,
        )
    except ValueError:
        raise BadQuery("the query cannot be parsed") from None
    for name, value in pairs:
        data = value.encode("utf-8", "surrogateescape")
        if name == "key":
            spans.append(span_of_key(data))
        elif name == "prefix":
            spans.append(span_of_prefix(data))
        elif name == "span":
            spans.append(_span(data))
        elif name in _ONCE and name not in given:
            given[name] = value
        else:
            raise BadQuery(f"{name!r} is not a parameter of a feed, or was given twice")
    is_initial = _number(given, "initial", 0, 1) == 1
    start = None if "since" not in given else _start("since", given["since"])
    if last_event_id:
        start, is_initial = _start("Last-Event-ID", last_event_id), False
    elif start is not None and is_initial:
        raise BadQuery("since and initial cannot be used together")
    until = _number(given, "until", 0, U64_MAX)
    return ChangeFeedRequest(
        spans=list(dict.fromkeys(spans)) or [Span(b"", b"")],
        database=_number(given, "db", 0, limits.DATABASES - 1) or 0,
        since=None if start is None else start.ts,
        epoch=None if start is None else start.epoch,
        seen=None if start is None else start.seen,
        is_initial=is_initial,
        until=None if until is None else Ts(until),
        name=_name(given.get("name")),
        checkpoint_ms=_number(given, "checkpoint", limits.FEED_CHECKPOINT_MS_MIN, limits.FEED_CHECKPOINT_MS_MAX),
        has_one_checkpoint=_number(given, "onecheckpoint", 0, 1) == 1,
        has_commits=_number(given, "txn", 0, 1) == 1,
        has_groups=_number(given, "groups", 0, 1) == 1,
        has_expiry=_number(given, "expiry", 0, 1) == 1,
    )


def _span(data: bytes) -> Span:
    keys = data.split(b",")
    if len(keys) != 2 or Span(*keys).is_empty:
        raise BadQuery(
            "a span must be two keys with a comma between them, the first below the second, and no other comma: not "
            f"{data.decode(errors='backslashreplace')!r}"
        )
    return Span(*keys)


def _name(name: str | None) -> str | None:
    if name is not None and (not name or any(0xD800 <= ord(char) < 0xE000 for char in name)):
        raise BadQuery("name must be UTF-8 and not empty")
    return name


def _start(name: str, text: str) -> FeedStart:
    found = _ID.fullmatch(text)
    if found is None or any(int(number) > U64_MAX for number in found.groups() if number is not None):
        raise BadQuery(f"{name} must be a ts or an id that this server sent, not {text!r}")
    ts, epoch, seen = (None if number is None else int(number) for number in found.groups())
    assert ts is not None
    return FeedStart(Ts(ts), epoch, None if seen is None else Ts(seen))


def _number(given: dict[str, str], name: str, least: int, most: int) -> int | None:
    if name not in given:
        return None
    text = given[name]
    if not (text.isascii() and text.isdecimal() and len(text) <= 20 and least <= int(text) <= most):
        raise BadQuery(f"{name} must be a number from {least} to {most}, not {text!r}")
    return int(text)
