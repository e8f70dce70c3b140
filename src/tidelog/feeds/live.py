"""Hands what becomes visible to the feeds that are steady.

It reads each transaction once, however many feeds there are, and finds those that watch its keys in an index. Without
feeds it reads nothing. What becomes visible at once may be large, so it is handed out in steps; a feed that joins or
leaves in between is no special case, because each knows its own position.
"""

from __future__ import annotations

from tidelog.feeds.fanout import Fanout
from tidelog.feeds.feed import ChangeFeed
from tidelog.feeds.router import Router
from tidelog.feeds.span import EVERYTHING, Interests
from tidelog.ids import ShardId, Ts
from tidelog.journal.journal import Journal
from tidelog.store.type_table import TypeTable


class Live:
    """The feeds that have caught up."""

    def __init__(self, journal: Journal, types: TypeTable) -> None:
        self._journal = journal
        self._by_database: dict[int, Interests] = {}
        self._fanout = Fanout(types, self._by_database)
        self._feeds: dict[ChangeFeed, None] = {}
        self._router: Router | None = None
        """None: nobody is here."""
        self._is_reading = False
        """A pass is under way."""
        self.position = Ts(0)
        """Everything at or below it has been handed out."""

    def __len__(self) -> int:
        return len(self._feeds)

    @property
    def feeds(self) -> list[ChangeFeed]:
        return list(self._feeds)

    @property
    def is_behind(self) -> bool:
        """Something that is visible has not been handed out."""
        return self._router is not None and self.position < self._journal.writer.visible.ts

    def add(self, feed: ChangeFeed) -> None:
        """A feed that has everything that is visible; what is handed out of that is passed over by it."""
        if self._router is None:
            shards = [ShardId(shard) for shard in range(self._journal.meta.shard_count)]
            self.position = self._journal.writer.visible.ts
            self._router = Router(self._journal, shards, self.position, [EVERYTHING], self._fanout.wants)
        self._feeds[feed] = None
        self._by_database.setdefault(feed.request.database, Interests()).add(feed, feed.request.spans)

    def remove(self, feed: ChangeFeed) -> None:
        """Fine if it is not here."""
        if feed not in self._feeds:
            return
        feed.move_to(self.position)
        del self._feeds[feed]
        self._fanout.forget(feed)
        interests = self._by_database[feed.request.database]
        interests.remove(feed)
        if not len(interests):
            del self._by_database[feed.request.database]
        if not self._feeds and self._router is not None:
            self._router.close()
            self._router = None
            self._fanout.clear()
            self._is_reading = False

    def step(self) -> bool:
        """Hand out some of what has become visible; false: there is nothing more."""
        router, fanout = self._router, self._fanout
        if router is None:
            self.position = self._journal.writer.visible.ts
            return False
        if not fanout.has_more:
            if not self._is_reading and router.begin_pass().ts <= self.position:
                return False
            self._is_reading = True
            parts = router.read()
            if parts is None:
                self._is_reading = False
                self.position = router.visible_ts
                return self.is_behind
            fanout.take_in(parts)
        fanout.step(router.whale_of)
        self.position = max(self.position, fanout.whole_ts)
        return True

    def take_given(self) -> list[ChangeFeed]:
        """The feeds that have got something since the last call, whatever the number of the others."""
        return self._fanout.take_given()
