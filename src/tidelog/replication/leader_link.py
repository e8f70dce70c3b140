"""The link to the leader that we follow: our end of it. What the messages mean is in `following`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.errors import Corruption, EnvironmentFault, NewerFormat
from tidelog.ports import Clock
from tidelog.replication.kinds import LinkSide
from tidelog.replication.message import EndReason, LinkMessage, TailWanted
from tidelog.replication.speaker import LinkSpeaker

if TYPE_CHECKING:
    from tidelog.replication.following import Following


class LeaderLink(LinkSpeaker):
    """Our end of one link to the leader: messages in, calls of `Following` out."""

    def __init__(self, following: Following, clock: Clock) -> None:
        super().__init__(clock, LinkSide.LEADER)
        self._following = following

    def connected(self) -> None:
        super().connected()
        self.read_for_peer(partial(self._following.meet, self))

    def take(self, message: LinkMessage) -> None:
        if isinstance(message, TailWanted):
            self.read_for_peer(partial(self._following.take, message))
        else:
            self._following.take(message)

    def took_all(self) -> None:
        self._following.took_all()

    def room(self) -> None:
        super().room()
        self._following.give_tail()

    def end_landing(self, error: OSError | EnvironmentFault) -> None:
        """A full sync cannot be stored; if that is because of what the leader sent, the leader is told."""
        if isinstance(error, Corruption) and not isinstance(error, NewerFormat):
            self.end(EndReason.DAMAGED, f"the snapshot is damaged: {error}")
        else:
            self.cut(f"the full sync cannot be stored: {error}")

    def finished(self, reason: str) -> None:
        self._following.link_over(self, reason)
