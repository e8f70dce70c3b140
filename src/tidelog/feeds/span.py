"""Spans of keys, and an index of the feeds that watch a key.

A span is `[start, end)`; an empty end is unbounded. A single key and a prefix are spans too, and by far the most, so
each has an index of its own: a key is found among thousands of feeds without looking at any of them.

    keys        key -> feeds
    prefixes    prefix -> feeds, asked once for each length that a prefix has
    segments    all bounds of the other spans in order, and the feeds between each two
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

Watching = Any
"""Anything that watches keys, usually a feed; hashable, and the same object each time."""


class Span(NamedTuple):
    """Keys from `start` to before `end`."""

    start: bytes
    end: bytes
    """Empty: unbounded."""

    def has(self, key: bytes) -> bool:
        return self.start <= key and (not self.end or key < self.end)

    def within(self, other: Span) -> Span | None:
        """The keys that both have; None: there are none."""
        end = min(self.end, other.end) if self.end and other.end else self.end or other.end
        both = Span(max(self.start, other.start), end)
        return None if both.is_empty else both

    @property
    def is_empty(self) -> bool:
        return bool(self.end) and self.end <= self.start

    @property
    def is_key(self) -> bool:
        return self.end == self.start + b"\0"

    @property
    def is_prefix(self) -> bool:
        return self.end == after_prefix(self.start)


EVERYTHING = Span(b"", b"")


def span_of_key(key: bytes) -> Span:
    return Span(key, key + b"\0")


def span_of_prefix(prefix: bytes) -> Span:
    return Span(prefix, after_prefix(prefix))


def after_prefix(prefix: bytes) -> bytes:
    """The first key after all that begin like this; empty: there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b""


class Interests:
    """An index from keys to the feeds that watch them."""

    def __init__(self) -> None:
        self._spans: dict[Watching, list[Span]] = {}
        self._keys: dict[bytes, list[Watching]] = {}
        self.key_sizes: set[int] | None = set()
        """Keys of other sizes are of no interest to anyone; None: any may be."""
        self._prefixes: dict[bytes, list[Watching]] = {}
        self._lengths: list[int] = []
        """Of the prefixes."""
        self._only_length = -1
        """Of all prefixes, if everyone is interested in prefixes and these have one length; -1 otherwise."""
        self._has_all = False
        """Somebody is interested in everything."""
        self._bounds: list[bytes] = []
        self._segments: list[list[Watching]] = [[]]
        """The feeds that watch the keys before the first bound, those between the first two, and so on."""

    def __len__(self) -> int:
        return len(self._spans)

    @property
    def feeds(self) -> list[Watching]:
        return list(self._spans)

    def add(self, feed: Watching, spans: Sequence[Span]) -> None:
        own = self._spans[feed] = list(dict.fromkeys(spans))
        others = False
        for span in own:
            if span.is_key:
                self._keys.setdefault(span.start, []).append(feed)
            elif span.is_prefix:
                self._prefixes.setdefault(span.start, []).append(feed)
            else:
                others = True
        self._see_others(others)

    def remove(self, feed: Watching) -> None:
        """Fine if it never was there."""
        spans = self._spans.pop(feed, None)
        if spans is None:
            return
        others = False
        for span in spans:
            if span.is_key:
                _leave(self._keys, span.start, feed)
            elif span.is_prefix:
                _leave(self._prefixes, span.start, feed)
            else:
                others = True
        self._see_others(others)

    def _see_others(self, others: bool) -> None:
        """Somebody came or left; `others`: with spans that are neither keys nor prefixes."""
        self._lengths = sorted({len(prefix) for prefix in self._prefixes})
        self._has_all = b"" in self._prefixes
        if others:
            self._cut()
        self.key_sizes = None if self._lengths or self._bounds else {len(key) for key in self._keys}
        is_simple = len(self._lengths) == 1 and not self._keys and not self._bounds
        self._only_length = self._lengths[0] if is_simple else -1

    def _cut(self) -> None:
        """Make the segments anew."""
        spans = [
            (span, feed)
            for feed, its in self._spans.items()
            for span in its
            if not (span.is_key or span.is_prefix or span.is_empty)
        ]
        self._bounds = sorted({bound for span, _ in spans for bound in span if bound})
        self._segments = [[] for _ in range(len(self._bounds) + 1)]
        for span, feed in spans:
            first = bisect_right(self._bounds, span.start) if span.start else 0
            last = bisect_right(self._bounds, span.end) if span.end else len(self._segments)
            for index in range(first, last):
                self._segments[index].append(feed)

    @property
    def has_all(self) -> bool:
        """Somebody is interested in everything."""
        return self._has_all

    def have_any(self, keys: Sequence[bytes]) -> bool:
        """Whether somebody is interested in one of these keys. Hot."""
        only_keys = self.key_sizes is not None
        for key in keys:  # noqa: SIM110 - a generator takes thrice the time
            if key in self._keys or (not only_keys and self.of(key)):
                return True
        return False

    def of(self, key: bytes) -> list[Watching]:
        """The feeds that watch a key, each once; the caller must not change the list. Hot."""
        if self._only_length >= 0:
            alike = self._prefixes.get(key[: self._only_length])
            return _NOBODY if alike is None else alike
        found = self._keys.get(key)
        if not self._lengths and not self._bounds:
            return _NOBODY if found is None else found
        everyone: dict[Watching, None] = {} if found is None else dict.fromkeys(found)
        for length in self._lengths:
            if length > len(key):
                break
            by_prefix = self._prefixes.get(key[:length])
            if by_prefix is not None:
                for feed in by_prefix:
                    everyone[feed] = None
        if self._bounds:
            for feed in self._segments[bisect_right(self._bounds, key)]:
                everyone[feed] = None
        return list(everyone)


_NOBODY: list[Watching] = []


def _leave(index: dict[bytes, list[Watching]], name: bytes, feed: Watching) -> None:
    index[name].remove(feed)
    if not index[name]:
        del index[name]
