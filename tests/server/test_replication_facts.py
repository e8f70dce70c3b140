"""INFO replication, as Sentinels read it, and what is below."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.engine.made import NoLoop, make_engine
from tests.engine.roles import HandMadeRole
from tidelog.engine.engine import Engine
from tidelog.ids import Ts
from tidelog.journal.journal import Settings
from tidelog.replication.facts import FollowerFacts, ReplicationFacts
from tidelog.replication.message import LinkRole
from tidelog.server.replication_facts import replication_section
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

FOLLOWS = ReplicationFacts(
    role=LinkRole.FOLLOWER,
    leader=("10.0.0.1", 6399),
    link_state="connected",
    is_link_up=True,
    last_io_s=1,
    applied_ts=Ts(700),
    priority=50,
    lag_records=3,
    lag_ms=4,
    lag_bytes=5,
)


@pytest.fixture
def engine() -> Engine:
    clock = SimulatedClock()
    store = Store.open(SimulatedDisk(1), "/data", clock, Settings(), lambda: 1, Random(1))
    return make_engine(store, clock, NoLoop())


def section(engine: Engine, facts: ReplicationFacts | None) -> dict[str, object]:
    if facts is not None:
        role = HandMadeRole(engine)
        role.facts = lambda: facts  # type: ignore[method-assign]
    return replication_section(engine)


def test_a_leader_alone(engine: Engine) -> None:
    found = section(engine, None)
    assert list(found)[:3] == ["role", "connected_slaves", "master_failover_state"]
    assert (found["role"], found["connected_slaves"], found["deposed"]) == ("master", 0, 0)
    assert len(str(found["master_replid"])) == 40
    assert found == section(engine, ReplicationFacts(applied_ts=engine.store.journal.writer.last_ts))


def test_followers(engine: Engine) -> None:
    followers = [
        FollowerFacts("10.0.0.2", 6400, "online", Ts(90), Ts(80), 1, 2, 300, 4, "fedcba9876543210"),
        FollowerFacts("::1", 6401, "send_bulk", Ts(0), Ts(0), 0, 7, 8, -1, "0123456789abcdef"),
    ]
    found = section(engine, ReplicationFacts(followers=followers, good_followers=1, full_syncs=2, partial_syncs=3))
    assert found["connected_slaves"] == 2
    assert found["slave0"] == "ip=10.0.0.2,port=6400,state=online,offset=90,lag=1"
    assert found["slave1"] == "ip=::1,port=6401,state=send_bulk,offset=0,lag=0"
    assert found["follower0"] == "written_ts=90,durable_ts=80,lag_records=2,lag_ms=4,lag_bytes=300,id=fedcba9876543210"
    assert (found["good_followers"], found["full_syncs"], found["partial_syncs"]) == (1, 2, 3)


def test_a_follower(engine: Engine) -> None:
    found = section(engine, FOLLOWS)
    assert next(iter(found.items())) == ("role", "slave")
    expected = {
        "master_host": "10.0.0.1",
        "master_port": 6399,
        "master_link_status": "up",
        "master_last_io_seconds_ago": 1,
        "master_sync_in_progress": 0,
        "slave_read_repl_offset": 700,
        "slave_repl_offset": 700,
        "slave_priority": 50,
        "slave_read_only": 1,
        "replica_announced": 1,
        "master_repl_offset": 700,
        "link_state": "connected",
        "lag_records": 3,
        "lag_ms": 4,
        "lag_bytes": 5,
    }
    assert {name: found[name] for name in expected} == expected
    assert "master_link_down_since_seconds" not in found
    assert "master_sync_total_bytes" not in found


def test_a_follower_without_a_link(engine: Engine) -> None:
    down = replace(FOLLOWS, is_link_up=False, link_state="connecting", link_down_s=9)
    found = section(engine, replace(down, link_error="Connection\r\nrefused"))
    names = ("master_link_status", "master_link_down_since_seconds", "master_last_io_seconds_ago", "link_error")
    assert [found[name] for name in names] == ["down", 9, -1, "Connection refused"]


def test_a_follower_that_is_still_empty_is_never_promoted(engine: Engine) -> None:
    empty = replace(
        FOLLOWS, is_link_up=False, is_empty=True, link_state="sync", sync_bytes_total=200, sync_bytes_left=150
    )
    found = section(engine, empty)
    names = ("slave_priority", "never_synced", "master_sync_in_progress", "master_sync_left_bytes", "master_sync_perc")
    assert [found[name] for name in names] == [0, 1, 1, 150, "25.00"]
    assert section(engine, replace(empty, sync_bytes_total=0, sync_bytes_left=0))["master_sync_perc"] == "0.00"


def test_what_was_set_aside(engine: Engine) -> None:
    found = section(engine, replace(FOLLOWS, set_aside_records=7, set_aside_paths=["diverged-5", "diverged-9"]))
    assert (found["set_aside_records"], found["set_aside_paths"]) == (7, "diverged-5,diverged-9")
