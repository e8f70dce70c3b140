"""Clients of change feeds that go from server to server, whoever leads, and what each may be told.

an event                   never at or below a checkpoint that the client has
a checkpoint, a commit     the client knows exactly what the server's history held at that moment
refused as diverged        the client has seen something, or was promised something, that is not of this history
refused as behind          a follower has not got what the client has seen
refused as too old         what it wants was erased
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.feeds.rebuilt import Broken, Rebuilt, State, difference, state_of
from tests.simulation.feed_world import SPANS
from tests.simulation.replication_server import Watch, WatchedServer
from tidelog.errors import ClientError, FeedBehind, FeedDiverged, TooOld
from tidelog.feeds.feed import ChangeFeedRequest
from tidelog.feeds.open_feed import OpenFeed
from tidelog.feeds.span import Span
from tidelog.ids import Ts


class FeedClient:
    """One client: what it knows, and where it is connected."""

    def __init__(self, rng: Random, watch: Watch, number: int) -> None:
        self._rng = rng
        self._watch = watch
        self.number = number
        self._spans = rng.choice(SPANS)
        self._database = rng.choice((0, 0, 0, 1))
        self._protocol = rng.choice((2, 3))
        self._has_commits = rng.random() < 0.5
        self.known: Rebuilt | None = None
        self.server: WatchedServer | None = None
        self._opened: OpenFeed | None = None

    @property
    def is_connected(self) -> bool:
        return self.server is not None

    def leave(self) -> None:
        """The connection is gone, whoever ended it."""
        if self.server is not None and self.server.feeds is not None and self._opened is not None:
            self.server.feeds.close(self._opened)
        self.server = self._opened = None

    def leave_dead(self) -> None:
        """The server is no more."""
        self.server = self._opened = None

    def told_over(self, error: str) -> None:
        """The server has ended its feeds."""
        self.server = self._opened = None
        if error.startswith("FEEDDIVERGED"):
            self.known = None
            self._watch.coverage["feed_ended_diverged"] += 1

    def read_on(self) -> None:
        """Take more, if it was slow to read."""
        if self.known is not None and self.known.is_full and self.server is not None and self.server.feeds is not None:
            assert self._opened is not None
            self.known.is_full = False
            self.server.feeds.resume(self._opened)
            self._watch.coverage["feed_slow"] += 1

    # --- asking -------------------------------------------------------------------------------------------------

    def connect(self, server: WatchedServer, *, afresh: bool = False) -> None:
        """Go on at a server, or begin there."""
        assert self.server is None
        assert server.feeds is not None
        before = None if afresh else self.known
        if before is not None and not before.epoch:
            before = None
        asked: dict[str, Any] = {"is_initial": True}
        if before is not None:
            asked = {"since": Ts(before.checkpoint), "epoch": before.epoch, "seen": Ts(before.seen)}
        known = Rebuilt(
            self._spans,
            0 if before is None else before.checkpoint,
            None if before is None else before.saved,
            is_in_order=before is not None,
            has_commits=self._has_commits,
            look=self._compare,
            visible_ts=lambda: server.store.journal.writer.visible.ts,
        )
        if before is not None:
            known.epoch, known.seen = before.epoch, before.seen
        request = ChangeFeedRequest(self._spans, self._database, has_commits=self._has_commits, **asked)
        try:
            self._opened = server.feeds.open(request, self._protocol, known)
        except TooOld:
            assert before is not None
            self._refused(server, "too old", before.checkpoint < server.store.journal.erased_ts)
        except FeedDiverged as error:
            assert before is not None
            is_right = self._has_diverged(server, before, before.checkpoint)
            self._refused(server, f"diverged since {error.since}", is_right)
        except FeedBehind:
            self._watch.coverage["feed_behind"] += 1
            if not server.store.is_follower:
                raise Broken(f"a leader is behind {self.number}") from None
        except ClientError as error:
            if "ahead of the clock" not in str(error):
                raise
            self._watch.coverage["feed_ahead_of_clock"] += 1
        else:
            self.known, self.server = known, server
            known.full_after = self._rng.choice((0, 0, 0, 200))
            self._watch.coverage["feed_resumed" if before is not None else "feed_begun"] += 1

    def _refused(self, server: WatchedServer, why: str, is_right: bool) -> None:
        if not is_right:
            raise Broken(f"{self.number} is refused by {server.watched} as {why}: {self._describe()}")
        self.known = None
        self._watch.coverage[f"feed_{why.split(' since')[0].replace(' ', '_')}"] += 1

    def _describe(self) -> str:
        known = self.known
        return "" if known is None else f"checkpoint {known.checkpoint}, seen {known.seen} in epoch {known.epoch}"

    def _has_diverged(self, server: WatchedServer, before: Rebuilt, promised: int) -> bool:
        """What it has seen is not here, or what follows goes back behind what it was promised."""
        lineage = server.watched.lineage
        end = lineage.end_of(before.epoch)
        if end is None or -1 < end < before.seen:
            return True
        after = [epoch for epoch in lineage.epochs if epoch.last_ts == end]
        return end != -1 and any(epoch.first_ts <= promised for epoch in after)

    # --- what must hold -----------------------------------------------------------------------------------------

    def _compare(self, ts: int, known: State, spans: list[Span]) -> None:
        server = self.server
        if server is None:
            return  # while it is being opened: nothing is known yet
        there = self._there(server, ts, spans)
        wrong = difference({key: value for key, value in known.items() if _is_in(key, spans)}, there)
        if wrong:
            raise Broken(f"feed {self.number} at {server.watched}, at {ts}: {wrong}")
        self._watch.coverage["feed_compared"] += 1

    def _there(self, server: WatchedServer, ts: int, spans: list[Span]) -> State:
        last_ts = server.store.journal.writer.visible.ts
        held = self._watch.history.known_at(server.watched.lineage, last_ts, ts, self._database)
        return {key: value for key, value in held.items() if _is_in(key, spans)}

    def look_at_end(self) -> None:
        """A feed ends only because what it wants was erased, or a promise was given that another leader breaks."""
        known, server = self.known, self.server
        if known is None or not known.ended:
            return
        error = known.ended.pop()
        if server is None:
            self.known = None  # it was told so by a server that has died since
            return
        if error is not None and error.startswith("FEEDDIVERGED"):
            assert self._opened is not None
            promised = self._opened.feed.position  # the promise may wait for a client that is slow to read
            self._refused(server, "diverged while open", self._has_diverged(server, known, promised))
            self.server = self._opened = None
            return
        if error is None or not error.startswith("FEEDTOOOLD"):
            raise Broken(f"feed {self.number} at {server.watched} ended: {error}")
        self.known = self.server = self._opened = None
        self._watch.coverage["feed_too_old"] += 1

    def is_level(self) -> bool:
        """It has a checkpoint for all that there is, also what is not visible yet."""
        known, server = self.known, self.server
        assert known is not None
        assert server is not None
        return known.is_steady and not known.unchecked and known.checkpoint >= server.store.journal.writer.last_ts

    def look_when_quiet(self) -> None:
        known, server = self.known, self.server
        assert known is not None
        assert server is not None
        wrong = difference(known.state, state_of(server.store.database(self._database), self._spans))
        if wrong:
            raise Broken(f"feed {self.number} at {server.watched}: {wrong}")
        self._watch.coverage["feed_quiet"] += 1


def _is_in(key: bytes, spans: list[Span]) -> bool:
    return any(span.has(key) for span in spans)
