"""All feeds of a store: opens them, lets them catch up, hands them what becomes visible, gives them checkpoints.

    open       registers a feed where it is to begin
    work       a slice of reading for feeds that are scanning or behind; some at a time, in turn
    advance    what has become visible, for those that are steady
    tick       checkpoints that are due

Feeds that are behind and those that are steady see the same history: a feed joins the steady ones between two
transactions, when it has everything that was handed to them. A feed whose reader is slow leaves them again, and goes on
from the journal once the reader takes events: what waits for a slow reader is on disk, not in memory.
"""

from __future__ import annotations

import contextlib
from collections import deque
from heapq import heappop, heappush
from typing import Protocol

from tidelog import limits
from tidelog.errors import ClientError, Corruption, FeedDiverged, TooOld
from tidelog.feeds.fanout import Fanout
from tidelog.feeds.feed import ChangeFeed, ChangeFeedRequest, State
from tidelog.feeds.holds import FeedHolds
from tidelog.feeds.live import Live
from tidelog.feeds.router import Router
from tidelog.feeds.scan import Scan
from tidelog.feeds.span import Span
from tidelog.ids import U64_MAX, ShardId, Ts
from tidelog.journal.merge import JournalTransaction
from tidelog.ports import Clock
from tidelog.store.store import Store
from tidelog.types.key import DelRange


class Sink(Protocol):
    """Where the events of a feed go."""

    @property
    def is_full(self) -> bool:
        """It takes no more at the moment; `Feeds.resume` says when it does."""

    def send(self, events: bytes) -> None: ...

    def end(self, error: str | None) -> None:
        """Nothing follows: it is at its end, or an error keeps it from going on."""


class OpenFeed:
    """A feed that is open, and what moves it on."""

    def __init__(self, number: int, feed: ChangeFeed, sink: Sink) -> None:
        self.number = number
        self.feed = feed
        self.sink = sink
        self.scan: Scan | None = None
        self.router: Router | None = None
        self.fanout: Fanout | None = None
        self.transactions: deque[JournalTransaction] = deque()
        """What was read and not yet handed out."""
        self.is_closed = False


class Feeds:
    """The feeds of one store. One thread."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._journal = store.journal
        self._clock = clock
        self._live = Live(self._journal, store.types)
        self._open: dict[int, OpenFeed] = {}
        self._of: dict[ChangeFeed, OpenFeed] = {}
        self._named: dict[tuple[int, str], OpenFeed] = {}
        """Those that have a name, by database and name."""
        self.holds = FeedHolds(self._journal, clock)
        self._behind: deque[OpenFeed] = deque()
        """Those that have something to read, in turn."""
        self._ending: dict[ChangeFeed, None] = {}
        """Those among the steady that have an UNTIL."""
        self._due: list[tuple[int, int]] = []
        """When the next checkpoint of each feed is due, and its number: a heap."""
        self._parked: dict[OpenFeed, None] = {}
        """Those that are behind and whose readers take nothing."""
        self._unseen: list[OpenFeed] = []
        """Those that have read what is not visible yet."""
        self._last_number = 0
        self._first_ts: dict[Ts, Ts] = {}
        """Where an epoch ended -> the first ts after it, if somebody came from there."""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def all(self) -> list[OpenFeed]:
        return list(self._open.values())

    @property
    def parked(self) -> list[OpenFeed]:
        """Those that are behind and whose readers take nothing."""
        return list(self._parked)

    @property
    def has_work(self) -> bool:
        return bool(self._behind)

    # --- opening and closing ------------------------------------------------------------------------------------

    def open(self, request: ChangeFeedRequest, protocol: int, sink: Sink) -> OpenFeed:
        """`TooOld`, `FeedDiverged` or `ClientError` if it cannot begin where it wants to."""
        if len(self._open) >= limits.FEEDS_MAX:
            raise ClientError(f"there are {limits.FEEDS_MAX} feeds already")
        position = self._beginning(request)
        if request.name is not None:
            self.holds.begin(request.database, request.name, position)
        feed = ChangeFeed(request, protocol, position)
        self._last_number += 1
        opened = OpenFeed(self._last_number, feed, sink)
        self._take_name(opened)
        if request.is_initial:
            opened.scan = Scan(self._store, feed)
            self._store.on_range = self._tell_scans
        self._open[opened.number] = self._of[feed] = opened
        self._behind.append(opened)
        self._plan_checkpoint(opened)
        return opened

    def _tell_scans(self, ts: Ts, database: int, gone: DelRange) -> None:
        """A range was deleted: feeds that read the values of now must know when."""
        scanning = [opened for opened in self._open.values() if opened.scan is not None]
        for opened in scanning:
            if opened.scan is not None and opened.feed.request.database == database:
                opened.scan.range_removed(ts, Span(gone.start, gone.end))
        if not scanning:
            self._store.on_range = None

    def _beginning(self, request: ChangeFeedRequest) -> Ts:
        """The ts after which a feed begins."""
        writer = self._journal.writer
        if request.is_initial:
            return writer.last_ts  # all up to here is in what will be read, a flush as well
        since, epoch, seen = request.since, request.epoch, request.seen
        named = self.holds.find(request.database, request.name) if request.name is not None and since is None else None
        if named is not None:
            since = named.ts
            if named.epoch:
                epoch, seen = named.epoch, named.seen
        if since is None:
            return writer.last_ts
        now = max(self._journal.hlc.last, self._clock.wall_us())
        if epoch is not None and seen is not None:
            end = self._end_of_epoch(epoch, seen)
            if self._journal.erased_ts <= end < since and (since > now or self._first_after(end) <= since):
                since = end
        if since > now:
            raise ClientError(f"SINCE {since} lies ahead of the clock here")
        self._journal.refuse_erased(since)
        return since

    def _end_of_epoch(self, epoch: int, seen: Ts) -> Ts:
        """The last ts of an epoch, if what a client has seen in it is still history."""
        epochs = self._journal.epochs
        for index, known in enumerate(epochs):
            if known.id == epoch:
                if index + 1 == len(epochs):
                    return Ts(U64_MAX)
                if seen > epochs[index + 1].last_ts:
                    raise FeedDiverged("history after that was lost", since=epochs[index + 1].last_ts)
                return epochs[index + 1].last_ts
        raise FeedDiverged(f"epoch {epoch} is not one of this history", since=Ts(0))

    def _first_after(self, end: Ts) -> Ts:
        """The first ts of what followed an epoch that ended at this.

        A client may have a checkpoint after that: where a backup was restored, the clock can be behind the one that it
        had before. Then the client has to begin at the end of what it shares with us.
        """
        if end not in self._first_ts and self._journal.writer.visible.ts > end:
            with contextlib.closing(self._journal.reader_since(end)) as reader:
                first = next(reader.read(), None)
            if first is not None:
                self._first_ts[end] = first.ts
        return self._first_ts.get(end, Ts(U64_MAX))

    def _take_name(self, opened: OpenFeed) -> None:
        """One reader at a time has a name. The newest gets it: an earlier one may be a connection that was lost."""
        request = opened.feed.request
        if request.name is None:
            return
        earlier = self._named.get((request.database, request.name))
        if earlier is not None:
            self._end(earlier, f"FEEDTAKEN another reader has taken over the name {request.name!r}")
        self._named[request.database, request.name] = opened

    def reader_of(self, database: int, name: str) -> OpenFeed | None:
        """The feed that is open under a name."""
        return self._named.get((database, name))

    def close(self, opened: OpenFeed) -> None:
        """Nobody wants it any more; fine if it is closed already."""
        if opened.is_closed:
            return
        opened.is_closed = True
        del self._open[opened.number], self._of[opened.feed]
        request = opened.feed.request
        if request.name is not None and self._named.get((request.database, request.name)) is opened:
            del self._named[request.database, request.name]
        self._leave_live(opened.feed)
        self._parked.pop(opened, None)
        for waiting in (self._behind, self._unseen):
            if opened in waiting:
                waiting.remove(opened)
        if opened.router is not None:
            opened.router.close()
            opened.router = None

    def _end(self, opened: OpenFeed, error: str | None = None) -> None:
        self.close(opened)
        opened.sink.end(error)

    def kill(self, number: int) -> bool:
        """End a feed, after a last checkpoint; false if there is none of that number."""
        opened = self._open.get(number)
        if opened is None:
            return False
        self._checkpoint(opened)
        if not opened.is_closed:
            self._end(opened)
        return True

    def position_of(self, opened: OpenFeed) -> Ts:
        """Everything at or below it was sent."""
        is_live = opened.feed.state is State.STEADY
        return max(opened.feed.position, self._live.position if is_live else Ts(0))

    def lag(self, opened: OpenFeed) -> tuple[int, int]:
        """How far a feed is behind what is visible: in records (-1: it has not begun to read), and in ms."""
        visible = self._journal.writer.visible
        ms = max(0, (visible.ts - self.position_of(opened)) // 1000)
        if opened.feed.state is State.STEADY:
            return 0, ms
        return -1 if opened.router is None else opened.router.records_behind(visible), ms

    # --- catching up --------------------------------------------------------------------------------------------

    def resume(self, opened: OpenFeed) -> None:
        """Its sink takes events again."""
        if opened in self._parked:
            del self._parked[opened]
            self._behind.append(opened)

    def work(self, until_us: int) -> bool:
        """Read for feeds that are behind, until some time; true if there is more to do."""
        while self._behind:
            opened = self._behind[0]
            if opened.sink.is_full:
                self._parked[self._behind.popleft()] = None
                continue
            if not self._is_visible(opened.feed):
                self._unseen.append(self._behind.popleft())
                continue
            try:
                is_behind = self._step(opened)
            except (TooOld, Corruption, OSError) as error:
                self._end(opened, _reason(error))
                continue
            if opened.is_closed:
                pass  # it came to its end
            elif is_behind:
                self._take_turns()
            else:
                self._behind.popleft()
            if self._clock.monotonic_us() >= until_us:
                break
        return bool(self._behind)

    def _take_turns(self) -> None:
        """The first goes behind the others that read; those after them wait for one of these to finish."""
        opened = self._behind.popleft()
        self._behind.insert(limits.CATCH_UPS_MAX - 1, opened)

    def _step(self, opened: OpenFeed) -> bool:
        """Some reading for one feed; false: it is behind no more."""
        if opened.scan is not None:
            if not opened.scan.step(limits.FEED_EVENTS_AT_ONCE):
                opened.scan = None
            self._send(opened)
            return True
        feed, router = opened.feed, opened.router
        if router is None:
            if feed.position >= self._journal.writer.visible.ts:
                self._join_live(opened)  # it begins now: there is nothing to read
                return False
            router = opened.router = self._begin_reading(opened)
        transactions = opened.transactions or router.read()
        if transactions is not None:
            opened.transactions = deque(transactions)
            self._hand_out(opened, router)
            self._send(opened)
            return not opened.is_closed
        feed.move_to(router.visible_ts)
        if self._journal.writer.visible.ts > feed.position:
            router.begin_pass()
            return True
        router.close()
        opened.router = opened.fanout = None
        self._join_live(opened)
        return False

    def _hand_out(self, opened: OpenFeed, router: Router) -> None:
        """What was read, as much as is sent at once: a transaction may lie in a few bytes and be large."""
        feed, transactions, fanout = opened.feed, opened.transactions, opened.fanout
        assert fanout is not None
        while transactions and feed.out_bytes < limits.FEED_SENT_BYTES:
            transaction = transactions.popleft()
            fanout.hand_out(transaction, router.payload_of)
            feed.move_to(transaction.ts)
        if not transactions:
            feed.move_to(router.reached_ts)

    def _join_live(self, opened: OpenFeed) -> None:
        """A feed that has all that is visible goes on with those that are steady."""
        feed = opened.feed
        self.advance()
        self._live.add(feed)
        feed.move_to(self._live.position)
        if feed.request.until is not None:
            self._ending[feed] = None
        feed.become_steady(feed.position)
        self._send(opened)

    def _begin_reading(self, opened: OpenFeed) -> Router:
        request = opened.feed.request
        count = self._journal.meta.shard_count
        shards = [ShardId(shard) for shard in range(count)] if request.shard is None else [request.shard]
        opened.fanout = fanout = Fanout(self._store.types, {request.database: opened.feed.interests})
        return Router(self._journal, shards, opened.feed.position, request.spans, fanout.wants)

    # --- what becomes visible -----------------------------------------------------------------------------------

    def advance(self) -> None:
        """Hand what has become visible to those that are steady."""
        if self._unseen:
            self._behind += [opened for opened in self._unseen if self._is_visible(opened.feed)]
            self._unseen = [opened for opened in self._unseen if not self._is_visible(opened.feed)]
        if not len(self._live):
            return
        try:
            given = self._live.advance()
        except (TooOld, Corruption, OSError) as error:
            for feed in self._live.feeds:
                self._end(self._of[feed], _reason(error))
            return
        for feed in given:
            self._send(self._of[feed])
        for feed in list(self._ending):
            feed.move_to(self._live.position)
            if feed.is_at_end:
                self._checkpoint(self._of[feed])

    def _is_visible(self, feed: ChangeFeed) -> bool:
        """Whether what a feed has read of the store may be seen."""
        return feed.scanned_ts <= self._journal.writer.visible.ts

    def _send(self, opened: OpenFeed) -> None:
        """Send what has gathered, unless it is not visible yet; a feed whose reader is slow leaves the others."""
        feed = opened.feed
        if not self._is_visible(feed):
            return
        if feed.out:
            opened.sink.send(feed.take())
        if feed.is_at_end:
            self._checkpoint(opened)
        elif feed.state is State.STEADY and opened.sink.is_full:
            self._leave_live(feed)
            feed.state = State.BEHIND
            self._parked[opened] = None

    def _leave_live(self, feed: ChangeFeed) -> None:
        self._live.remove(feed)
        self._ending.pop(feed, None)

    # --- checkpoints --------------------------------------------------------------------------------------------

    def _plan_checkpoint(self, opened: OpenFeed) -> None:
        due_us = self._clock.monotonic_us() + opened.feed.request.checkpoint_ms * 1000
        heappush(self._due, (due_us, opened.number))

    def tick(self) -> None:
        """Send the checkpoints that are due."""
        now_us = self._clock.monotonic_us()
        while self._due and self._due[0][0] <= now_us:
            opened = self._open.get(heappop(self._due)[1])
            if opened is not None:
                self._plan_checkpoint(opened)
                if not opened.sink.is_full:
                    self._checkpoint(opened)

    def _checkpoint(self, opened: OpenFeed) -> None:
        feed, journal = opened.feed, self._journal
        if not self._is_visible(feed):
            return
        if feed.state is State.STEADY and not feed.is_at_end:
            ts = self.closed_ts()
            if opened.is_closed:
                return  # it came to its end meanwhile
            feed.move_to(ts)
        if feed.state is not State.SCANNING:
            feed.add_checkpoint(feed.position, journal.epochs[-1].id, journal.writer.visible.ts)
        if feed.out:
            opened.sink.send(feed.take())
        if feed.is_done:
            self._end(opened)

    def closed_ts(self) -> Ts:
        """A ts such that everything at or below it has been handed to those that are steady."""
        self.advance()
        writer, hlc = self._journal.writer, self._journal.hlc
        if writer.visible.ts < writer.last_ts:
            return writer.visible.ts
        return hlc.next()  # nothing else will have it


def _reason(error: Exception) -> str:
    """Why a feed cannot go on, as its client is told: the damage is for the operator, the server goes on."""
    return f"FEEDTOOOLD oldest={error.oldest}" if isinstance(error, TooOld) else f"ERR the feed ends: {error}"
