"""All connections: who is there, how many may be, who is turned away at the door, and when everybody has to wait."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog import limits
from tidelog.ports import Clock
from tidelog.server.metrics import Metrics

if TYPE_CHECKING:
    from tidelog.server.session import Session

_PROTECTED: Final = (
    "DENIED Tidelog is running in protected mode because no password is set. In this mode it serves clients on the "
    "loopback interface only. Set a password (--requirepass-file) to serve others."
)


@dataclass(frozen=True, slots=True)
class Pause:
    """Commands wait (CLIENT PAUSE)."""

    until_us: int
    """On the monotonic clock."""
    writes_only: bool


@dataclass(slots=True)
class OutputLimits:
    """How many bytes of messages a client that listens may leave unread."""

    hard_bytes: int = limits.PUBSUB_BUFFER_BYTES_MAX
    soft_bytes: int = limits.PUBSUB_BUFFER_SOFT_BYTES
    soft_s: int = limits.PUBSUB_BUFFER_SOFT_S


class Clients:
    """The connections of a server."""

    def __init__(
        self, clock: Clock, metrics: Metrics, *, clients_max: int = limits.CLIENTS_MAX, is_protected: bool
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self.clients_max = clients_max
        self.idle_s_max = 0
        """A connection that says nothing for longer is closed; 0: never."""
        self.output_limits = OutputLimits()
        self.pause_now: Pause | None = None
        self._pause_timer: asyncio.TimerHandle | None = None
        self.waits_for_disk = False
        """The disk does not keep up: nothing is read from anyone."""
        self._is_protected = is_protected
        self._sessions: dict[int, Session] = {}
        self._last_id = 0
        self._commands_before = 0
        """Commands of connections that are gone, less those that no longer count."""

    def __len__(self) -> int:
        return len(self._sessions)

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    # --- coming and going ---------------------------------------------------------------------------------------

    def refusal(self, session: Session) -> str | None:
        """Why a new connection is turned away; None: it is not."""
        self._metrics.connections += 1
        if len(self._sessions) >= self.clients_max:
            self._metrics.connections_refused += 1
            return "ERR max number of clients reached"
        if self._is_protected and not session.is_local:
            self._metrics.connections_refused += 1
            return _PROTECTED
        return None

    def add(self, session: Session) -> None:
        self._sessions[session.id] = session

    def remove(self, session: Session) -> None:
        if self._sessions.pop(session.id, None) is not None:
            self._commands_before += session.command_count

    def all(self) -> list[Session]:
        return list(self._sessions.values())

    def find(self, client_id: int) -> Session | None:
        return self._sessions.get(client_id)

    # --- counting -----------------------------------------------------------------------------------------------

    @property
    def command_count(self) -> int:
        """Commands of all connections."""
        return self._commands_before + sum(session.command_count for session in self._sessions.values())

    def reset_count(self) -> None:
        self._commands_before -= self.command_count

    # --- now and then -------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Once a second: see who is idle, and cut who idles or does not read for too long."""
        now_us = self._clock.monotonic_us()
        for session in self.all():
            session.look(now_us)
            if session.is_listening:
                if self._reads_too_slowly(session, now_us):
                    self._metrics.cut_for_output += 1
                    session.kill()
            elif self.idle_s_max and session.idle_s > self.idle_s_max and not (session.is_busy or session.is_blocked):
                self._metrics.cut_for_idling += 1
                session.kill()

    def _reads_too_slowly(self, session: Session, now_us: int) -> bool:
        """Whether it has left much unread for long."""
        bounds = self.output_limits
        if not bounds.soft_bytes or session.unsent_bytes <= bounds.soft_bytes:
            session.slow_since_us = 0
            return False
        session.slow_since_us = session.slow_since_us or now_us
        return now_us - session.slow_since_us > 1_000_000 * bounds.soft_s

    def wait_for_disk(self, is_needed: bool) -> None:
        """Stop reading from everyone until the disk has caught up, or go on."""
        if is_needed != self.waits_for_disk:
            self.waits_for_disk = is_needed
            for session in self.all():
                session.update_reading()

    def states_changed(self) -> None:
        """Something that decides which path commands take has changed for all."""
        for session in self._sessions.values():
            session.state_changed()

    # --- pausing ------------------------------------------------------------------------------------------------

    def pause(self, ms: int, *, writes_only: bool) -> None:
        until_us = self._clock.monotonic_us() + 1000 * ms
        before = self.pause_now
        if before is not None:
            until_us = max(until_us, before.until_us)
            writes_only = writes_only and before.writes_only
        self.pause_now = Pause(until_us, writes_only)
        self.states_changed()
        self._wait_for_end()

    def _wait_for_end(self) -> None:
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        self._pause_timer = None
        if self.pause_now is not None:
            left_s = (self.pause_now.until_us - self._clock.monotonic_us()) / 1e6
            # A timer cannot be set for centuries; this one looks again.
            wake = self.resume if left_s < limits.TIMER_S_MAX else self._wait_for_end
            loop = asyncio.get_running_loop()
            self._pause_timer = loop.call_later(min(max(left_s, 0), limits.TIMER_S_MAX), wake)

    def resume(self) -> None:
        self.pause_now = None
        self._wait_for_end()
        self.states_changed()
        for session in self.all():
            session.end_pause()
