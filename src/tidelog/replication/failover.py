"""FAILOVER: a leader hands over to one of its followers, and nothing is lost.

    waiting-for-sync ──► the follower has everything ──► "follower of it" is durable ──► it is told to lead
          │                                                                                until it does
          └─ timeout: given up, or with FORCE handed over as it is

Writes wait meanwhile. They are refused once the role has changed, and clients find the new leader. If the other server
was not there to hear that it leads, it comes back as a follower of ours, and hears it then.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from tidelog.errors import ClientError
from tidelog.ports import Loop, NetworkAddress, Timer
from tidelog.replication.facts import FailoverState
from tidelog.replication.message import LinkRole, TakeOver

if TYPE_CHECKING:
    from tidelog.replication.follower_link import FollowerLink
    from tidelog.replication.replication import Replication

_LOG: Final = logging.getLogger("tidelog")
_HELD_MS_MAX: Final = 24 * 3600 * 1000
NO_FAILOVER: Final[FailoverState] = "no-failover"


class Failover:
    """One at a time, or none."""

    def __init__(self, replication: Replication, loop: Loop) -> None:
        self._replication = replication
        self._loop = loop
        self.state: FailoverState = NO_FAILOVER
        self._target: NetworkAddress | None = None
        """None: whoever is first to have everything."""
        self._timer: Timer | None = None
        self._heir: NetworkAddress | None = None
        """Whom we have handed over to, until it leads ..."""
        self._told: FollowerLink | None = None
        """... and the link on which it was last told so."""

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
        if self._heir is not None:
            self._tell_heir(self._heir)
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
        try:
            self._replication.follow(link.address)
        except OSError as error:
            self.abort(f"it cannot be stored that we follow ({error})")
            return
        self._heir = link.address
        self._tell_heir(link.address, is_forced=True)
        self._end()

    def _tell_heir(self, heir: NetworkAddress, *, is_forced: bool = False) -> None:
        """Never before it has everything, unless that is what was asked for."""
        replication = self._replication
        if replication.leader != heir or replication.distance == 1:  # somebody else decided, or it leads
            self._heir = self._told = None
            return
        link = self._find(heir)
        has_all = link is not None and link.written.ts >= replication.server.store.journal.writer.last_ts
        if link is not None and link is not self._told and (has_all or is_forced):
            self._told = link
            link.send(TakeOver())

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
