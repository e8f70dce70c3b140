"""What an operator may set about replication. CONFIG SET changes it while the server runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PRIORITY_DEFAULT: Final = 100
LAG_S_DEFAULT: Final = 10


@dataclass(slots=True)
class ReplicationOptions:
    """Read where it is at work, so that a change counts at once."""

    announce_host: str = ""
    """The host that a follower gives its leader as its own; empty: the address that it connects from ..."""
    announce_port: int = 0
    """... and the port; 0: the one that it listens on."""
    priority: int = PRIORITY_DEFAULT
    """Sentinels promote the follower with the lowest number; 0: never this one."""
    is_announced: bool = True
    """Whether Sentinels are told of this follower."""
    serves_stale_data: bool = True
    """Whether a follower answers reads while it has no link to its leader."""
    followers_min: int = 0
    """A leader refuses writes while fewer followers are there; 0: it takes them ..."""
    follower_lag_max_s: int = LAG_S_DEFAULT
    """... and one that has not been heard of for longer does not count; 0: writes are taken whatever there is."""
