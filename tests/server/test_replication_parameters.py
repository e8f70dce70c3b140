"""CONFIG GET and SET of what concerns replication: at work at once, under both names."""

from __future__ import annotations

import pytest

from tidelog.engine.parameters import BadValue, Parameters
from tidelog.engine.password import Password
from tidelog.ports import NetworkAddress
from tidelog.replication.options import ReplicationOptions
from tidelog.server.leader_password import LeaderPassword
from tidelog.server.replication_parameters import replication_parameters
from tidelog.testing.clock import SimulatedClock


class World:
    def __init__(self) -> None:
        self.options = ReplicationOptions()
        self.password = LeaderPassword(None, Password(None, SimulatedClock()))
        self.leader: NetworkAddress | None = None
        self.changes = 0
        self.parameters = Parameters(
            replication_parameters(
                self.options, self.password, leader=lambda: self.leader, options_changed=self._changed
            )
        )

    def _changed(self) -> None:
        self.changes += 1

    def get(self, name: str) -> str:
        found = self.parameters.find(name)
        assert found is not None, name
        return found.get()

    def set(self, name: str, value: str) -> None:
        found = self.parameters.find(name)
        assert found is not None, name
        assert found.read is not None
        found.read(value)()


@pytest.mark.parametrize(
    ("name", "alias", "default", "value", "field", "meaning"),
    [
        ("min-replicas-to-write", "min-slaves-to-write", "0", "2", "followers_min", 2),
        ("min-replicas-max-lag", "min-slaves-max-lag", "10", "0", "follower_lag_max_s", 0),
        ("replica-priority", "slave-priority", "100", "0", "priority", 0),
        ("replica-announce-port", "slave-announce-port", "0", "6400", "announce_port", 6400),
        ("replica-announce-ip", "slave-announce-ip", "", "10.0.0.1", "announce_host", "10.0.0.1"),
        ("replica-serve-stale-data", "slave-serve-stale-data", "yes", "no", "serves_stale_data", False),
        ("replica-announced", "replica-announced", "yes", "no", "is_announced", False),
    ],
)
def test_it_is_at_work_at_once(name: str, alias: str, default: str, value: str, field: str, meaning: object) -> None:
    world = World()
    assert world.get(name) == world.get(alias) == default
    world.set(alias, value)
    assert (world.get(name), world.get(alias), world.changes) == (value, value, 1)
    assert getattr(world.options, field) == meaning


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min-replicas-to-write", "-1"),
        ("min-replicas-to-write", "x"),
        ("replica-priority", str(2**31)),
        ("replica-announce-port", "65536"),
        ("replica-announce-ip", "a b"),
        ("replica-serve-stale-data", "perhaps"),
        ("replica-read-only", "no"),
        ("masteruser", "me"),
        ("masterauth", "x" * 513),
        ("masterauth", "(redacted)"),
    ],
)
def test_what_cannot_be(name: str, value: str) -> None:
    world = World()
    with pytest.raises(BadValue):
        world.set(name, value)
    assert world.changes == 0


def test_the_leader_is_shown_and_its_password_is_not() -> None:
    world = World()
    assert (world.get("replicaof"), world.get("slaveof"), world.get("masterauth")) == ("", "", "")
    world.leader = ("leader", 6399)
    world.set("masterauth", "secret")
    assert (world.get("replicaof"), world.get("slaveof"), world.get("masterauth")) == (
        "leader 6399",
        "leader 6399",
        "(redacted)",
    )
    assert world.password.secret == b"secret"
    found = world.parameters.find("replicaof")
    assert found is not None
    assert found.read is None
