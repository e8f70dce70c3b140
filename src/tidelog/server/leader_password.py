"""The password that a follower says to its leader: one of its own, or that of the server.

Servers that follow each other mostly have the same password, and must after a failover: whoever leads is followed.
"""

from __future__ import annotations

from tidelog.engine.password import Password


class LeaderPassword:
    """One per process. A change counts for the next link."""

    def __init__(self, secret: bytes | None, of_server: Password) -> None:
        self._secret = secret
        self._of_server = of_server

    @property
    def is_own(self) -> bool:
        """It was given apart from that of the server (`masterauth`)."""
        return self._secret is not None

    @property
    def secret(self) -> bytes | None:
        """What is said to a leader; None: nothing."""
        return self._of_server.secret if self._secret is None else self._secret

    def change(self, secret: bytes | None) -> None:
        """Another one; None: that of the server."""
        self._secret = secret
