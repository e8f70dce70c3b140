"""All connections: how many there may be, which are turned away at the door, and which are cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tidelog import limits
from tidelog.engine.metrics import Metrics
from tidelog.engine.sessions import Sessions
from tidelog.ports import Clock
from tidelog.server.connection import Connection

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
        *,
        clients_max: int = limits.CLIENTS_MAX,
        idle_s_max: int = 0,
        is_protected: bool,
    ) -> None:
        self._sessions = sessions
        self._clock = clock
        self._metrics = metrics
        self.clients_max = clients_max
        self.idle_s_max = idle_s_max
        """A connection that is silent for longer is closed; 0: never."""
        self.output_limits = OutputLimits()
        self.waits_for_disk = False
        """The disk does not keep up: nothing is read from anyone."""
        self._is_protected = is_protected

    def __len__(self) -> int:
        return sum(1 for _ in self.all())

    def all(self) -> Iterator[Connection]:
        for session in self._sessions.all():
            if isinstance(session, Connection):
                yield session

    def refusal(self, connection: Connection) -> str | None:
        """Why a new connection is turned away; None: it is not."""
        self._metrics.connections += 1
        if len(self._sessions) >= self.clients_max:
            self._metrics.connections_refused += 1
            return "ERR max number of clients reached"
        if self._is_protected and not connection.is_local:
            self._metrics.connections_refused += 1
            return _PROTECTED
        return None

    # --- now and then -------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Once a second: see which connections are idle, and cut those that idle or do not read for too long."""
        now_us = self._clock.monotonic_us()
        for each in self.all():
            each.look(now_us)
            if each.is_listening:
                if self._reads_too_slowly(each, now_us):
                    self._metrics.cut_for_output += 1
                    each.kill()
            elif self.idle_s_max and each.idle_s > self.idle_s_max and not (each.is_busy or each.is_blocked):
                self._metrics.cut_for_idling += 1
                each.kill()

    def _reads_too_slowly(self, connection: Connection, now_us: int) -> bool:
        """Whether it has left much unread for long."""
        bounds = self.output_limits
        if not bounds.soft_bytes or connection.unsent_bytes <= bounds.soft_bytes:
            connection.slow_since_us = 0
            return False
        connection.slow_since_us = connection.slow_since_us or now_us
        return now_us - connection.slow_since_us > 1_000_000 * bounds.soft_s

    def wait_for_disk(self, is_needed: bool) -> None:
        """Stop reading from everyone until the disk has caught up, or go on."""
        if is_needed != self.waits_for_disk:
            self.waits_for_disk = is_needed
            for each in self.all():
                each.update_reading()
