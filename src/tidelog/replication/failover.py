"""FAILOVER: a leader hands over to one of its followers, and nothing is lost.

    waiting-for-sync ──► the follower has everything ──► "handed over to it" is durable ──► it is told to lead
          │                                                                                  until it has led
          └─ timeout: given up, or with FORCE handed over as it is

Writes wait meanwhile. They are refused once the role has changed, and clients find the new leader.

Whoever dies, and when: before "handed over" is durable we lead, and afterwards we do not, also after a restart. From
then on nobody but the heir can lead. If it was not there to hear that, it comes back as a follower of ours, and hears
it then, from this process or the next. It hears it when it has all that it had confirmed and all that we have: either
may have lost its tail in a crash, and gets it from the other first. It has led when there is a newer epoch here.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from tidelog.errors import ClientError
from tidelog.ports import Clock, Loop, NetworkAddress, Timer
from tidelog.replication.facts import FailoverState
from tidelog.replication.message import LinkRole, TakeOver
from tidelog.replication.role_file import Handover

if TYPE_CHECKING:
    from tidelog.replication.follower_link import FollowerLink
    from tidelog.replication.replication import Replication

_LOG: Final = logging.getLogger("tidelog")
_HELD_MS_MAX: Final = 24 * 3600 * 1000
_TOLD_AGAIN_US: Final = 1_000_000
NO_FAILOVER: Final[FailoverState] = "no-failover"


class Failover:
    """One at a time, or none."""

    def __init__(self, replication: Replication, clock: Clock, loop: Loop) -> None:
        self._replication = replication
        self._clock = clock
        self._loop = loop
        self.state: FailoverState = NO_FAILOVER
        self._target: NetworkAddress | None = None
        """None: whoever is first to have everything."""
        self._timer: Timer | None = None
        self._told: FollowerLink | None = None
        """The link on which the heir was last told to lead ..."""
        self._told_us = 0
        """... and when (monotonic): it may have had no space for that."""

    def begin(self, target: NetworkAddress | None, timeout_ms: int, *, is_forced: bool) -> None:
        """`ClientError` if there is nobody to hand over to. `timeout_ms` 0: for as long as it takes."""
        replication = self._replication
        if replication.role is not LinkRole.LEADER:
            raise ClientError("FAILOVER is not valid when server is a replica.")
        if self.state != NO_FAILOVER:
            raise ClientError("FAILOVER already in progress.")
        online = [link.address for link in replication.followers.links if link.is_online]
        if not online:
            raise ClientError("FAILOVER requires connected replicas.")
        if target is not None and target not in online:
            raise ClientError("FAILOVER target HOST and PORT is not a replica.")
        if self._find(target) is None:
            raise ClientError("FAILOVER needs a replica that is the only one with its address.")
        self._target = target
        self.state = "waiting-for-sync"
        replication.server.hold_writes(timeout_ms or _HELD_MS_MAX)
        if timeout_ms:
            self._timer = self._loop.call_later(timeout_ms / 1000, lambda: self._time_out(is_forced=is_forced))
        self._loop.call_soon(self.look)

    def _find(self, target: NetworkAddress | None) -> FollowerLink | None:
        """One that is alone behind its address: otherwise "follower of it" could mean another one."""
        links = self._replication.followers.links
        times = Counter(link.address for link in links if link.has_met)
        online = [link for link in links if link.is_online and times[link.address] == 1]
        if target is not None:
            return next((link for link in online if link.address == target), None)
        return max(online, key=lambda link: link.written.ts, default=None)

    def look(self) -> None:
        """A follower has more than before: hand over if that is all."""
        handed_over = self._replication.handed_over
        if handed_over is not None:
            self._tell_heir(handed_over)
        if self.state != "waiting-for-sync":
            return
        link = self._find(self._target)
        if link is None:
            self.abort("the replica is gone")
        elif link.written.ts >= self._replication.server.store.journal.writer.last_ts:
            self._hand_over(link)

    def _hand_over(self, link: FollowerLink) -> None:
        self.state = "failover-in-progress"
        self._stop_timer()
        _LOG.warning("handing over to %s:%d", *link.address)
        handed_over = Handover(link.written.ts, self._replication.server.store.journal.epoch_id)
        try:
            self._replication.follow(link.address, handed_over)
        except OSError as error:
            self.abort(f"it cannot be stored that we follow ({error})")
            return
        self._tell(link, handed_over)
        self._end()

    def _tell_heir(self, handed_over: Handover) -> None:
        """Once it has come back with everything. Also what we have beyond the handover: if that was forced, there is
        some, and if a disk failed while it was stored, we may have gone on as leader."""
        link = self._find(self._replication.leader)
        needed_ts = max(handed_over.ts, self._replication.server.store.journal.writer.last_ts)
        if link is None or link.written.ts < needed_ts:
            return
        if link is not self._told or self._clock.monotonic_us() - self._told_us >= _TOLD_AGAIN_US:
            self._tell(link, handed_over)

    def _tell(self, link: FollowerLink, handed_over: Handover) -> None:
        self._told, self._told_us = link, self._clock.monotonic_us()
        link.send(TakeOver(handed_over.ts))

    def _time_out(self, *, is_forced: bool) -> None:
        self._timer = None
        link = self._find(self._target)
        if is_forced and link is not None:
            self._hand_over(link)
        else:
            self.abort("it took too long")

    def abort(self, reason: str) -> None:
        """Go on as leader."""
        if self.state != NO_FAILOVER:
            _LOG.warning("the failover is given up: %s", reason)
            self._end()

    def _end(self) -> None:
        self._stop_timer()
        self.state, self._target = NO_FAILOVER, None
        self._replication.server.hold_writes(0)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
