"""A feed that is open: what moves it on, and where its events go."""

from __future__ import annotations

from typing import Protocol

from tidelog.feeds.fanout import Fanout
from tidelog.feeds.feed import ChangeFeed
from tidelog.feeds.router import Router
from tidelog.feeds.scan import Scan
from tidelog.types.change import LargeString


class Sink(Protocol):
    """Where the events of a feed go."""

    @property
    def peer(self) -> str:
        """The address of its reader."""

    @property
    def unsent_bytes(self) -> int:
        """What it holds for its reader."""

    @property
    def is_full(self) -> bool:
        """It takes no more at the moment; `Feeds.resume` says when it does."""

    @property
    def is_held(self) -> bool:
        """Nothing can be sent for the moment: a large string, or a long reply, has to reach its end first."""

    def send(self, data: bytes | LargeString) -> None:
        """Events, or parts of one: what stands before, after and between large strings, and those, which it reads."""

    def end(self, error: str | None) -> None:
        """Nothing follows: it is at its end, or an error keeps it from going on."""

    def cut(self) -> None:
        """Nothing follows, not even the end of an event."""


class OpenFeed:
    """A feed that is open, and what moves it on."""

    def __init__(self, number: int, feed: ChangeFeed, sink: Sink) -> None:
        self.number = number
        self.feed = feed
        self.sink = sink
        self.scan: Scan | None = None
        self.router: Router | None = None
        self.fanout: Fanout | None = None
        self.is_delayed = False
        """It has not begun yet."""
        self.is_ending = False
        """Nothing is added to it: it ends when its reader has taken the rest ..."""
        self.error: str | None = None
        """... with this."""
        self.is_closed = False

    def pass_on(self) -> None:
        """Send what has gathered, up to the end of a large string: the sink says when that is sent."""
        feed, sink = self.feed, self.sink
        while feed.out and not sink.is_held:
            sink.send(feed.take())
