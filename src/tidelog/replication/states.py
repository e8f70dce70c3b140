"""The states of a follower, and what they are called elsewhere."""

from __future__ import annotations

from enum import Enum
from typing import Final

from tidelog.replication.facts import LinkState


class FollowingState(Enum):
    """See `following`, which draws them."""

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
