"""Where a server is: it can be sent, connects, and keeps its password to itself."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.days.servers import Servers
from tidelog.days.location import Location


@pytest.mark.parametrize("kind", ["tidelog", "redis", "cluster"])
def test_one_that_was_sent_elsewhere_connects(servers: Servers, kind: str) -> None:
    port = servers.port(kind)
    made = Location(f"redis://127.0.0.1:{port}", "127.0.0.1", port, is_cluster=kind == "cluster")
    sent: Location = pickle.loads(pickle.dumps(made))
    assert sent == made
    with sent.connect() as client:
        link: Any = client
        assert link.set("key", b"\xff")
        assert link.get("key") == b"\xff"


def test_a_database_is_kept(servers: Servers) -> None:
    port = servers.port("redis")
    with Location("", "127.0.0.1", port, database=3).connect() as client:
        client.set("only in 3", 1)
    with Location("", "127.0.0.1", port).connect() as client:
        assert not client.exists("only in 3")


def test_a_password_is_not_shown() -> None:
    made = Location("redis://host:1", "host", 1, username="me", password="secret")
    assert "secret" not in repr(made)
    assert pickle.loads(pickle.dumps(made)).password == "secret"
