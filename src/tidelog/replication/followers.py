"""All servers that follow this one, whatever it is itself: a leader, or a follower in a chain.

    accept      somebody wants to follow
    on_visible  there is more to send
    tick        announcements, silent peers, snapshots that were waited for
    wait        until so many have confirmed a ts

Sending happens in slices, one follower after the other, when there is something to send and its socket takes it. If
some took all that fits into a slice, the next slice is a matter of the loop, so that clients are served in between.
Under load, what became visible within a millisecond is sent together: most of what a send costs is the system call. The
first write after a pause, and one that somebody waits for, is sent without delay.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog import limits
from tidelog.errors import JournalFull
from tidelog.ids import Ts
from tidelog.journal.durability import Visible
from tidelog.journal.journal import Journal
from tidelog.ports import Clock, Loop, NetworkAddress, NetworkLink, Worker
from tidelog.replication.follower_link import FollowerLink, holder_name_of
from tidelog.replication.meeting import NOTHING_UNREAD
from tidelog.replication.message import EndReason, LinkRole, Publication, publication_messages
from tidelog.replication.role_file import FollowerName
from tidelog.replication.server import ReplicatedServer
from tidelog.replication.states import FollowerState
from tidelog.replication.wire import encode
from tidelog.store.store import Store

if TYPE_CHECKING:
    from tidelog.replication.replication import Replication

_LOG: Final = logging.getLogger("tidelog")
_SAMPLES_MAX: Final = 3000
"""Of how much was written up to which ts and when (monotonic), one a tick: for lags in bytes and in time."""


@dataclass(eq=False, slots=True)
class AwaitedConfirmation:
    """Somebody waits until followers have confirmed a ts."""

    ts: Ts
    count: int
    is_durable: bool
    done: Callable[[], None]


class Followers:
    """Sends the history to all who follow."""

    def __init__(self, replication: Replication, server: ReplicatedServer, clock: Clock, loop: Loop) -> None:
        self._replication = replication
        self.server = server
        self.clock = clock
        self._loop = loop
        self._links: dict[FollowerLink, None] = {}
        self._is_pump_due = False
        self._pumped: Visible | None = None
        """What was visible when all were last sent what they take ..."""
        self._pumped_us = 0
        """... and when that was."""
        self._is_pump_timed = False
        self._waits: list[AwaitedConfirmation] = []
        self._samples: deque[tuple[Ts, int, int]] = deque(maxlen=_SAMPLES_MAX)
        self._gone: dict[FollowerName, int] = {}
        """Followers whose links have ended, and when: what they need is held on for a while."""
        self._unread: tuple[Journal, Ts] | None = None
        """Something of this journal could not be read after this ts."""
        self.full_syncs = 0
        self.partial_syncs = 0
        self.refused_syncs = 0
        self.dropped_publications = 0
        """Messages that were published and not passed on, because a follower was too far behind."""

    # --- what links ask -----------------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        return self.server.store

    @property
    def journal(self) -> Journal:
        return self.server.store.journal

    @property
    def speaks_for_copy(self) -> bool:
        return self._replication.origin.speaks_for_copy(self.journal.meta.database_id)

    @property
    def is_open(self) -> bool:
        return self._replication.is_open

    @property
    def role(self) -> LinkRole:
        return self._replication.role

    @property
    def server_id(self) -> str:
        return self._replication.server_id

    @property
    def is_settled(self) -> bool:
        """What is here is the history, or a beginning of it, to which another may go back."""
        return self._replication.is_settled

    def is_our_leader(self, asking: FollowerName) -> bool:
        """Whether we follow who wants to follow us: what it has and we lack is still on its way, also if it has just
        handed over to us. Not told by addresses: a leader has several names, and servers behind NAT share one."""
        return bool(asking.server_id) and asking.server_id == self._replication.leader_id

    @property
    def is_returning(self) -> bool:
        return self._replication.is_returning

    @property
    def distance(self) -> int:
        return self._replication.distance

    @property
    def history_records(self) -> int:
        """How many records the history has, as far as is known here: in a chain, the leader has more than we."""
        return max(sum(self.journal.writer.visible.lsns), self._replication.announced_records)

    @property
    def own_lag_bytes(self) -> int:
        """About how much of it we lack ourselves."""
        return max(0, self._replication.lag.size_bytes)

    def closed_ts(self) -> Ts:
        return self._replication.closed_now()

    def depose(self, link: FollowerLink) -> None:
        try:
            self._replication.depose(link.address)
        except OSError as error:  # it comes again, and there may be space then
            _LOG.error("there is no space to store that a newer leader is known: %s", error)

    def answered(self, link: FollowerLink) -> None:
        """It is known what a follower has."""
        self._gone.pop(link.name, None)
        try:
            self._replication.follower_answered(link.name)
        except (OSError, JournalFull) as error:  # it comes again, and there may be space then
            _LOG.error("follower %s:%d cannot be remembered: %s", *link.address, error)
            link.cut(f"it cannot be remembered: {error}")

    @property
    def worker(self) -> Worker:
        return self._replication.worker

    @property
    def is_taking_tail(self) -> bool:
        """A follower sends what we have lost, and goes on with it."""
        since_us = self.clock.monotonic_us() - int(limits.REPLICATION_RETURN_S * 1e6)
        return any(link.state is FollowerState.TAKING_TAIL and link.tail_us > since_us for link in self._links)

    @property
    def unread_ts(self) -> Ts:
        """Damage lies behind it: who has no more than that is sent a snapshot that was made after the damage."""
        unread = self._unread
        return unread[1] if unread is not None and unread[0] is self.journal else NOTHING_UNREAD

    def note_unread(self, ts: Ts) -> None:
        """What follows a ts cannot be read: it lies damaged on disk. Memory has all of it."""
        self._unread = (self.journal, max(ts, self.unread_ts))

    # --- links --------------------------------------------------------------------------------------------------

    @property
    def links(self) -> list[FollowerLink]:
        return list(self._links)

    def accept(self, link: NetworkLink) -> FollowerLink:
        """Somebody has connected."""
        follower = FollowerLink(self, link)
        self._links[follower] = None
        if len(self._links) > limits.FOLLOWERS_MAX:
            self._loop.call_soon(lambda: follower.cut(f"there are {limits.FOLLOWERS_MAX} followers already"))
        return follower

    def expect(self, known: Iterable[FollowerName]) -> None:
        """These have followed before; those that do not come again are forgotten after a while."""
        connected = {link.name for link in self._links if link.has_met}
        for follower in known:
            if follower not in connected:
                self._gone.setdefault(follower, self.clock.monotonic_us())

    def replace(self, link: FollowerLink) -> None:
        """A follower has come again: its earlier link is dead, though nobody told us. Another server under the same
        address may be a second one, or have taken the place of one that died: that shows when that speaks again."""
        for other in self.links:
            if other is link or other.address != link.address or other.state is FollowerState.MEETING:
                continue
            if other.name == link.name:
                other.end(EndReason.REPLACED, "the follower has made another link")
            else:
                other.is_doubted = True

    def remove(self, link: FollowerLink) -> None:
        self._links.pop(link, None)
        if link.has_met:
            self._gone[link.name] = self.clock.monotonic_us()
        self._replication.followers_changed()

    def end_all(self, reason: EndReason, text: str) -> None:
        for link in self.links:
            link.end(reason, text)

    def meet_again(self) -> None:
        """The history is that of a copy from here on: they hear so in our next hello, before they have any of it."""
        self.end_all(EndReason.ROLE_CHANGED, "the history is that of a copy from here on")

    # --- sending ------------------------------------------------------------------------------------------------

    def on_visible(self) -> None:
        """More may be visible. Hot: called at the end of each turn."""
        if self._links and self.journal.writer.visible is not self._pumped:
            self._pump_in_time()

    def _pump_in_time(self) -> None:
        """Send, but not for each turn anew. Hot."""
        if self._waits or self.clock.monotonic_us() - self._pumped_us >= limits.REPLICATION_PACE_US:
            self._pump()
        else:
            self._pump_later()

    def _pump_later(self) -> None:
        if not self._is_pump_timed:
            self._is_pump_timed = True
            # Never less: uvloop counts in milliseconds, and calls at once what is due in less than half of one.
            self._loop.call_later(limits.REPLICATION_PACE_US / 1e6, self._pump_timed)

    def _pump_timed(self) -> None:
        self._is_pump_timed = False
        self._pump()

    def pump_soon(self) -> None:
        if not self._is_pump_due:
            self._is_pump_due = True
            self._loop.call_soon(self._pump_due)

    def _pump_due(self) -> None:
        self._is_pump_due = False
        self._pump()

    def _pump(self) -> None:
        has_more = False
        self._pumped = self.journal.writer.visible
        self._pumped_us = self.clock.monotonic_us()
        for link in self.links:
            has_more = link.pump() or has_more
        if has_more:
            self.pump_soon()

    def publish(self, publication: Publication) -> None:
        """Pass on what was published, behind all that was written before it."""
        if not self._links:
            return
        channel, payload, is_sharded = publication
        pieces = b"".join(map(encode, publication_messages(channel, payload, is_sharded=is_sharded)))
        ts = self.journal.writer.last_ts
        for link in self.links:
            if not link.publish(ts, pieces):
                self.dropped_publications += 1
        self._pump_later()

    def tick(self) -> None:
        """Ten times a second."""
        writer = self.journal.writer
        self._samples.append((writer.last_ts, writer.bytes_written, self.clock.monotonic_us()))
        for link in self.links:
            link.tick()
        now_us = self.clock.monotonic_us()
        for follower in [each for each, at in self._gone.items() if now_us - at > limits.FOLLOWER_FORGOTTEN_US]:
            self._forget(follower, now_us)
        if self._links:
            self.pump_soon()

    def _forget(self, follower: FollowerName, now_us: int) -> None:
        self.journal.holders.release(holder_name_of(follower))
        try:
            self._replication.forget_follower(follower)
        except OSError as error:
            _LOG.error("there is no space to store that follower %s is forgotten: %s", follower, error)
            self._gone[follower] = now_us - limits.FOLLOWER_FORGOTTEN_US + limits.FOLLOWER_FORGOTTEN_RETRY_US
        else:
            del self._gone[follower]

    # --- what they have -----------------------------------------------------------------------------------------

    def acknowledged(self) -> None:
        """Some follower has more than before."""
        if self._waits:
            for wait in list(self._waits):
                if self.confirmed_count(wait.ts, is_durable=wait.is_durable) >= wait.count:
                    self._waits.remove(wait)
                    wait.done()
        self._replication.followers_changed()

    def confirmed_count(self, ts: Ts, *, is_durable: bool) -> int:
        """How many have said that they have everything up to a ts."""
        return sum((link.durable if is_durable else link.written).ts >= ts for link in self._links if link.counts)

    def wait(self, wait: AwaitedConfirmation) -> Callable[[], None]:
        """Have `done` called once enough have confirmed; the answer ends the wait."""
        self._waits.append(wait)
        self.pump_soon()

        def forget() -> None:
            if wait in self._waits:
                self._waits.remove(wait)

        return forget

    def forget_store(self) -> None:
        """The data is loaded again: what somebody waits for may not be history any more, whoever has its ts, and the
        next store counts what it writes from 0 on."""
        self._waits.clear()
        self._samples.clear()

    def lagging(self) -> list[NetworkAddress]:
        """Those that had caught up, and have not confirmed all that is visible."""
        ts = self.journal.writer.visible.ts
        return [link.address for link in self._links if link.state is FollowerState.ONLINE and link.written.ts < ts]

    def good_count(self, lag_max_s: int) -> int:
        """Those that were heard of lately, in whole seconds as in Redis: an idle one speaks about once a second."""
        return sum(link.counts and link.silent_us // 1_000_000 <= lag_max_s for link in self._links)

    def lag_bytes(self, ts: Ts) -> int:
        """About how much was written after a ts."""
        written = self.journal.writer.bytes_written
        for sample_ts, sample, _ in reversed(self._samples):
            if sample_ts <= ts:
                return written - sample if ts < self.journal.writer.last_ts else 0
        return written - (self._samples[0][1] if self._samples else 0)

    def lag_ms(self, ts: Ts) -> int:
        """The age of the oldest write after a ts, to a tick; not the time between two writes, which may be hours."""
        now_us = since_us = self.clock.monotonic_us()
        if ts < self.journal.writer.visible.ts:
            for sample_ts, _, at_us in reversed(self._samples):
                if sample_ts <= ts:
                    break
                since_us = at_us
        return (now_us - since_us) // 1000
