"""Gathers the facts of a server's replication from its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.ports import Clock
from tidelog.replication.facts import FollowerFacts, ReplicationFacts
from tidelog.replication.role_file import is_copy

if TYPE_CHECKING:
    from tidelog.replication.follower_link import FollowerLink
    from tidelog.replication.following import Following
    from tidelog.replication.replication import Replication


def gather_facts(replication: Replication, following: Following | None, clock: Clock) -> ReplicationFacts:
    now_us = clock.monotonic_us()
    followers, options = replication.followers, replication.options
    journal = replication.server.store.journal
    is_up = following is not None and following.is_linked
    return ReplicationFacts(
        role=replication.role,
        leader=replication.leader,
        link_state="connect" if following is None else following.shown_state,
        is_link_up=is_up,
        link_down_s=-1 if following is None or is_up else (now_us - following.down_since_us) // 1_000_000,
        link_error="" if following is None else following.error,
        last_io_s=-1 if following is None or following.silent_us < 0 else following.silent_us // 1_000_000,
        is_empty=following is not None and not journal.epochs,
        sync_bytes_total=0 if following is None else following.landing.bytes_total,
        sync_bytes_left=0 if following is None else following.landing.bytes_left,
        applied_ts=journal.writer.last_ts,
        priority=options.priority,
        lag_records=replication.lag.records,
        lag_ms=_lag_ms(replication, following, clock),
        lag_bytes=replication.lag.size_bytes,
        followers=[_facts_of(replication, link) for link in followers.links if link.has_met],
        good_followers=followers.good_count(options.follower_lag_max_s),
        full_syncs=followers.full_syncs,
        partial_syncs=followers.partial_syncs,
        refused_syncs=followers.refused_syncs,
        own_full_syncs=replication.own_full_syncs,
        dropped_publications=followers.dropped_publications,
        set_aside_records=replication.set_aside_records,
        set_aside_paths=replication.set_aside_paths,
        failover_state=replication.failover.state,
        waits_for_followers=replication.is_returning,
        is_deposed=replication.is_deposed,
    )


def _lag_ms(replication: Replication, following: Following | None, clock: Clock) -> int:
    """How old what is served here may be; -1: not known.

    A leader says some times a second that nothing is missing. A copy in an object store says up to which moment that is
    so, and that may be long ago: it is the age of that moment, by the clocks of two machines.
    """
    if following is None:
        return 0
    if is_copy(following.leader):
        closed_ts = replication.server.store.announced_ts
        return -1 if not closed_ts else max(0, clock.wall_us() - closed_ts) // 1000
    return -1 if not following.announced_us else (clock.monotonic_us() - following.announced_us) // 1000


def _facts_of(replication: Replication, link: FollowerLink) -> FollowerFacts:
    return FollowerFacts(
        host=link.address[0],
        port=link.address[1],
        state=link.state.value,
        written_ts=link.written.ts,
        durable_ts=link.durable.ts,
        lag_s=link.silent_us // 1_000_000,
        lag_records=link.records_behind,
        lag_bytes=replication.followers.lag_bytes(link.written.ts) if link.is_online else link.file_bytes_left,
        lag_ms=replication.followers.lag_ms(link.written.ts) if link.is_online else -1,
        server_id=link.name.server_id,
    )
