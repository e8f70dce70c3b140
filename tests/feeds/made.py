"""Feeds on a store of a simulated machine, without a server."""

from __future__ import annotations

from typing import Any

from tests.commands.running import Commands
from tests.feeds.rebuilt import Rebuilt
from tidelog.feeds.feed import ChangeFeedRequest
from tidelog.feeds.feeds import Feeds
from tidelog.feeds.open_feed import OpenFeed
from tidelog.feeds.span import Span, span_of_prefix
from tidelog.ids import Ts
from tidelog.store.hold_changes import change_holds

EVERYTHING = [span_of_prefix(b"")]


class Watched(Commands):
    """Runs commands, and feeds that watch them."""

    def __init__(self, shard_count: int = 1, *, leads: bool = True) -> None:
        super().__init__(shard_count, leads=leads)
        self.feeds = Feeds(self.store, self.clock)

    def restart(self) -> None:
        super().restart()
        self.feeds = Feeds(self.store, self.clock)

    def watch(self, spans: list[Span] = EVERYTHING, protocol: int = 2, **wanted: Any) -> tuple[OpenFeed, Rebuilt]:
        known = Rebuilt(spans, wanted.get("since") or 0, has_commits=wanted.get("has_commits", False))
        return self.feeds.open(ChangeFeedRequest(spans, **wanted), protocol, known), known

    def settle(self) -> None:
        """Everything becomes visible, and everyone gets it."""
        self.store.journal.writer.write()
        self.feeds.advance()
        while self.feeds.work(self.clock.monotonic_us() + 1_000_000):
            pass

    def tick(self, ms: int = 1000) -> None:
        self.clock.advance(1000 * ms)
        self.feeds.tick()

    def events(self, known: Rebuilt) -> list[list[Any]]:
        """What came since the last call, without the ts of each."""
        self.settle()
        found, known.events = known.events, []
        return [[event[0], *event[2:]] for event in found]

    @property
    def now(self) -> Ts:
        return self.store.journal.writer.last_ts


def let_go(watched: Watched) -> None:
    """As retention does with all holds that did not move."""
    named = list(watched.store.holds.by_name.values())
    change_holds(watched.store, [holder._replace(lapsed="it did not move") for holder in named])
