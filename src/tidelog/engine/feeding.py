"""Feeds and the loop: when they read, and how their events reach a connection.

    something becomes visible    at the end of a turn: steady feeds get it at once, it leaves with the turn's replies
    someone is behind            slices of reading, with a look at the sockets in between
    every 10 ms                  checkpoints that are due, and readers that have caught up with what they were sent

Events do not go the way of replies: they are written as they are made, and never wait for the end of a turn. A
connection that has left `FEED_BUFFER_BYTES` unread is sent nothing until it has read most of them. A large string is
written piece by piece, the next when the socket has taken the one before, so its size is nobody's concern. Inside an
event nothing else can be written: commands of that client are held until its end, as if it were blocked. Nor are events
sent inside a long reply.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog import limits
from tidelog.errors import ClientError, CommandError, TidelogError
from tidelog.feeds.event import bulk_head
from tidelog.feeds.feed import ChangeFeedRequest, State
from tidelog.feeds.feeds import Feeds
from tidelog.feeds.open_feed import OpenFeed, Sink
from tidelog.feeds.repeats import Repeats
from tidelog.ids import Ts
from tidelog.ports import Clock, Loop, Timer
from tidelog.resp.encoder import encode_error
from tidelog.store.transaction import Transaction
from tidelog.types.change import LargeString

if TYPE_CHECKING:
    from tidelog.engine.session import Session

_LOG: Final = logging.getLogger("tidelog")
_TICK_S: Final = 0.01
_PAUSE_S: Final = 0.001
"""Between two slices of reading while clients are there."""
_RESUMED_PART: Final = 2
"""A reader is sent more when it has left no more than this part of the buffer."""


FactsOfEach = list[dict[str, Any]]

SLOW: Final = "slow"
"""The state of a feed whose reader takes nothing ..."""
DELAYED: Final = "delayed"
"""... and of one that has not begun, because it was begun too often."""


class FeedFigures(NamedTuple):
    """What the feeds of a server do."""

    states: dict[str, int]
    """How many are in each."""
    opened_count: int
    """Since the server started; so are the next three."""
    event_count: int
    sent_bytes: int
    delayed_count: int
    lag_ms: int
    """How far the one that is furthest behind is."""
    buffer_bytes: int
    """What waits for readers."""
    named_lag_ms: dict[str, int]
    """The lag of each feed with a name."""


class SessionSink:
    """The connection of a feed."""

    def __init__(self, session: Session, feeding: Feeding) -> None:
        self._session = session
        self._feeding = feeding
        self.opened: OpenFeed | None = None
        self._was_full = False
        self._string: LargeString | None = None
        """A large string that is being sent ..."""
        self._at = 0
        """... and how much of it was."""
        self._is_scheduled = False
        self._replies: list[bytes | memoryview] = []
        """Replies that were made before an event began, and wait for its end."""
        self.reply_bytes = 0
        self.is_inside_event = False
        self._has_blocked = False
        """Commands of the client are held for that."""

    @property
    def peer(self) -> str:
        return self._session.peer

    @property
    def unsent_bytes(self) -> int:
        return self._session.unsent_bytes

    @property
    def is_held(self) -> bool:
        return self._string is not None or self._session.is_inside_reply

    @property
    def is_full(self) -> bool:
        if self.is_held:
            return True
        bound = limits.FEED_BUFFER_BYTES
        self._was_full = self._session.unsent_bytes > (bound // _RESUMED_PART if self._was_full else bound)
        return self._was_full

    def send(self, data: bytes | LargeString) -> None:
        self._feeding.count_sent(data)
        if isinstance(data, bytes):
            self._session.write(data)
            self._see_event_end()
        else:
            self._string, self._at = data, 0
            self._session.write(bulk_head(data.size))
            self.go_on()

    def go_on(self) -> None:
        """Write the next piece of a large string, if the socket takes it; a socket that takes more again calls this."""
        string = self._string
        if string is None or self._session.is_clogged or self._is_scheduled:
            return
        try:
            piece = string.read(self._at, limits.FEED_PIECE_BYTES)
        except (TidelogError, OSError) as error:
            _LOG.warning("feed of %s: cut inside an event, which cannot be read any more: %s", self.peer, error)
            self.cut()
            return
        self._at += len(piece)
        if self._at < string.size:
            self._session.write(piece)
            self._is_scheduled = True
            self._feeding.call_soon(self._next)
        else:
            self._string = None
            self._session.write(piece + b"\r\n")
            self._see_event_end()
            self._feeding.resume(self)

    def _next(self) -> None:
        self._is_scheduled = False
        self.go_on()

    def _see_event_end(self) -> None:
        """Hold commands inside an event; at its end, let replies and commands go on."""
        session, opened = self._session, self.opened
        was_inside = self.is_inside_event
        self.is_inside_event = self._string is not None or (opened is not None and opened.feed.is_cut)
        if self.is_inside_event == was_inside:
            return
        if self.is_inside_event:
            self._has_blocked = not session.is_blocked
        else:
            replies, self._replies, self.reply_bytes = self._replies, [], 0
            for reply in replies:
                session.write(reply)
        if self._has_blocked:
            session.set_blocked(self.is_inside_event)
            session.end_pause()  # it sees what may be run now

    def reply(self, data: bytes | memoryview) -> None:
        """A reply on the same connection: between two events."""
        if self.is_inside_event:
            self._replies.append(data)
            self.reply_bytes += len(data)
        else:
            self._session.write(data)

    def end(self, error: str | None) -> None:
        """An orderly end: what was sent is taken, then the connection is closed."""
        session = self._session
        session.end_feed()
        session.close_after_reply()
        session.push(b"" if error is None else encode_error(error))

    def cut(self) -> None:
        self.leave()
        self._session.kill()

    def leave(self) -> None:
        """Its connection is gone."""
        self._string = None


class Feeding:
    """Runs the feeds of a server."""

    def __init__(
        self,
        loop: Loop,
        feeds: Feeds,
        clock: Clock,
        turn_count: Callable[[], int],
        *,
        checkpoint_ms: int = limits.FEED_CHECKPOINT_MS_DEFAULT,
        repeats_max: int = limits.FEED_REPEATS_DEFAULT,
        http_feeds_max: int = limits.HTTP_FEEDS_DEFAULT,
    ) -> None:
        feeds.checkpoint_ms = checkpoint_ms
        self.repeats = Repeats(clock, repeats_max)
        self.http_feeds_max = http_feeds_max
        """Feeds over HTTP."""
        self._warned_us = -limits.FEED_REPEAT_DELAY_US_MAX
        self._loop = loop
        self._feeds = feeds
        self._clock = clock
        self._turn_count = turn_count
        self._seen_turns = 0
        self._working: Timer | None = None
        self._ticking: Timer | None = None
        self.is_closed = False
        """The server stops, so no feed can be opened."""
        self._name_refusal: str | None = None
        """Why no feed may have a name, as an error reply: a name is kept in the journal, which takes no writes."""
        self.sent_bytes = 0
        """Of all feeds."""

    def open(self, session: Session, request: ChangeFeedRequest) -> None:
        sink = SessionSink(session, self)
        sink.opened = self.open_sink(request, session.protocol, sink)
        session.begin_feed(sink)

    def open_sink(self, request: ChangeFeedRequest, protocol: int, sink: Sink) -> OpenFeed:
        """A feed to any sink; `leave` when nobody wants it any more."""
        if self.is_closed:
            raise ClientError("the store is being closed")
        if request.name is not None:
            self._check_name()
        delay_us = self.repeats.delay_us(sink.peer, request)
        opened = self._feeds.open(request, protocol, sink, delay_us)
        if delay_us:
            self._warn(sink.peer, delay_us)
        self._go_on()
        if self._ticking is None:
            self._tick()
        return opened

    def _warn(self, peer: str, delay_us: int) -> None:
        now_us = self._clock.monotonic_us()
        if now_us - self._warned_us >= limits.FEED_REPEAT_DELAY_US_MAX:
            self._warned_us = now_us
            _LOG.warning(
                "feed of %s: the same history was begun too often (feed-repeats %d), so it begins in %.1f s",
                peer,
                self.repeats.burst,
                delay_us / 1e6,
            )

    def leave(self, opened: OpenFeed) -> None:
        """Its reader is gone; fine if the feed has ended already."""
        self._feeds.close(opened)

    def forget(self, session: Session) -> None:
        """Its connection is gone."""
        sink = session.feed_sink
        if sink is not None and sink.opened is not None:
            if sink.is_inside_event:
                session.kill()  # nothing that could follow would be understood
            sink.leave()
            session.end_feed()
            self._feeds.close(sink.opened)

    def kill(self, number: int) -> bool:
        return self._feeds.kill(number)

    @property
    def checkpoint_ms(self) -> int:
        """Between two checkpoints of feeds that say nothing about it."""
        return self._feeds.checkpoint_ms

    def set_checkpoint_ms(self, value: int) -> None:
        self._feeds.checkpoint_ms = value

    def set_name_refusal(self, refusal: str | None) -> None:
        self._name_refusal = refusal

    def _check_name(self) -> None:
        if self._name_refusal is not None:
            raise CommandError(self._name_refusal)

    def end_named(self) -> None:
        """The server has become a follower: the leader alone has feeds with names."""
        self._feeds.end_named(self._name_refusal or "")

    def acknowledge(self, database: int, name: str, ts: Ts, joined: Transaction | None = None) -> None:
        """`joined`: the transaction that it is a part of, if there is one."""
        self._feeds.holds.acknowledge(database, name, ts, joined)

    def drop(self, database: int, name: str, joined: Transaction | None = None) -> None:
        """Keep nothing for a name any more. One that is being read is kept: the reader relies on it."""
        reader = self._feeds.reader_of(database, name)
        if reader is not None:
            raise ClientError(
                f"feed {reader.number} has the name {name!r}: end it first, with FEED KILL {reader.number}"
            )
        self._feeds.holds.drop(database, name, joined)

    def on_visible(self) -> None:
        """Something has become visible. Hot."""
        if len(self._feeds):
            self._feeds.advance()
            self._go_on()

    def close(self, error: str = "") -> None:
        """The store is going to be closed: everyone gets a last checkpoint, after the rest of an event that is being
        sent. If there is an error, they get that and no checkpoint."""
        self.is_closed = True
        if error:
            self._feeds.end_all(error)
        for opened in self._feeds.all:
            self._feeds.kill(opened.number)

    def resume(self, sink: SessionSink) -> None:
        """A connection takes events again."""
        if sink.opened is not None:
            self._feeds.resume(sink.opened)
            self._go_on()

    def count_sent(self, data: bytes | LargeString) -> None:
        """A sink was given this."""
        self.sent_bytes += len(data) if isinstance(data, bytes) else data.size

    def call_soon(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(call)

    # --- in the background --------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._working is None and self._feeds.has_work:
            self._working = self._loop.call_soon(self._work)

    def _work(self) -> None:
        self._working = None
        if self._feeds.work(self._clock.monotonic_us() + limits.FEED_SLICE_US):
            is_busy, self._seen_turns = self._turn_count() != self._seen_turns, self._turn_count()
            if is_busy:
                self._working = self._loop.call_later(_PAUSE_S, self._work)
            else:
                self._working = self._loop.call_soon(self._work)

    def _tick(self) -> None:
        self._ticking = None
        if not len(self._feeds):
            return
        for opened in self._feeds.parked:
            if not opened.sink.is_full:
                self._feeds.resume(opened)
        self._feeds.tick()
        self._go_on()
        self._ticking = self._loop.call_later(_TICK_S, self._tick)

    # --- what others want to know -------------------------------------------------------------------------------

    def list(self) -> FactsOfEach:
        return [self._facts(opened) for opened in self._feeds.all]

    def list_holds(self) -> FactsOfEach:
        found: FactsOfEach = []
        for hold in self._feeds.holds.all():
            reader = None if hold.database is None else self._feeds.reader_of(hold.database, hold.name)
            facts = {
                "name": hold.name.encode(),
                "db": hold.database,
                "ts": hold.ts,
                "idle_ms": hold.idle_us // 1000,
                "reader": None if reader is None else reader.number,
                "lapsed": None if hold.lapsed is None else hold.lapsed.encode(),
            }
            found.append(facts)
        return found

    def _facts(self, opened: OpenFeed) -> dict[str, Any]:
        feed, sink = opened.feed, opened.sink
        records, ms = self._feeds.lag(opened)
        return {
            "id": opened.number,
            "name": (feed.request.name or "").encode(),
            "addr": sink.peer.encode(),
            "db": feed.request.database,
            "spans": len(feed.request.spans),
            "state": self._state(opened).encode(),
            "position": self._feeds.position_of(opened),
            "checkpoint": feed.checkpoint_ts,
            "lag_records": records,
            "lag_ms": ms,
            "buffer_bytes": sink.unsent_bytes + feed.out_bytes,
            "events": feed.event_count,
        }

    def _state(self, opened: OpenFeed) -> str:
        if opened.is_delayed:
            return DELAYED
        return SLOW if self._feeds.is_parked(opened) else opened.feed.state.value

    def figures(self) -> FeedFigures:
        """What all feeds do, and how far those with a name are behind."""
        states = dict.fromkeys([*(state.value for state in State), SLOW, DELAYED], 0)
        lag_ms = buffer_bytes = 0
        named_ms: dict[str, int] = {}
        for opened in self._feeds.all:
            states[self._state(opened)] += 1
            ms = self._feeds.lag_ms(opened)
            lag_ms = max(lag_ms, ms)
            buffer_bytes += opened.sink.unsent_bytes + opened.feed.out_bytes
            name = opened.feed.request.name
            if name is not None and (name in named_ms or len(named_ms) < limits.FEEDS_SHOWN_MAX):
                named_ms[name] = max(ms, named_ms.get(name, 0))
        return FeedFigures(
            states,
            self._feeds.opened_count,
            self._feeds.event_count,
            self.sent_bytes,
            self.repeats.delayed_count,
            lag_ms,
            buffer_bytes,
            named_ms,
        )

    def section(self) -> dict[str, object]:
        """INFO feeds."""
        listed = self.list()
        figures = self.figures()
        found: dict[str, object] = {
            "feeds": len(listed),
            "feeds_steady": figures.states[State.STEADY.value],
            "feeds_catching_up": len(listed) - figures.states[State.STEADY.value],
            "feeds_slow": figures.states[SLOW],
            "feeds_delayed": figures.states[DELAYED],
            "catch_ups_max": limits.CATCH_UPS_MAX,
            "total_feeds": figures.opened_count,
            "total_feed_events": figures.event_count,
            "total_feed_bytes": figures.sent_bytes,
            "total_feeds_delayed": figures.delayed_count,
        }
        for facts in listed[: limits.FEEDS_SHOWN_MAX]:
            shown = ",".join(
                f"{name}={value.decode(errors='replace') if isinstance(value, bytes) else value}"
                for name, value in facts.items()
                if name != "id"
            )
            found[f"feed{facts['id']}"] = shown
        return found
