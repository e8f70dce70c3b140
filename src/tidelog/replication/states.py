"""The states of both ends of a link, and what they are called elsewhere."""

from __future__ import annotations

from enum import Enum
from typing import Final

from tidelog import limits
from tidelog.replication.facts import LinkState


class FollowerState(Enum):
    """Of a server that follows us: see `follower_link`, which draws them. The values are what INFO shows."""

    MEETING = "handshake"
    TAKING_TAIL = "taking_tail"
    SNAPSHOT_DUE = "wait_bgsave"
    FILES = "send_bulk"
    CATCHING_UP = "catch_up"
    ONLINE = "online"
    OVER = "over"


class FollowingState(Enum):
    """Of a server that follows: see `following`, which draws them."""

    RESTING = "resting"
    CONNECTING = "connecting"
    MEETING = "meeting"
    LANDING = "landing"
    GIVING_TAIL = "giving its tail"
    CATCHING_UP = "catching up"
    STABLE = "stable"
    RELOADING = "reloading"
    OVER = "over"


RECEIVING: Final = (FollowingState.CATCHING_UP, FollowingState.STABLE)
"""All that the server has that it follows comes here."""
UNMET_US: Final = {
    FollowingState.CONNECTING: round(limits.REPLICATION_CONNECT_S * 1e6),
    FollowingState.MEETING: round(limits.REPLICATION_MEETING_S * 1e6),
}
"""How long the other server may take to answer ..."""
COPY_UNMET_US: Final = round(limits.COPY_ANSWER_S * 1e6)
"""... and a copy, in either state: no host is off there, and a thread asks the store as fast as that answers."""
SHOWN: Final[dict[FollowingState, LinkState]] = {
    FollowingState.RESTING: "connect",
    FollowingState.CONNECTING: "connecting",
    FollowingState.MEETING: "handshake",
    FollowingState.LANDING: "sync",
    FollowingState.GIVING_TAIL: "handshake",
    FollowingState.CATCHING_UP: "catch_up",
    FollowingState.STABLE: "connected",
    FollowingState.RELOADING: "sync",
    FollowingState.OVER: "connect",
}
"""As INFO and ROLE have it."""
