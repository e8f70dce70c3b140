"""The follower's state machine: it connects to its leader, finds out what it lacks, and follows.

                         ┌────────────────────────── link lost, deadline passed, refused ──────────────┐
                         ▼                                                                             │
    RESTING ──backoff──► CONNECTING ──hello──► MEETING ──┬─ continue ────► CATCHING_UP ──announced──► STABLE
       ▲                     ▲                           ├─ full sync ───► LANDING ──all files──► RELOADING
       │                     │                           ├─ tail wanted ─► GIVING_TAIL ─ continue ─► CATCHING_UP
       │                     │                           └─ diverged ────► RELOADING (what is not the leader's goes)
       │                     └───────────── the store is open again ─────────────┘
       └─ with jitter

Whatever happens to a link, nothing is half done: transactions count when they are whole, a full sync when all of it has
landed, and the next link begins with what is there then. A follower never makes a `ts` and never begins an epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog import limits
from tidelog.errors import EnvironmentFault, LinkMisused
from tidelog.ids import Ts
from tidelog.ports import Clock, LinkOwner, Loop, NetworkAddress, NetworkLink, Random, Timer
from tidelog.replication.facts import LinkState
from tidelog.replication.giving_tail import GivingTail
from tidelog.replication.hello import follower_hello
from tidelog.replication.landing import Landing
from tidelog.replication.leader_link import LeaderLink
from tidelog.replication.leader_news import HistoryLag, LeaderNews
from tidelog.replication.message import (
    NOBODY_LEADS,
    Announcement,
    ContinueSync,
    EndReason,
    EpochBegins,
    FullSync,
    LeaderHello,
    LinkMessage,
    LinkPing,
    LinkRefused,
    LongPublication,
    LongRecord,
    PayloadPiece,
    Publication,
    Reached,
    RefusalReason,
    SyncReason,
    TailWanted,
    TakeOver,
    TransactionParts,
)
from tidelog.replication.reception import Reception
from tidelog.replication.role_file import is_copy, leader_text
from tidelog.replication.shared_history import Shared, compare
from tidelog.replication.states import COPY_UNMET_US, RECEIVING, SHOWN, UNMET_US, FollowingState

if TYPE_CHECKING:
    from tidelog.replication.replication import Replication

_LOG: Final = logging.getLogger("tidelog")
_DENOMINATOR: Final = 1000
"""Jitter is drawn in parts of this."""

Connect = Callable[[NetworkAddress, LinkOwner], NetworkLink]


class Following:
    """Follows one leader, from `begin` to `close`."""

    def __init__(
        self,
        replication: Replication,
        leader: NetworkAddress,
        clock: Clock,
        loop: Loop,
        random: Random,
        connect: Connect,
        landing: Landing,
    ) -> None:
        self._replication = replication
        self.leader = leader
        self._server = replication.server
        self._clock = clock
        self._loop = loop
        self._random = random
        self._connect = connect
        self.state = FollowingState.RESTING
        self._link: LeaderLink | None = None
        self._timer: Timer | None = None
        """When it tries again."""
        self._state_us = clock.monotonic_us()
        self._failures = 0
        """Attempts in a row that led to nothing."""
        self._reception: Reception | None = None
        self.landing = landing
        """A full sync that is under way, or was interrupted."""
        self._landing_reason = SyncReason.EMPTY
        self._tail: GivingTail | None = None
        self._leader_hello: LeaderHello | None = None
        """What the leader had when we met."""
        self._wants_all = False
        """What is here cannot be led back to the leader's history: it has to send all of it."""
        self._told = (Ts(0), Ts(0))
        """What was acknowledged last: written and durable ..."""
        self._told_us = 0
        """... and when."""
        self._is_stopped = False
        """Nothing is received, because the disk does not keep up or is full."""
        self.announced_us = 0
        """When the leader last announced something (monotonic)."""
        self.news = LeaderNews()
        self._was_linked = False
        self.down_since_us = clock.monotonic_us()
        """Since when there is no link, if there is none."""
        self.error = ""
        """Why the last link ended."""

    # --- what others ask ----------------------------------------------------------------------------------------

    @property
    def is_linked(self) -> bool:
        """It follows: all that a leader has comes here, perhaps over others."""
        return self.is_receiving and self.news.distance != NOBODY_LEADS

    @property
    def is_receiving(self) -> bool:
        """Whatever the server has that it is connected to comes here."""
        return self.state in RECEIVING

    @property
    def shown_state(self) -> LinkState:
        """As INFO and ROLE have it."""
        return SHOWN[FollowingState.CATCHING_UP if self.is_receiving and not self.is_linked else self.state]

    @property
    def silent_us(self) -> int:
        return -1 if self._link is None else self._link.silent_us

    @property
    def lag(self) -> HistoryLag:
        """What is missing here of the leader's history; while there is no link, as it last was."""
        if self.state is FollowingState.LANDING:
            return HistoryLag(-1, self.landing.bytes_left)
        return self.news.lag(sum(self._server.store.journal.writer.written.lsns))

    # --- connecting ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The store is open: connect."""
        self._set_state(FollowingState.RESTING)
        self._timer = self._loop.call_soon(self._dial)

    def _dial(self) -> None:
        self._timer = None
        writer = self._server.store.journal.writer
        if writer.visible.ts < writer.last_ts:
            # What was received on the last link is not synced, or has no space yet. A position is given once it is.
            self._rest("what was received waits for the disk")
            return
        self._set_state(FollowingState.CONNECTING)
        self._leader_hello = None
        link = LeaderLink(self, self._clock)
        self._link = link
        link.set_link(self._connect(self.leader, link))

    def _set_state(self, state: FollowingState) -> None:
        self.state = state
        self._state_us = self._clock.monotonic_us()
        if not self.is_receiving:
            self.news.distance = NOBODY_LEADS
        self._look_at_link()

    def _look_at_link(self) -> None:
        if self.is_linked != self._was_linked:
            self._was_linked = self.is_linked
            if not self._was_linked:
                self.down_since_us = self._clock.monotonic_us()
            self._replication.link_changed()

    def meet(self, link: LeaderLink) -> None:
        """The link is there: say what we have."""
        if link is not self._link:
            return
        self._set_state(FollowingState.MEETING)
        here = self._replication
        hello = follower_hello(
            self._server.store.journal, here.options, here.port, here.server_id, self.landing.unfinished(),
            wants_all=self._wants_all,
        )  # fmt: skip
        link.send(hello)

    def link_over(self, link: LeaderLink, reason: str) -> None:
        """The link is no more, or never was."""
        if link is not self._link:
            return
        self._link = None
        if self.state in (FollowingState.RELOADING, FollowingState.OVER):
            return
        if self.is_receiving:
            _LOG.warning("the link to the leader %s is over: %s", leader_text(self.leader), reason)
            self.error = reason  # it is told once
        self._drop_reading()
        self._rest(reason)

    def _drop_reading(self) -> None:
        if self._reception is not None:
            self._reception.drop()
            self._reception = None
        self._is_stopped = False
        if self._tail is not None:
            self._tail.close()
            self._tail = None
        self.landing.interrupt()

    def _rest(self, reason: str) -> None:
        """Try again after a while: longer each time, and never at the same moment as others."""
        if reason != self.error:
            _LOG.warning("cannot follow %s now: %s", leader_text(self.leader), reason)
        self.error = reason
        pause_s = min(limits.REPLICATION_BACKOFF_S_MIN * 2**self._failures, limits.REPLICATION_BACKOFF_S_MAX)
        self._failures = min(self._failures + 1, 16)
        jitter = (self._random.randrange(_DENOMINATOR) + _DENOMINATOR) / (2 * _DENOMINATOR)
        self._set_state(FollowingState.RESTING)
        self._timer = self._loop.call_later(pause_s * jitter, self._dial)

    # --- messages -----------------------------------------------------------------------------------------------

    def take(self, message: LinkMessage) -> None:
        """Hot."""
        if self.state is FollowingState.LANDING:
            self.landing.take(message)
        elif self._reception is not None and isinstance(
            message, (TransactionParts, LongRecord, PayloadPiece, EpochBegins, Publication, LongPublication)
        ):
            self._reception.take(message)
        elif isinstance(message, Announcement):
            self._take_announcement(message)
        elif isinstance(message, LeaderHello):
            self._leader_hello = message
            self.news.meet(message)
            self._replication.origin.meet(message)
        elif isinstance(message, ContinueSync):
            self._continue(message)
        elif isinstance(message, FullSync):
            self._begin_landing(message)
        elif isinstance(message, TailWanted):
            self._begin_tail()
        elif isinstance(message, LinkRefused):
            self._take_refusal(message)
        elif isinstance(message, TakeOver) and self.is_receiving:
            self._replication.take_over(message.ts)
        else:
            raise LinkMisused(f"{type(message).__name__} came in state {self.state.value}")

    def took_all(self) -> None:
        """All that had come together was taken: write it, and say so. Hot."""
        if self._reception is not None:
            self._reception.write()
            self._acknowledge()
            if (self._reception.is_stuck or self._reception.is_clogged) and self._link is not None:
                self._is_stopped = True
                self._link.stop_receiving()
        elif self.state is FollowingState.LANDING:
            self.landing_went_on()

    def _continue(self, message: ContinueSync) -> None:
        visible = self._server.store.journal.writer.visible
        if self.state not in (FollowingState.MEETING, FollowingState.GIVING_TAIL) or message.ts != visible.ts:
            raise LinkMisused(f"the leader goes on after ts {message.ts}, and {visible.ts} is reached here")
        self._replication.origin.go_on(self._leader_hello)
        begin = Reached(visible.ts, visible.lsns)
        self._reception = Reception(self._server, begin, self._replication.worker, self._go_on)
        self.landing.discard()
        self.error = ""
        self._set_state(FollowingState.CATCHING_UP)
        self._acknowledge(is_due=True)

    def _take_announcement(self, message: Announcement) -> None:
        if not self.is_receiving:
            self._state_us = self._clock.monotonic_us()  # it is there, and makes a snapshot
            return
        self._take_news(message)
        if self._reception is not None and not self._reception.is_stuck:
            self._reception.write()
            store = self._server.store
            store.announced_ts = max(store.announced_ts, message.closed_ts)
            if self.is_linked:
                self.announced_us = self._clock.monotonic_us()
        self._server.store.journal.hlc.follow(message.clock_bound)
        if self.state is FollowingState.CATCHING_UP and self._is_level(message.closed_ts):
            self._failures = 0
            self._set_state(FollowingState.STABLE)
            _LOG.info("following %s", leader_text(self.leader))

    def _take_news(self, message: Announcement) -> None:
        before = self.news.distance
        self.news.take(message)
        if NOBODY_LEADS == self.news.distance != before:
            self.error = "it leads no longer, and has no link to a server that does"
            _LOG.warning("following %s: %s", leader_text(self.leader), self.error)
        self._look_at_link()

    def _is_level(self, closed_ts: Ts) -> bool:
        """Whether we have what the leader had when we met."""
        return self._leader_hello is None or closed_ts >= self._leader_hello.position.ts

    def _take_refusal(self, message: LinkRefused) -> None:
        if message.reason is RefusalReason.DIVERGED and not self._wants_all:
            since, epoch = message.since, message.epoch
            self._end_link(EndReason.ROLE_CHANGED, "what has diverged is set aside")
            self._set_state(FollowingState.RELOADING)
            self._replication.rewind(since, epoch)
            return
        if self._link is not None:
            self._link.cut(f"the leader refused: {message.text or message.reason.name.lower()}")

    # --- acknowledging ------------------------------------------------------------------------------------------

    def _acknowledge(self, *, is_due: bool = False) -> None:
        """Say how far we are, if that has changed. Hot."""
        writer = self._server.store.journal.writer
        told = writer.written.ts, writer.durable_ts
        if self._link is not None and self._reception is not None and (told != self._told or is_due):
            self._told, self._told_us = told, self._clock.monotonic_us()
            self._link.send(self._reception.acknowledgement())

    def on_durable(self) -> None:
        """An fsync has finished."""
        if self._reception is not None:
            self._acknowledge()
            self._go_on()

    def _go_on(self) -> None:
        """Receive again, if what was in the way is gone."""
        reception, link = self._reception, self._link
        if reception is None or link is None or not self._is_stopped:
            return
        can_go_on = reception.go_on()
        self._acknowledge()
        if can_go_on and not reception.is_clogged:
            self._is_stopped = False
            link.resume_receiving()

    def tick(self) -> None:
        """Ten times a second."""
        link, now_us = self._link, self._clock.monotonic_us()
        if link is None:
            return
        if self.state in UNMET_US:
            if now_us - self._state_us > (COPY_UNMET_US if is_copy(self.leader) else UNMET_US[self.state]):
                link.cut("the leader did not answer in time")
                return
        elif not self._is_stopped:
            link.look()
        self._go_on()
        if now_us - self._told_us >= limits.REPLICATION_ACKNOWLEDGE_US:
            self._say_something(link, now_us)

    def _say_something(self, link: LeaderLink, now_us: int) -> None:
        """The leader is to know that we are there."""
        self._told_us = now_us
        if self._reception is not None:
            self._acknowledge(is_due=True)
        elif self.state is FollowingState.LANDING:
            link.send(self.landing.acknowledgement())
        elif self.state is not FollowingState.CONNECTING:
            # Also before it has answered: a leader that is back after a crash knows nothing of this link, and waits.
            link.send(LinkPing(now_us))

    # --- full sync ----------------------------------------------------------------------------------------------

    def _begin_landing(self, message: FullSync) -> None:
        if self.state is not FollowingState.MEETING or (hello := self._leader_hello) is None:
            raise LinkMisused("a full sync begins where none is due")
        self._landing_reason = message.reason
        _LOG.info(
            "full sync from %s (%s): %d files, %d bytes",
            leader_text(self.leader), message.reason.name.lower(), message.files, message.size,
        )  # fmt: skip
        self._set_state(FollowingState.LANDING)
        self.landing.begin(message, hello.database_id, self)

    def landing_went_on(self) -> None:
        """With the last of it, it takes the place of what is here."""
        link, landing = self._link, self.landing
        if landing.has_landed:
            self._replace()
            return
        landing.write()
        if link is not None and self._is_stopped != landing.is_clogged:
            self._is_stopped = landing.is_clogged
            (link.stop_receiving if self._is_stopped else link.resume_receiving)()

    def landing_failed(self, error: OSError | EnvironmentFault) -> None:
        _LOG.error("a full sync cannot be stored: %s", error)
        if self._link is not None:
            self._link.end_landing(error)

    def _replace(self) -> None:
        keeps_old = self._landing_reason is not SyncReason.ERASED and self._server.store.journal.writer.last_ts > 0
        try:
            self.landing.complete(keeps_old=keeps_old)
        except OSError as error:
            self.landing_failed(error)
            return
        self._wants_all = False
        self._end_link(EndReason.ROLE_CHANGED, "the full sync has landed")
        self._set_state(FollowingState.RELOADING)
        self._replication.replace()

    def want_all(self) -> None:
        """What is here cannot be led back to the leader's history."""
        self._wants_all = True

    # --- our tail -----------------------------------------------------------------------------------------------

    def _begin_tail(self) -> None:
        """The leader has lost what we kept, and wants it, if all that it has is ours too."""
        journal, hello = self._server.store.journal, self._leader_hello
        found = None if hello is None else compare(journal, hello.epochs, hello.position)
        if hello is None or self._link is None or not isinstance(found, Shared):
            raise LinkMisused("the leader wants a tail of a history that is not ours")
        self._set_state(FollowingState.GIVING_TAIL)
        self._tail = GivingTail(journal, self._link, hello.position)
        self.give_tail()

    def give_tail(self) -> None:
        """Send some more of it, as far as the socket takes it."""
        if self._tail is not None:
            self._tail.send()

    # --- the end ------------------------------------------------------------------------------------------------

    def _end_link(self, reason: EndReason, text: str) -> None:
        link, self._link = self._link, None
        self._drop_reading()
        if link is not None:
            link.end(reason, text)

    def close(self, reason: EndReason, text: str) -> None:
        """Follow no more. What has landed in part of a full sync is kept for the next process."""
        self._set_state(FollowingState.OVER)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._end_link(reason, text)
        if reason is not EndReason.STOPPING:
            self.landing.discard()
