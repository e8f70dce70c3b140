"""A client at the other end of a socket: where it is, and since when. `connection` has all that flows."""

from __future__ import annotations

import asyncio

from tidelog.engine.engine import Engine
from tidelog.engine.session import Session
from tidelog.resp.encoder import encode_error
from tidelog.server.activity import Activity
from tidelog.server.listener import address_of


class SocketSession(Session):
    """A session with a transport."""

    __slots__ = ("_transport", "activity", "out", "waiting_turns")

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._transport: asyncio.Transport | None = None
        """None: not connected yet, or no longer."""
        self.activity = Activity(engine.clock.monotonic_us())
        self.out: list[bytes] = []
        """Replies of this turn."""
        self.waiting_turns = 0
        """Earlier turns whose replies wait for an fsync."""

    def set_transport(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.local, _ = address_of(transport.get_extra_info("sockname"))
        self.peer, self.is_local = address_of(transport.get_extra_info("peername") or self.local.removesuffix(":0"))

    def close(self) -> None:
        """Close once everything that was sent has been taken."""
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close with an error instead of the replies that were about to be sent."""
        self.out.clear()
        if self._transport is not None:
            self._transport.write(encode_error(f"MISCONF {reason}"))
            self._transport.close()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def descriptor(self) -> int:
        connection = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if connection is None else int(connection.fileno())

    @property
    def age_s(self) -> int:
        return self.activity.age_s(self.engine.clock.monotonic_us())

    @property
    def idle_s(self) -> int:
        now_us = self.engine.clock.monotonic_us()
        self.activity.look(now_us, self.command_count)
        return self.activity.idle_s(now_us)
