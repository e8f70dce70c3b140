"""A loop on simulated time: calls that were put off happen when a test lets time pass.

The clock jumps from one call to the next, so hours cost nothing. Calls that are due at the same moment happen in the
order in which they were asked for. Nothing else decides the order, so a run is the same every time.

A `ProcessLoop` is what one process of a simulated host has of it. Its calls wait while the process is stopped, and
never happen once it is dead.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from tidelog.testing.clock import SimulatedClock

_CALLS_MAX_DEFAULT: Final = 10_000_000
"""Of one run: something that repeats without end is a mistake, which would otherwise look like a test that hangs."""


class SimulatedTimer:
    """`ports.Timer` of a simulated loop."""

    __slots__ = ("call", "process")

    def __init__(self, call: Callable[[], None], process: ProcessLoop | None = None) -> None:
        self.call: Callable[[], None] | None = call
        """None: it was cancelled."""
        self.process = process
        """Whose call it is; None: the test's, or that of the machines themselves."""

    def cancel(self) -> None:
        self.call = None


class SimulatedLoop:
    """`ports.Loop` for tests: `run` and its kin let time pass."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock: Final = clock
        self.calls = 0
        """How many have happened."""
        self._queue: list[tuple[int, int, SimulatedTimer]] = []
        """A heap by due time (monotonic, µs), then by number."""
        self._number = 0

    def __repr__(self) -> str:
        return f"<SimulatedLoop at {self.clock.monotonic_us()} µs, {len(self._queue)} calls ahead>"

    # --- ports.Loop ---------------------------------------------------------------------------------------------

    def call_soon(self, call: Callable[[], None], /) -> SimulatedTimer:
        return self.call_at(self.clock.monotonic_us(), call)

    def call_later(self, seconds: float, call: Callable[[], None], /) -> SimulatedTimer:
        return self.call_at(self.clock.monotonic_us() + max(0, round(seconds * 1e6)), call)

    # --- what a test does ---------------------------------------------------------------------------------------

    def call_at(self, due_us: int, call: Callable[[], None], process: ProcessLoop | None = None) -> SimulatedTimer:
        """At a moment of the monotonic clock; at once if it has passed."""
        timer = SimulatedTimer(call, process)
        self._number += 1
        heappush(self._queue, (due_us, self._number, timer))
        return timer

    def call_again(self, timer: SimulatedTimer) -> None:
        """At once, for a timer whose call was due before."""
        self._number += 1
        heappush(self._queue, (self.clock.monotonic_us(), self._number, timer))

    def run(self, seconds: float, calls_max: int = _CALLS_MAX_DEFAULT) -> None:
        """Let time pass, with all that happens in it."""
        end_us = self.clock.monotonic_us() + round(seconds * 1e6)
        self._run(lambda: False, end_us, calls_max)
        self.clock.advance(max(0, end_us - self.clock.monotonic_us()))

    def run_until(
        self, is_reached: Callable[[], bool], seconds_max: float = 60.0, calls_max: int = _CALLS_MAX_DEFAULT
    ) -> bool:
        """Let time pass until something is the case, and say whether it is; no longer than `seconds_max`."""
        end_us = self.clock.monotonic_us() + round(seconds_max * 1e6)
        if self._run(is_reached, end_us, calls_max):
            return True
        self.clock.advance(max(0, end_us - self.clock.monotonic_us()))
        return False

    def run_until_idle(self, calls_max: int = _CALLS_MAX_DEFAULT) -> None:
        """Let time pass until nothing is left to happen."""
        self._run(lambda: False, None, calls_max)

    def _run(self, is_reached: Callable[[], bool], end_us: int | None, calls_max: int) -> bool:
        """Make all calls that are due by a moment (None: all), in their order, and move the clock along. Hot."""
        queue, clock = self._queue, self.clock
        calls_end = self.calls + calls_max
        while not is_reached():
            if not queue or (end_us is not None and queue[0][0] > end_us):
                return False
            due_us, _, timer = heappop(queue)
            call, process = timer.call, timer.process
            if call is None:
                continue
            if process is not None and process.is_held:
                process.hold(timer)
                continue
            ahead_us = due_us - clock.monotonic_us()
            if ahead_us > 0:
                clock.advance(ahead_us)
            self.calls += 1
            if self.calls > calls_end:
                raise RuntimeError(f"there are more than {calls_max} calls: something repeats without end")
            call()
        return True


class ProcessLoop:
    """`ports.Loop` of one process. The host of the process stops, continues and kills it."""

    __slots__ = ("_due", "_world", "is_dead", "is_held")

    def __init__(self, world: SimulatedLoop) -> None:
        self._world = world
        self.is_held = False
        """It is stopped or dead."""
        self.is_dead = False
        self._due: list[SimulatedTimer] = []
        """Calls that have become due since it was stopped."""

    def call_soon(self, call: Callable[[], None], /) -> SimulatedTimer:
        world = self._world
        return world.call_at(world.clock.monotonic_us(), call, self)

    def call_later(self, seconds: float, call: Callable[[], None], /) -> SimulatedTimer:
        world = self._world
        return world.call_at(world.clock.monotonic_us() + max(0, round(seconds * 1e6)), call, self)

    def hold(self, timer: SimulatedTimer) -> None:
        """Keep a call that is due."""
        if not self.is_dead:
            self._due.append(timer)

    def stop(self) -> None:
        self.is_held = True

    def go_on(self) -> None:
        """What has become due meanwhile happens now, in its order."""
        self.is_held = self.is_dead
        due, self._due = self._due, []
        for timer in due:
            self._world.call_again(timer)

    def die(self) -> None:
        self.is_dead = self.is_held = True
        self._due.clear()
