"""What a follower says to its leader."""

from __future__ import annotations

from tidelog.engine.password import Password
from tidelog.server.leader_password import LeaderPassword
from tidelog.testing.clock import SimulatedClock


def test_its_own_or_that_of_the_server() -> None:
    of_server = Password(b"same", SimulatedClock())
    password = LeaderPassword(None, of_server)
    assert (password.secret, password.is_own) == (b"same", False)
    password.change(b"other")
    of_server.change(b"new")
    assert (password.secret, password.is_own) == (b"other", True)
    password.change(None)
    assert (password.secret, password.is_own) == (b"new", False)
    of_server.change(None)
    assert password.secret is None
