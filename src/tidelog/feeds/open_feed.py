"""A feed that is open: what moves it on, and where its events go."""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

from tidelog.errors import TooOld
from tidelog.feeds.fanout import Fanout
from tidelog.feeds.feed import ChangeFeed
from tidelog.feeds.router import Router
from tidelog.feeds.scan import Scan
from tidelog.journal.journal import Journal
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

    def __init__(self, number: int, feed: ChangeFeed, sink: Sink, epoch_id: int) -> None:
        self.number = number
        self.feed = feed
        self.sink = sink
        self.epoch_id = epoch_id
        """The epoch that its reader knows of."""
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

    def add_checkpoint(self, journal: Journal) -> None:
        self.epoch_id = journal.epoch_id
        self.feed.add_checkpoint(self.feed.position, journal.epoch_id, journal.writer.visible.ts)

    def tell_epoch(self, journal: Journal) -> str | None:
        """If an epoch has begun, say so before anything that happened in it; the answer is why the feed has to end.

        A reader that comes back with what it has seen must know whose history that is. On a former leader, its reader
        may have been promised that nothing more comes up to a ts that the next leader has begun below.
        """
        feed = self.feed
        if self.epoch_id == journal.epoch_id or feed.is_inside or feed.is_at_end:
            return None
        for epoch, after in pairwise(journal.epochs):
            if epoch.id == self.epoch_id and after.last_ts < feed.position and 0 < after.first_ts <= feed.position:
                return f"FEEDDIVERGED since={after.last_ts}"
        self.add_checkpoint(journal)
        self.pass_on()
        return None

    def pass_on(self) -> None:
        """Send what has gathered, up to the end of a large string: the sink says when that is sent."""
        feed, sink = self.feed, self.sink
        while feed.out and not sink.is_held:
            sink.send(feed.take())


def end_reason(error: Exception, journal: Journal) -> str:
    """Why a feed cannot go on, as its client is told: the damage is for the operator, the server goes on."""
    if isinstance(error, TooOld):
        return f"FEEDTOOOLD oldest={journal.erased_ts}"
    return f"ERR the feed ends: {error}"
