"""How often each command was run, and how long that took: INFO commandstats.

    general path   every command is counted and timed by itself
    hot path       a run is counted as a whole, and every 64th run of a command is timed: a clock costs more than a hot
                   command may. The time of all is told from those

A tally is one object for all clients, which counts on it without asking for it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.engine.hot_commands import HotCommands, HotRun
from tidelog.store.store import Store

RUNS_PER_SAMPLE: Final = 64
"""One of so many runs of a hot command is timed."""


class Tally:
    """What is counted of one command."""

    __slots__ = ("failed", "hot_calls", "rejected", "sampled_calls", "sampled_s", "timed_calls", "timed_s")

    def __init__(self) -> None:
        self.timed_calls = 0
        """Calls on the general path ..."""
        self.timed_s = 0.0
        """... and the time of all of them."""
        self.hot_calls = 0
        """Calls on the hot path, inside a transaction too ..."""
        self.sampled_calls = 0
        """... those of them that were timed ..."""
        self.sampled_s = 0.0
        """... and the time of these."""
        self.rejected = 0
        """Refused before they ran: a wrong number of arguments, no password, no memory ..."""
        self.failed = 0
        """They ran, and an error was the reply."""

    @property
    def calls(self) -> int:
        return self.timed_calls + self.hot_calls

    @property
    def seconds(self) -> float:
        """Of all calls; those that nobody timed are taken to be like the others."""
        if self.sampled_calls:
            return self.timed_s + self.sampled_s / self.sampled_calls * self.hot_calls
        if self.timed_calls:
            return self.timed_s / self.timed_calls * self.calls
        return 0.0

    @property
    def is_empty(self) -> bool:
        return not (self.calls or self.rejected or self.failed)

    def add(self, seconds: float) -> None:
        """A call on the general path."""
        self.timed_calls += 1
        self.timed_s += seconds

    def reset(self) -> None:
        self.timed_calls = self.hot_calls = self.sampled_calls = self.rejected = self.failed = 0
        self.timed_s = self.sampled_s = 0.0


class TalliedRun:
    """A hot command with what is counted of it."""

    __slots__ = ("run", "tally", "timed", "untimed")

    def __init__(self, run: HotRun, tally: Tally, timed: Tally | None = None) -> None:
        self.run = run
        self.tally = tally
        """Counts the commands of a run."""
        self.timed = timed
        """Gets the time of a whole run as that of one call; None: the tally gets it, for all commands of the run."""
        self.untimed = 1
        """Runs until one is timed: the first is."""

    def add_sample(self, count: int, seconds: float) -> None:
        tally = self.timed or self.tally
        tally.sampled_calls += count if self.timed is None else 1
        tally.sampled_s += seconds


TalliedRuns = dict[bytes, TalliedRun]
"""By name, as clients write it."""
NOTHING_HOT: Final[TalliedRuns] = {}
"""For a session that is not plain."""


class Tallies:
    """Name of a command -> its tally."""

    def __init__(self) -> None:
        self._by_name: dict[str, Tally] = {}

    def of(self, name: str) -> Tally:
        tally = self._by_name.get(name)
        if tally is None:
            tally = self._by_name[name] = Tally()
        return tally

    def runs(self, hot: HotCommands) -> TalliedRuns:
        """Hot commands that are counted. MULTI counts the commands of its transaction itself; EXEC gets their time."""
        return {
            name: TalliedRun(run, Tally(), self.of("EXEC"))
            if name.upper() == b"MULTI"
            else TalliedRun(run, self.of(name.decode().upper()))
            for name, run in hot.items()
        }

    def counted(self) -> list[tuple[str, Tally]]:
        """The commands that somebody sent, in the order of their names."""
        return [(name, self._by_name[name]) for name in sorted(self._by_name) if not self._by_name[name].is_empty]

    def reset(self) -> None:
        """In place: others count on these."""
        for tally in self._by_name.values():
            tally.reset()


MakeHotCommands = Callable[[Store, int, int, bool, bool, Tallies], HotCommands]
"""(store, database, protocol, with writes, with MULTI, tallies) -> the hot commands of sessions like that."""
