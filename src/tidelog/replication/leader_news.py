"""What our leader has announced about itself: whether it leads, and how far its history goes.

A server in the middle of a chain passes on what it was told, so the last one knows how far it is behind the leader, and
not only behind the server that it is connected to.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog import limits
from tidelog.replication.message import NOBODY_LEADS, Announcement, LeaderHello


class HistoryLag(NamedTuple):
    """What a follower lacks of its leader's history; -1: not known."""

    records: int
    size_bytes: int
    """About, as the servers that send it reckon."""


NO_LAG: Final = HistoryLag(0, 0)


class LeaderNews:
    """The newest announcement, as far as it outlives its link."""

    def __init__(self) -> None:
        self.distance = NOBODY_LEADS
        """How many links away from a server that leads we are."""
        self.records = -1
        """How many records the leader's history has; -1: it was never said."""
        self._behind_bytes = 0
        """About how much of it was not confirmed by us when it was said; -1: it was not."""
        self.server_id = ""
        """Of the directory of the server that we were last connected to."""

    def meet(self, hello: LeaderHello) -> None:
        """The server that we are connected to has this much. If it follows itself, its leader may have more."""
        self.records, self._behind_bytes = max(self.records, sum(hello.position.lsns)), -1
        self.server_id = hello.server_id

    def take(self, message: Announcement) -> None:
        """Servers that follow each other in a circle count up, until it is known that none of them leads."""
        self.distance = message.distance + 1 if message.distance < limits.REPLICATION_CHAIN_MAX else NOBODY_LEADS
        self.records = message.records
        self._behind_bytes = message.behind_bytes

    def lag(self, own_records: int) -> HistoryLag:
        """Of a server that has so many records of this history."""
        if self.records < 0:
            return HistoryLag(-1, -1)
        return HistoryLag(self.records - own_records, self._behind_bytes) if self.records > own_records else NO_LAG
