"""All connections: how many there may be, which are turned away at the door, and which are cut."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import sys
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog import limits
from tidelog.engine.metrics import Metrics
from tidelog.engine.password import Password
from tidelog.engine.sessions import Sessions
from tidelog.ports import Clock
from tidelog.server.connection import Connection

if TYPE_CHECKING:
    from tidelog.engine.engine import Engine
    from tidelog.server.turns import Turns

_LOG: Final = logging.getLogger("tidelog")
_PROTECTED: Final = (
    "DENIED Tidelog is running in protected mode because no password is set. In this mode it serves clients on the "
    "loopback interface only. Set a password (--requirepass-file) to serve others."
)


@dataclass(slots=True)
class OutputLimits:
    """How many bytes of messages a client that listens may leave unread."""

    hard_bytes: int = limits.PUBSUB_BUFFER_BYTES_MAX
    soft_bytes: int = limits.PUBSUB_BUFFER_SOFT_BYTES
    soft_s: int = limits.PUBSUB_BUFFER_SOFT_S


class Connections:
    """The connections among the sessions of a server."""

    def __init__(
        self,
        sessions: Sessions,
        clock: Clock,
        metrics: Metrics,
        password: Password,
        *,
        clients_max: int = limits.CLIENTS_MAX,
        idle_s_max: int = 0,
    ) -> None:
        self._sessions = sessions
        self._clock = clock
        self._metrics = metrics
        self._password = password
        self.clients_max = clients_max
        self.idle_s_max = idle_s_max
        """A connection that is silent for longer is closed; 0: never."""
        self.output_limits = OutputLimits()
        self.make_link: Callable[[asyncio.Transport], None] = lambda transport: transport.close()
        """Lets a connection be a link of replication (TSYNC)."""
        self.serving: tuple[Engine, Turns] | None = None
        """Serve new connections, whatever these were made with; None: what they were made with does."""
        self.waits_for_disk = False
        """The disk does not keep up: nothing is read from anyone."""
        self._log_cuts_from_us = 0
        """The log tells of the next connection that is cut from then on ..."""
        self._cuts_unsaid = 0
        """... and how many were cut meanwhile."""

    def __len__(self) -> int:
        return sum(1 for _ in self.all())

    def all(self) -> Iterator[Connection]:
        for session in self._sessions.all():
            if isinstance(session, Connection):
                yield session

    def refusal(self, connection: Connection) -> str | None:
        """Why a new connection is turned away; None: it is not."""
        self._metrics.connections += 1
        if connection.is_own:
            return None
        if len(self._sessions) - self._own_count() >= self.clients_max:
            self._metrics.connections_refused += 1
            return "ERR max number of clients reached"
        if not self._password.is_needed and not connection.is_local:
            self._metrics.connections_refused += 1
            return _PROTECTED
        return None

    def _own_count(self) -> int:
        """Connections that a part of this server made; looked at only if it matters."""
        return sum(each.is_own for each in self.all()) if len(self._sessions) >= self.clients_max else 0

    # --- now and then -------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Once a second: see which connections are idle, and cut those that idle or do not read for too long."""
        now_us = self._clock.monotonic_us()
        for each in self.all():
            each.activity.look(now_us, each.command_count)
            if not each.is_authenticated and self._leaves_unread(each, now_us):
                self.cut_unauthenticated(each)
            elif each.is_listening or each.is_monitor:
                if self._reads_too_slowly(each, now_us):
                    self.cut_for_output(each)
            elif self.idle_s_max and each.idle_s > self.idle_s_max and not (each.is_busy or each.is_blocked):
                self._metrics.cut_for_idling += 1
                each.kill()

    def _reads_too_slowly(self, connection: Connection, now_us: int) -> bool:
        """Whether it has left much unread for long."""
        bounds = self.output_limits
        leaves_much = 0 < bounds.soft_bytes < connection.unsent_bytes
        return connection.activity.is_slow(now_us, bounds.soft_s, leaves_much=leaves_much)

    def _leaves_unread(self, connection: Connection, now_us: int) -> bool:
        """Whether one that has not authenticated has left much unread, or anything for long."""
        unread_bytes = _unread_bytes(connection) if connection.command_count else 0
        seconds = limits.UNAUTHENTICATED_UNREAD_S_MAX
        is_slow = connection.activity.is_slow(now_us, seconds, leaves_much=unread_bytes > 0)
        return is_slow or unread_bytes > limits.UNAUTHENTICATED_OUTPUT_BYTES_MAX

    def cut_for_output(self, connection: Connection) -> None:
        """It listens, and leaves too much unread."""
        if connection.is_open:
            self._metrics.cut_for_output += 1
            self._log_cut(f"{connection.peer}, which listens and left {connection.unsent_bytes} bytes unread")
            connection.kill()

    def cut_unauthenticated(self, connection: Connection) -> None:
        """It has not authenticated, and does not read."""
        if connection.is_open:
            self._metrics.cut_unauthenticated += 1
            unread_bytes = _unread_bytes(connection)
            self._log_cut(f"{connection.peer}, which has not authenticated and left {unread_bytes} bytes unread")
            connection.kill()

    def _log_cut(self, which: str) -> None:
        """Say it, but not for each of thousands."""
        now_us = self._clock.monotonic_us()
        if now_us < self._log_cuts_from_us:
            self._cuts_unsaid += 1
            return
        more = f" ({self._cuts_unsaid} more since the last such line)" if self._cuts_unsaid else ""
        _LOG.warning("cut off %s%s", which, more)
        self._log_cuts_from_us = now_us + 1_000_000 * limits.CUT_LOGGED_S
        self._cuts_unsaid = 0

    def wait_for_disk(self, is_needed: bool) -> None:
        """Stop reading from everyone until the disk has caught up, or go on."""
        if is_needed != self.waits_for_disk:
            self.waits_for_disk = is_needed
            for each in self.all():
                each.update_reading()


def _unread_bytes(connection: Connection) -> int:
    """What a client has been sent and its side has not taken, also what the system holds for it."""
    descriptor = connection.descriptor
    if descriptor < 0:
        return connection.unsent_bytes
    in_system = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))
    return connection.unsent_bytes + int.from_bytes(in_system, sys.byteorder)
