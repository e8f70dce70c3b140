"""Which keys a feed watches: what the target of the kinds `feed` and `feedparts` means."""

from __future__ import annotations

import json
from typing import Any, Final

from tidelog import limits
from tidelog.feeds.span import Span, span_of_key, span_of_prefix
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
            f'feed={target!r}: give *, prefix:PREFIX, key:KEY, or a JSON list such as [{{"prefix": "order:"}}, '
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
