"""INFO replication: what Redis says there, which Sentinels and tools read, and below it what only Tidelog has.

Sentinels take the role from the first line, followers from `slave<n>`, and choose whom to promote by `slave_priority`
and `slave_repl_offset`. Offsets are the ts of transactions: they grow with the history, and mean the same on all
servers.
"""

from __future__ import annotations

from hashlib import sha1

from tidelog.engine.engine import Engine
from tidelog.replication.facts import ReplicationFacts
from tidelog.replication.message import LinkRole

ReplicationSection = dict[str, object]


def facts_of(engine: Engine) -> ReplicationFacts:
    """What is known; a server without replication leads, and nobody follows."""
    if engine.replication is not None:
        return engine.replication.facts()
    return ReplicationFacts(applied_ts=engine.store.journal.writer.last_ts)


def replication_section(engine: Engine) -> ReplicationSection:
    """The whole section, in Redis's order."""
    facts = facts_of(engine)
    is_follower = facts.role is LinkRole.FOLLOWER
    found: ReplicationSection = {"role": "slave" if is_follower else "master"}
    if is_follower:
        found |= _of_follower(engine, facts)
    found |= _of_followers(engine, facts)
    return found | _of_tidelog(facts)


def _of_follower(engine: Engine, facts: ReplicationFacts) -> ReplicationSection:
    """Of a link to a leader."""
    host, port = facts.leader or ("", 0)
    is_syncing = facts.link_state == "sync"
    found: ReplicationSection = {
        "master_host": host,
        "master_port": max(port, 0),  # of a copy in an object store, the host is its URL
        "master_link_status": "up" if facts.is_link_up else "down",
        "master_last_io_seconds_ago": facts.last_io_s if facts.is_link_up else -1,
        "master_sync_in_progress": int(is_syncing),
        "slave_read_repl_offset": facts.applied_ts,
        "slave_repl_offset": facts.applied_ts,
    }
    if is_syncing:
        read_bytes = facts.sync_bytes_total - facts.sync_bytes_left
        found |= {
            "master_sync_total_bytes": facts.sync_bytes_total,
            "master_sync_read_bytes": read_bytes,
            "master_sync_left_bytes": facts.sync_bytes_left,
            "master_sync_perc": f"{100 * read_bytes / (facts.sync_bytes_total or 1):.2f}",
            "master_sync_last_io_seconds_ago": facts.last_io_s,
        }
    if not facts.is_link_up:
        found["master_link_down_since_seconds"] = facts.link_down_s
    return found | {
        "slave_priority": 0 if facts.is_empty else facts.priority,
        "slave_read_only": 1,
        "replica_announced": int(engine.parameters.value_of("replica-announced") != "no"),
    }


def _of_followers(engine: Engine, facts: ReplicationFacts) -> ReplicationSection:
    """Of the servers that follow this one, whatever its own role is."""
    found: ReplicationSection = {"connected_slaves": len(facts.followers)}
    checked = ("min-replicas-to-write", "min-replicas-max-lag")
    if all(engine.parameters.value_of(name) not in ("", "0") for name in checked):
        found["min_slaves_good_slaves"] = facts.good_followers
    for number, each in enumerate(facts.followers):
        found[f"slave{number}"] = (
            f"ip={each.host},port={each.port},state={each.state},offset={each.written_ts},lag={each.lag_s}"
        )
    journal = engine.store.journal
    history = f"{journal.meta.database_id} {journal.epoch_id}"  # changes with a failover, as in Redis
    return found | {
        "master_failover_state": facts.failover_state,
        "master_replid": sha1(history.encode(), usedforsecurity=False).hexdigest(),
        "master_replid2": "0" * 40,
        "master_repl_offset": facts.applied_ts,
        "second_repl_offset": -1,
        "repl_backlog_active": 0,
        "repl_backlog_size": 0,
        "repl_backlog_first_byte_offset": 0,
        "repl_backlog_histlen": 0,
    }


def _of_tidelog(facts: ReplicationFacts) -> ReplicationSection:
    """What Redis does not tell."""
    found: ReplicationSection = {}
    if facts.role is LinkRole.FOLLOWER:
        found |= {
            "link_state": facts.link_state,
            "link_error": _in_one_line(facts.link_error),
            "lag_records": facts.lag_records,
            "lag_ms": facts.lag_ms,
            "lag_bytes": facts.lag_bytes,
            "never_synced": int(facts.is_empty),
        }
    for number, each in enumerate(facts.followers):
        found[f"follower{number}"] = (
            f"written_ts={each.written_ts},durable_ts={each.durable_ts},lag_records={each.lag_records},"
            f"lag_ms={each.lag_ms},lag_bytes={each.lag_bytes},id={each.server_id}"
        )
    return found | {
        "good_followers": facts.good_followers,
        "full_syncs": facts.full_syncs,
        "partial_syncs": facts.partial_syncs,
        "refused_syncs": facts.refused_syncs,
        "own_full_syncs": facts.own_full_syncs,
        "dropped_publications": facts.dropped_publications,
        "set_aside_records": facts.set_aside_records,
        "set_aside_paths": _in_one_line(",".join(facts.set_aside_paths)),
        "waits_for_followers": int(facts.waits_for_followers),
        "deposed": int(facts.is_deposed),
    }


def _in_one_line(text: str) -> str:
    return " ".join(text.split())
