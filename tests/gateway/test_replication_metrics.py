"""What /metrics shows of replication."""

from __future__ import annotations

from random import Random

from tests.engine.made import NoLoop, make_engine
from tests.engine.roles import HandMadeRole
from tidelog.gateway.replication_metrics import replication_samples
from tidelog.gateway.sample import render
from tidelog.ids import Ts
from tidelog.journal.journal import Settings
from tidelog.replication.facts import FollowerFacts, ReplicationFacts
from tidelog.replication.message import LinkRole
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk


def shown(facts: ReplicationFacts | None) -> list[str]:
    clock = SimulatedClock()
    store = Store.open(SimulatedDisk(1), "/data", clock, Settings(), lambda: 1, Random(1))
    engine = make_engine(store, clock, NoLoop())
    if facts is not None:
        role = HandMadeRole(engine)
        role.facts = lambda: facts  # type: ignore[method-assign]
    text = render(replication_samples(engine))
    heads = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads)), "samples of one name follow each other"
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_a_leader() -> None:
    followers = [
        FollowerFacts("10.0.0.2", 6400, "online", Ts(90), Ts(80), 1, 2, 300, 4),
        FollowerFacts("b", 6401, "send_bulk", Ts(0), Ts(0), 0, 7, 8, -1),
    ]
    lines = shown(ReplicationFacts(followers=followers, good_followers=1, full_syncs=2, refused_syncs=1))
    for line in (
        "tidelog_follower 0",
        "tidelog_followers 2",
        "tidelog_good_followers 1",
        'tidelog_follower_online{follower="10.0.0.2:6400"} 1',
        'tidelog_follower_online{follower="b:6401"} 0',
        'tidelog_follower_lag_records{follower="10.0.0.2:6400"} 2',
        'tidelog_follower_lag_bytes{follower="10.0.0.2:6400"} 300',
        'tidelog_follower_lag_seconds{follower="10.0.0.2:6400"} 0.004',
        'tidelog_follower_lag_seconds{follower="b:6401"} -1',
        "tidelog_full_syncs_total 2",
        "tidelog_refused_syncs_total 1",
    ):
        assert line in lines
    assert not any(line.startswith("tidelog_link") for line in lines)
    assert "tidelog_followers 0" in shown(None)


def test_followers_that_announce_one_address_have_labels_of_their_own() -> None:
    followers = [FollowerFacts("nat", 6400, "online", Ts(9), Ts(8), 1, 2, 300, 4, server_id) for server_id in "ab"]
    lines = shown(
        ReplicationFacts(followers=[*followers, FollowerFacts("c", 1, "online", Ts(9), Ts(8), 0, 0, 0, 0, "c")])
    )
    assert len(lines) == len({line.rpartition(" ")[0] for line in lines})
    assert 'tidelog_follower_lag_records{follower="nat:6400",id="a"} 2' in lines
    assert 'tidelog_follower_lag_records{follower="c:1"} 0' in lines


def test_a_follower() -> None:
    facts = ReplicationFacts(
        role=LinkRole.FOLLOWER,
        leader=("a", 1),
        link_state="catch_up",
        is_link_up=True,
        lag_ms=1500,
        set_aside_records=3,
    )
    lines = shown(facts)
    for line in (
        "tidelog_follower 1",
        "tidelog_link_up 1",
        'tidelog_link_state{state="catch_up"} 1',
        'tidelog_link_state{state="connected"} 0',
        "tidelog_lag_seconds 1.5",
        "tidelog_set_aside_records_total 3",
    ):
        assert line in lines
