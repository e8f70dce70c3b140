"""The gate: why writes are refused at the moment, and when commands are held back.

    refused   the client gets an error at once     memory is full (OOM); the journal takes no writes (MISCONF); the
                                                   server is a follower (READONLY), has too few followers (NOREPLICAS),
                                                   or is a follower whose data is too old to be read (MASTERDOWN)
    held      the command waits, then runs         CLIENT PAUSE; a leader hands over to a follower
    loading   refused, reads and all               the data is not there yet (LOADING)

Whatever else may stop commands belongs here: `refusal_of` names it, and a change is told to all sessions, whose hot
path then has no writes, or no commands at all. Only the journal's refusal may come in the middle of a turn, so the hot
path looks at `writer.refusal` itself before each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from tidelog import limits
from tidelog.engine.sessions import Sessions
from tidelog.engine.table import Command
from tidelog.ports import Clock, Loop, Timer
from tidelog.store.store import Store

LOADING: Final = "LOADING Tidelog is loading the dataset in memory"


@dataclass(frozen=True, slots=True)
class Pause:
    """Commands are held back."""

    until_us: int
    """On the monotonic clock."""
    writes_only: bool


class Refusals(Protocol):
    """What replication refuses (`surroundings.ServerReplication`)."""

    @property
    def write_refusal(self) -> str | None: ...

    @property
    def read_refusal(self) -> str | None: ...


class Gate:
    """Refuses writes, and holds commands back."""

    def __init__(self, store: Store, sessions: Sessions, clock: Clock, loop: Loop, *, is_loading: bool = False) -> None:
        self._store = store
        self._sessions = sessions
        self._clock = clock
        self._loop = loop
        self.is_loading = is_loading
        """The store stands in for one that is being loaded: only commands with the flag `loading` run."""
        self.fetched: tuple[int, int] | None = None
        """How many bytes of that have come from a copy, and how many will; None: it comes from nowhere else."""
        self.is_out_of_memory = False
        self.write_refusal: str | None = None
        """Why replication lets nobody write, as an error reply; None: it does ..."""
        self.read_refusal: str | None = None
        """... and why it lets nobody read. Then it lets nobody write either."""
        self.is_closed = False
        """Memory is full, or replication refuses something."""
        self.pause_now: Pause | None = None
        """What is held back, whoever wants it; until it is looked at again."""
        self._asked: Pause | None = None
        """CLIENT PAUSE ..."""
        self._handover: Pause | None = None
        """... and a failover. Neither ends the other."""
        self._pause_timer: Timer | None = None

    def note_fetched(self, done: int, total: int) -> None:
        """So much has come from a copy. From any thread."""
        self.fetched = done, total

    # --- refusing -----------------------------------------------------------------------------------------------

    @property
    def has_hot_writes(self) -> bool:
        """Whether writes may take the hot path."""
        return not self.is_closed

    @property
    def is_open(self) -> bool:
        """No command is refused. Asked before every write of the general path."""
        return not self.is_closed and self._store.refusal is None

    @property
    def is_read_only(self) -> bool:
        """Nobody may write until the role changes: what waits to write will not, and is told so."""
        return self.write_refusal is not None and self.write_refusal.startswith("READONLY ")

    def refusal_while_loading(self, row: Command) -> str | None:
        """Why a command has to wait for the data, as an error reply; None: it need not."""
        return LOADING if self.is_loading and "loading" not in row.flags else None

    def refusal_of(self, row: Command, arguments: Sequence[bytes]) -> str | None:
        """Why a command cannot run at the moment, as an error reply; None: it can."""
        return self.write_refusal_of(row, arguments) or self.read_refusal_of(row)

    def write_refusal_of(self, row: Command, arguments: Sequence[bytes]) -> str | None:
        """The same as far as writes are refused. The order of the reasons is Redis's."""
        if not row.journals(arguments):
            return None
        if self.is_out_of_memory and "denyoom" in row.flags:
            return "OOM command not allowed when used memory > 'maxmemory'."
        return self.write_refusal if self._store.refusal is None else f"MISCONF {self._store.refusal}"

    def read_refusal_of(self, row: Command) -> str | None:
        """The same as far as old data is concerned: commands that do not look at it may run."""
        return None if "stale" in row.flags else self.read_refusal

    def set_out_of_memory(self, is_out: bool) -> None:
        """Refuse what takes memory from now on, or no longer."""
        if is_out != self.is_out_of_memory:
            self.is_out_of_memory = is_out
            self._tell()

    def role_changed(self, replication: Refusals) -> None:
        """Refuse what replication refuses from now on."""
        if (self.write_refusal, self.read_refusal) != (replication.write_refusal, replication.read_refusal):
            self.write_refusal, self.read_refusal = replication.write_refusal, replication.read_refusal
            self._tell()

    def _tell(self) -> None:
        """Sessions choose anew which commands are hot."""
        self.is_closed = self.is_out_of_memory or self.write_refusal is not None or self.read_refusal is not None
        self._sessions.states_changed()

    # --- holding ------------------------------------------------------------------------------------------------

    def holds(self, row: Command, arguments: Sequence[bytes]) -> bool:
        """Whether a command of the keyspace has to wait for the end of a pause."""
        pause = self.pause_now
        return pause is not None and (not pause.writes_only or row.journals(arguments))

    def stops(self, row: Command, arguments: Sequence[bytes]) -> bool:
        """Whether a command that waits for a key has to wait on, whatever the key holds now."""
        if self.is_open and self.pause_now is None:
            return False
        return self.refusal_of(row, arguments) is not None or self.holds(row, arguments)

    def pause(self, ms: int, *, writes_only: bool) -> None:
        """CLIENT PAUSE. An earlier one that lasts longer, or holds more, counts on."""
        until_us, before = self._clock.monotonic_us() + 1000 * ms, self._asked
        if before is not None:
            until_us = max(until_us, before.until_us)
            writes_only = writes_only and before.writes_only
        self._asked = Pause(until_us, writes_only)
        self._set_pause()

    def resume(self) -> None:
        """CLIENT UNPAUSE."""
        self._asked = None
        self._set_pause()

    def hold_writes(self, ms: int) -> None:
        """Hold writes back for so long, as another server is about to take them; 0: no longer."""
        self._handover = Pause(self._clock.monotonic_us() + 1000 * ms, True) if ms else None
        self._set_pause()

    def end_pauses(self) -> None:
        """The server stops: nothing is held back any more."""
        self._asked = self._handover = None
        self._set_pause()

    def _set_pause(self, over_us: int = 0) -> None:
        """Hold back what anybody wants held back now, and let the rest go. Pauses until `over_us` are over."""
        now_us = max(self._clock.monotonic_us(), over_us)
        if self._asked is not None and self._asked.until_us <= now_us:
            self._asked = None
        if self._handover is not None and self._handover.until_us <= now_us:
            self._handover = None
        pauses = [each for each in (self._asked, self._handover) if each is not None]
        if self._pause_timer is not None:
            self._pause_timer.cancel()
            self._pause_timer = None
        self.pause_now = None
        if pauses:
            until_us = min(each.until_us for each in pauses)
            self.pause_now = Pause(until_us, all(each.writes_only for each in pauses))
            seconds = (until_us - now_us) / 1e6
            # A timer cannot be set for centuries; this one looks again.
            over_us = until_us if seconds <= limits.TIMER_S_MAX else 0
            look = partial(self._look_at_pauses, over_us)
            self._pause_timer = self._loop.call_later(min(seconds, limits.TIMER_S_MAX), look)
        self._store.keeps_expired = self.pause_now is not None
        self._sessions.states_changed()
        for session in self._sessions.all():
            session.end_pause()

    def _look_at_pauses(self, over_us: int) -> None:
        self._pause_timer = None
        self._set_pause(over_us)
