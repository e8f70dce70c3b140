"""What /metrics shows of replication: the numbers of INFO replication."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import get_args

from tidelog.engine.engine import Engine
from tidelog.gateway.sample import Sample, label
from tidelog.replication.facts import FollowerFacts, LinkState, ReplicationFacts
from tidelog.replication.message import LinkRole
from tidelog.server.replication_facts import facts_of


def replication_samples(engine: Engine) -> Iterator[Sample]:
    """Numbers of one name follow each other."""
    facts = facts_of(engine)
    is_follower = facts.role is LinkRole.FOLLOWER
    yield Sample("tidelog_follower", "gauge", "1: the server follows another; 0: it leads.", is_follower)
    if is_follower:
        yield from _link(facts)
    yield from _followers(facts)
    yield Sample("tidelog_full_syncs_total", "counter", "Full syncs that followers got.", facts.full_syncs)
    yield Sample(
        "tidelog_partial_syncs_total", "counter", "Links that got what they did not have.", facts.partial_syncs
    )
    yield Sample("tidelog_refused_syncs_total", "counter", "Links that were refused.", facts.refused_syncs)
    yield Sample("tidelog_own_full_syncs_total", "counter", "Full syncs that it got itself.", facts.own_full_syncs)
    yield Sample(
        "tidelog_publications_dropped_total",
        "counter",
        "Messages not passed on to a follower that was behind.",
        facts.dropped_publications,
    )
    yield Sample(
        "tidelog_set_aside_records_total", "counter", "Records that were not the leader's.", facts.set_aside_records
    )
    yield Sample("tidelog_failover_under_way", "gauge", "1: it is handing over.", facts.failover_state != "no-failover")
    yield Sample("tidelog_waits_for_followers", "gauge", "1: a leader is coming back.", facts.waits_for_followers)
    yield Sample("tidelog_deposed", "gauge", "1: a newer leader is known.", facts.is_deposed)


def _link(facts: ReplicationFacts) -> Iterator[Sample]:
    yield Sample("tidelog_link_up", "gauge", "1: there is a link to the leader.", facts.is_link_up)
    for state in get_args(LinkState):
        is_it = state == facts.link_state
        yield Sample("tidelog_link_state", "gauge", "1: that of the link.", is_it, f'{{state="{label(state)}"}}')
    yield Sample("tidelog_link_down_seconds", "gauge", "For how long it has been down.", max(0, facts.link_down_s))
    yield Sample("tidelog_lag_records", "gauge", "Records that we lack; -1: not known.", facts.lag_records)
    yield Sample("tidelog_lag_bytes", "gauge", "Their size, about; -1: not known.", facts.lag_bytes)
    yield Sample("tidelog_lag_seconds", "gauge", "How old the data here may be; -1: not known.", _seconds(facts.lag_ms))
    yield Sample("tidelog_sync_left_bytes", "gauge", "What is left of a full sync.", facts.sync_bytes_left)


def _followers(facts: ReplicationFacts) -> Iterator[Sample]:
    yield Sample("tidelog_followers", "gauge", "Servers that follow this one.", len(facts.followers))
    yield Sample("tidelog_good_followers", "gauge", "Those that count for min-replicas.", facts.good_followers)
    times = Counter((each.host, each.port) for each in facts.followers)
    named = [(_labels(each, is_alone=times[each.host, each.port] == 1), each) for each in facts.followers]
    for name, each in named:
        yield Sample("tidelog_follower_online", "gauge", "1: it gets what is written.", each.state == "online", name)
    for name, each in named:
        yield Sample("tidelog_follower_lag_records", "gauge", "Records that it has not.", each.lag_records, name)
    for name, each in named:
        yield Sample("tidelog_follower_lag_bytes", "gauge", "Their size.", each.lag_bytes, name)
    for name, each in named:
        lag_s = _seconds(each.lag_ms)
        yield Sample("tidelog_follower_lag_seconds", "gauge", "Their age; -1: not known.", lag_s, name)
    for name, each in named:
        yield Sample("tidelog_follower_silent_seconds", "gauge", "Since it was heard of.", each.lag_s, name)


def _labels(follower: FollowerFacts, *, is_alone: bool) -> str:
    """Two that announce one address differ in their ids, for a number of one name and label must not come twice."""
    address = label(f"{follower.host}:{follower.port}")
    return f'{{follower="{address}"}}' if is_alone else f'{{follower="{address}",id="{label(follower.server_id)}"}}'


def _seconds(ms: int) -> float:
    return ms / 1000 if ms >= 0 else -1
