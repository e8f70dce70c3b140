"""All feeds of a store: opens them, lets them catch up, hands them what becomes visible, gives them checkpoints.

    open       registers a feed where it is to begin
    work       a slice of reading for feeds that are scanning or behind; some at a time, in turn
    advance    what has become visible, for those that are steady
    tick       checkpoints that are due

Feeds that are behind and those that are steady see the same history: a feed joins the steady ones when it has
everything that is visible. A feed whose reader does not take all at once, because it is slow or because a value is
large, leaves them again, and goes on from the journal once the reader takes events: what waits for a reader is on disk,
not in memory. Events are made as they are taken, so a feed holds no more than some events and one large string.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from tidelog import limits
from tidelog.errors import ClientError, Corruption, TooOld
from tidelog.feeds.beginning import Beginnings
from tidelog.feeds.fanout import Fanout
from tidelog.feeds.feed import ChangeFeed, ChangeFeedRequest, State
from tidelog.feeds.holds import FeedHolds
from tidelog.feeds.live import Live
from tidelog.feeds.open_feed import OpenFeed, Sink, end_reason
from tidelog.feeds.router import Router
from tidelog.feeds.scan import Scan
from tidelog.feeds.span import Span
from tidelog.ids import ShardId, Ts
from tidelog.ports import Clock
from tidelog.store.store import Store
from tidelog.types.key import DelRange


class Feeds:
    """The feeds of one store. One thread."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._journal = store.journal
        self._clock = clock
        self.holds = FeedHolds(store, clock)
        self._beginnings = Beginnings(store, clock, self.holds)
        self._live = Live(self._journal, store.types)
        self._live_epoch_id = self._journal.epoch_id
        """The epoch that those that are steady know of."""
        self._open: dict[int, OpenFeed] = {}
        self._of: dict[ChangeFeed, OpenFeed] = {}
        self._named: dict[tuple[int, str], OpenFeed] = {}
        """Those that have a name, by database and name."""
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
        self.checkpoint_ms = limits.FEED_CHECKPOINT_MS_DEFAULT
        """Between two checkpoints of feeds that say nothing about it."""
        self._delayed: list[tuple[int, int]] = []
        """When feeds that are to wait begin, and their numbers: a heap."""
        self._ended_events = 0
        """Of feeds that are no more."""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def all(self) -> list[OpenFeed]:
        return list(self._open.values())

    @property
    def opened_count(self) -> int:
        """How many there ever were."""
        return self._last_number

    @property
    def event_count(self) -> int:
        """Of all feeds there ever were."""
        return self._ended_events + sum(opened.feed.event_count for opened in self._open.values())

    @property
    def parked(self) -> list[OpenFeed]:
        """Those that are behind and whose readers take nothing."""
        return list(self._parked)

    @property
    def has_work(self) -> bool:
        return bool(self._behind) or self._live.is_behind

    # --- opening and closing ------------------------------------------------------------------------------------

    def open(self, request: ChangeFeedRequest, protocol: int, sink: Sink, delay_us: int = 0) -> OpenFeed:
        """`TooOld`, `FeedDiverged` or `ClientError` if it cannot begin where it wants to.

        `delay_us`: it waits for so long before it reads.
        """
        if len(self._open) >= limits.FEEDS_MAX:
            raise ClientError(f"there are {limits.FEEDS_MAX} feeds already")
        position = self._beginnings.of(request)
        if request.name is not None:
            self.holds.begin(request.database, request.name, position)
        feed = ChangeFeed(request, protocol, position)
        self._last_number += 1
        opened = OpenFeed(self._last_number, feed, sink, self._journal.epoch_id)
        self._take_name(opened)
        if request.is_initial:
            opened.scan = Scan(self._store, feed)
            self._store.on_range = self._tell_scans
        self._open[opened.number] = self._of[feed] = opened
        if delay_us:
            opened.is_delayed = True
            heappush(self._delayed, (self._clock.monotonic_us() + delay_us, opened.number))
        else:
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
        self._ended_events += opened.feed.event_count
        self._stop_reading(opened)

    def _stop_reading(self, opened: OpenFeed) -> None:
        self._leave_live(opened.feed)
        self._parked.pop(opened, None)
        for waiting in (self._behind, self._unseen):
            if opened in waiting:
                waiting.remove(opened)
        if opened.router is not None:
            opened.router.close()
            opened.router = opened.fanout = None

    def _end(self, opened: OpenFeed, error: str | None = None) -> None:
        """Nothing is added any more; what was is sent first."""
        self._stop_reading(opened)
        opened.is_ending, opened.error = True, error
        self._finish(opened)

    def _finish(self, opened: OpenFeed) -> None:
        """Send the rest, and the end after it; it waits only for the reader of a large string."""
        feed, sink = opened.feed, opened.sink
        opened.pass_on()
        if feed.out or sink.is_held:
            self._parked[opened] = None
            return
        self.close(opened)
        sink.end(opened.error)

    def end_named(self, error: str) -> None:
        """End all feeds that have a name, with an error. Their readers go on elsewhere, from what they acknowledged."""
        for opened in list(self._named.values()):
            if not opened.is_ending:
                self._end(opened, error)

    def end_all(self, error: str) -> None:
        """End all feeds with an error, where they are."""
        for opened in self.all:
            if not opened.is_ending:
                self._end(opened, error)

    def kill(self, number: int) -> bool:
        """End a feed, after a last checkpoint, or at once if it is ending; false if there is none of that number."""
        opened = self._open.get(number)
        if opened is None:
            return False
        if opened.is_ending:
            self.close(opened)
            opened.sink.cut()
            return True
        self._checkpoint(opened, is_last=True)
        if not opened.is_ending:
            self._end(opened)
        return True

    def position_of(self, opened: OpenFeed) -> Ts:
        """Everything at or below it was sent."""
        is_live = opened.feed.state is State.STEADY
        return max(opened.feed.position, self._live.position if is_live else Ts(0))

    def is_parked(self, opened: OpenFeed) -> bool:
        """Its reader takes nothing."""
        return opened in self._parked

    def lag_ms(self, opened: OpenFeed) -> int:
        """How far a feed is behind what is visible, in ms."""
        return max(0, (self._journal.writer.visible.ts - self.position_of(opened)) // 1000)

    def lag(self, opened: OpenFeed) -> tuple[int, int]:
        """The same in records (-1: it has not begun to read), and in ms."""
        visible, ms = self._journal.writer.visible, self.lag_ms(opened)
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
        if self._live.is_behind:
            self.advance()
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
                self._end(opened, end_reason(error, self._journal))
                continue
            if opened.is_closed or opened.is_ending:
                pass  # it came to its end
            elif is_behind:
                self._take_turns()
            else:
                self._behind.popleft()
            if self._clock.monotonic_us() >= until_us:
                break
        return self.has_work

    def _take_turns(self) -> None:
        """The first goes behind the others that read; those after them wait for one of these to finish."""
        opened = self._behind.popleft()
        self._behind.insert(limits.CATCH_UPS_MAX - 1, opened)

    def _step(self, opened: OpenFeed) -> bool:
        """Some reading for one feed; false: it is behind no more."""
        feed, router = opened.feed, opened.router
        if opened.is_ending:
            self._behind.popleft()
            self._finish(opened)
            return False
        if feed.out:  # its reader takes the rest of something large
            self._send(opened)
            return True
        if opened.scan is not None:
            if not opened.scan.step(limits.FEED_EVENTS_AT_ONCE):
                opened.scan = None
            self._send(opened)
            return True
        if self._ends_with_epoch(opened):
            return False
        if router is None:
            if feed.position >= self._journal.writer.visible.ts:
                self._join_live(opened)  # it begins now: there is nothing to read
                return False
            router = opened.router = self._begin_reading(opened)
        if self._hand_out(opened, router):
            self._send(opened)
            return True
        feed.move_to(router.visible_ts)
        if self._journal.writer.visible.ts > feed.position:
            router.begin_pass()
            return True
        router.close()
        opened.router = opened.fanout = None
        self._join_live(opened)
        return False

    def _hand_out(self, opened: OpenFeed, router: Router) -> bool:
        """Some of what is read, as much as is sent at once; false: everything was."""
        feed, fanout = opened.feed, opened.fanout
        assert fanout is not None
        if not fanout.has_more:
            parts = router.read()
            if parts is None:
                return False
            fanout.take_in(parts)
        fanout.step(router.whale_of)
        feed.move_to(fanout.whole_ts)
        if not fanout.has_more:
            feed.move_to(router.reached_ts)
        return True

    def _join_live(self, opened: OpenFeed) -> None:
        """A feed that has all that is visible goes on with those that are steady."""
        feed = opened.feed
        self._live.add(feed)
        feed.move_to(self._journal.writer.visible.ts)
        if feed.request.until is not None:
            self._ending[feed] = None
        feed.become_steady(feed.position)
        self._send(opened)

    def _begin_reading(self, opened: OpenFeed) -> Router:
        request = opened.feed.request
        count = self._journal.meta.shard_count
        shards = [ShardId(shard) for shard in range(count)] if request.shard is None else [request.shard]
        opened.fanout = fanout = Fanout(self._store.types, {request.database: opened.feed.interests})
        if opened.feed.is_inside:
            fanout.touch(opened.feed)
        return Router(self._journal, shards, opened.feed.position, request.spans, fanout.wants)

    # --- what becomes visible -----------------------------------------------------------------------------------

    def advance(self) -> None:
        """Hand what has become visible to those that are steady: all of it, unless it is so much that others wait."""
        if self._unseen:
            self._behind += [opened for opened in self._unseen if self._is_visible(opened.feed)]
            self._unseen = [opened for opened in self._unseen if not self._is_visible(opened.feed)]
        if not len(self._live):
            return
        until_us = self._clock.monotonic_us() + limits.FEED_LIVE_SLICE_US
        if self._live_epoch_id != self._journal.epoch_id:
            self._live_epoch_id = self._journal.epoch_id
            for feed in self._live.feeds:
                feed.move_to(self._live.position)
                self._ends_with_epoch(self._of[feed])
        try:
            while self._live.step():
                for feed in self._live.take_given():
                    self._send(self._of[feed])
                if self._clock.monotonic_us() >= until_us:
                    break
        except (TooOld, Corruption, OSError) as error:
            for feed in self._live.feeds:
                self._end(self._of[feed], end_reason(error, self._journal))
            return
        for feed in list(self._ending):
            feed.move_to(self._live.position)
            if feed.is_at_end:
                self._checkpoint(self._of[feed])

    def _ends_with_epoch(self, opened: OpenFeed) -> bool:
        """Tell of an epoch, if one has begun; true: the feed is over with it."""
        error = opened.tell_epoch(self._journal)
        if error is not None:
            self._end(opened, error)
        return error is not None

    def _is_visible(self, feed: ChangeFeed) -> bool:
        """Whether what a feed has read of the store may be seen."""
        return feed.scanned_ts <= self._journal.writer.visible.ts

    def _send(self, opened: OpenFeed) -> None:
        """Send what has gathered, as far as its reader takes it, unless it is not visible yet. A feed whose reader does
        not take all of it leaves those that are steady."""
        feed, sink = opened.feed, opened.sink
        if not self._is_visible(feed):
            return
        opened.pass_on()
        if feed.is_at_end:
            self._checkpoint(opened)
        elif feed.state is State.STEADY and (feed.out or sink.is_full):
            self._leave_live(feed)
            feed.state = State.BEHIND
            self._parked[opened] = None

    def _leave_live(self, feed: ChangeFeed) -> None:
        if feed.state is State.STEADY:
            feed.will_read_again()
        self._live.remove(feed)
        self._ending.pop(feed, None)

    # --- checkpoints --------------------------------------------------------------------------------------------

    def _plan_checkpoint(self, opened: OpenFeed) -> None:
        due_us = self._clock.monotonic_us() + (opened.feed.request.checkpoint_ms or self.checkpoint_ms) * 1000
        heappush(self._due, (due_us, opened.number))

    def tick(self) -> None:
        """Send the checkpoints that are due, and let those begin that had to wait."""
        now_us = self._clock.monotonic_us()
        while self._delayed and self._delayed[0][0] <= now_us:
            late = self._open.get(heappop(self._delayed)[1])
            if late is not None and not late.is_ending:
                late.is_delayed = False
                self._behind.append(late)
        while self._due and self._due[0][0] <= now_us:
            opened = self._open.get(heappop(self._due)[1])
            if opened is not None:
                self._plan_checkpoint(opened)
                if not opened.sink.is_full:
                    self._checkpoint(opened)

    def _checkpoint(self, opened: OpenFeed, *, is_last: bool = False) -> None:
        """Send a checkpoint if it says something true; inside a transaction only as the last event."""
        feed = opened.feed
        if not self._is_visible(feed) or opened.is_ending:
            return
        if feed.state is State.STEADY and not feed.is_at_end:
            ts = self.closed_ts()
            if opened.is_closed or opened.is_ending:
                return  # it came to its end meanwhile
            if feed.state is State.STEADY:
                feed.move_to(ts)
        if feed.is_inside and feed.state is not State.SCANNING and not is_last:
            return
        if feed.state is not State.SCANNING:
            opened.add_checkpoint(self._journal)
        opened.pass_on()
        if feed.is_done:
            self._end(opened)

    def closed_ts(self) -> Ts:
        """A ts such that everything at or below it has been handed to those that are steady."""
        self.advance()
        if self._live.is_behind:
            return self._live.position
        writer, hlc = self._journal.writer, self._journal.hlc
        if writer.visible.ts < writer.last_ts:
            return writer.visible.ts
        if self._store.is_follower:  # only a leader knows that nothing older will come
            return max(self._store.announced_ts, writer.visible.ts)
        return hlc.next()  # nothing else will have it
