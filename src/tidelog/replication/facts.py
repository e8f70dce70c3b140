"""What is known about replication at one moment: for INFO replication, ROLE and /metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tidelog.ids import Ts
from tidelog.ports import NetworkAddress
from tidelog.replication.message import LinkRole

LinkState = Literal["connect", "connecting", "handshake", "sync", "catch_up", "connected"]
FailoverState = Literal["no-failover", "waiting-for-sync", "failover-in-progress"]


@dataclass(frozen=True, slots=True)
class FollowerFacts:
    """A server that follows this one."""

    host: str
    port: int
    state: str
    """`online` once it has been sent everything up to some moment of this link."""
    written_ts: Ts
    """The newest transaction that it has written, and ..."""
    durable_ts: Ts
    """... that is durable there."""
    lag_s: int
    """Since it was last heard of."""
    lag_records: int
    """What it does not have yet: records ..."""
    lag_bytes: int
    """... their size, about ..."""
    lag_ms: int
    """... and the age of the oldest."""
    server_id: str = ""
    """What tells it apart from others that say the same host and port."""


@dataclass(frozen=True, slots=True)
class ReplicationFacts:
    """A server as a leader or a follower."""

    role: LinkRole = LinkRole.LEADER
    leader: NetworkAddress | None = None
    """Whom it follows; None: it leads."""
    link_state: LinkState = "connect"
    """Of the link to the leader. So are the next."""
    is_link_up: bool = False
    link_down_s: int = -1
    """For how long there has been none; -1: there is one, or this is a leader."""
    link_error: str = ""
    """Why there is none."""
    last_io_s: int = -1
    """Since something came from the leader; -1: nothing ever did."""
    is_empty: bool = False
    """It has never had the data of its leader, so it must not be promoted."""
    sync_bytes_total: int = 0
    """The full sync that is under way: all of it ..."""
    sync_bytes_left: int = 0
    """... and what has not come yet."""
    applied_ts: Ts = Ts(0)
    """The newest transaction that it has."""
    priority: int = 0
    """As Sentinels go by it."""
    lag_records: int = 0
    """What it does not have of what its leader has: records (-1: not known) ..."""
    lag_ms: int = 0
    """... the age of the oldest ..."""
    lag_bytes: int = 0
    """... and their size, about; of a full sync, what has not come."""
    followers: list[FollowerFacts] = field(default_factory=list)
    """Who follows this server, whatever its own role is."""
    good_followers: int = 0
    """Those that count for min-replicas-to-write."""
    full_syncs: int = 0
    """Full syncs that this server has given ..."""
    partial_syncs: int = 0
    """... links that only needed what came after their position ..."""
    refused_syncs: int = 0
    """... and links that it had nothing for."""
    own_full_syncs: int = 0
    """Full syncs that this server was given itself."""
    dropped_publications: int = 0
    """Messages that were published and not passed on, because a follower was too far behind."""
    set_aside_records: int = 0
    """Records that this server had beyond the history of its leader ..."""
    set_aside_paths: list[str] = field(default_factory=list)
    """... and where they are kept."""
    failover_state: FailoverState = "no-failover"
    waits_for_followers: bool = False
    """A leader that came back, and takes no writes until its followers have said how far they are."""
    is_deposed: bool = False
    """A leader that came back and heard of a newer one: it takes no writes until it is told what it is."""
