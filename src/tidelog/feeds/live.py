"""Hands what becomes visible to the feeds that are steady.

It reads each transaction once, however many feeds there are, and finds those that watch its keys in an index. Without
feeds it reads nothing.
"""

from __future__ import annotations

from tidelog.feeds.fanout import Fanout
from tidelog.feeds.feed import ChangeFeed
from tidelog.feeds.router import Router
from tidelog.feeds.span import Interests, Span
from tidelog.ids import ShardId, Ts
from tidelog.journal.journal import Journal
from tidelog.store.type_table import TypeTable

_EVERYTHING = [Span(b"", b"")]


class Live:
    """The feeds that have caught up."""

    def __init__(self, journal: Journal, types: TypeTable) -> None:
        self._journal = journal
        self._by_database: dict[int, Interests] = {}
        self._fanout = Fanout(types, self._by_database)
        self._feeds: dict[ChangeFeed, None] = {}
        self._router: Router | None = None
        """None: nobody is here."""
        self.position = Ts(0)
        """Everything at or below it has been handed out."""

    def __len__(self) -> int:
        return len(self._feeds)

    @property
    def feeds(self) -> list[ChangeFeed]:
        return list(self._feeds)

    def add(self, feed: ChangeFeed) -> None:
        """A feed that has everything up to `position`, which it finds by calling `advance` first."""
        if self._router is None:
            shards = [ShardId(shard) for shard in range(self._journal.meta.shard_count)]
            self.position = self._journal.writer.visible.ts
            self._router = Router(self._journal, shards, self.position, _EVERYTHING, self._fanout.wants)
        self._feeds[feed] = None
        self._by_database.setdefault(feed.request.database, Interests()).add(feed, feed.request.spans)

    def remove(self, feed: ChangeFeed) -> None:
        """Fine if it is not here."""
        if feed not in self._feeds:
            return
        feed.move_to(self.position)
        del self._feeds[feed]
        interests = self._by_database[feed.request.database]
        interests.remove(feed)
        if not len(interests):
            del self._by_database[feed.request.database]
        if not self._feeds and self._router is not None:
            self._router.close()
            self._router = None

    def advance(self) -> list[ChangeFeed]:
        """Hand out what has become visible since; returns who has got something, whatever the number of the others."""
        router = self._router
        if router is None:
            self.position = self._journal.writer.visible.ts
            return []
        visible = router.begin_pass()
        if visible.ts <= self.position:
            return []
        while (transactions := router.read()) is not None:
            for transaction in transactions:
                self._fanout.hand_out(transaction, router.payload_of)
        self.position = visible.ts
        return self._fanout.take_given()
