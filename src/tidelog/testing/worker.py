"""A simulated thread: work that takes some simulated time, and is over when its moment comes.

The work happens at one moment, while nothing else does: what threads do to each other's memory is not simulated. That
the loop goes on meanwhile is, and that a process dies with work that was not begun, or whose end nobody was told of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tidelog.ports import Loop


class SimulatedWorker:
    """`ports.Worker` on the loop of a process."""

    def __init__(self, loop: Loop, seconds: float = 0.001) -> None:
        self._loop = loop
        self.seconds = seconds
        """How long each piece of work takes."""
        self._waiting: deque[tuple[Callable[[], None], Callable[[], None]]] = deque()
        self._is_busy = False

    def submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self._waiting.append((work, done))
        if not self._is_busy:
            self._begin()

    def _begin(self) -> None:
        self._is_busy = True
        self._loop.call_later(self.seconds, self._end)

    def _end(self) -> None:
        self._is_busy = False
        if self._waiting:
            self._run()

    def _run(self) -> None:
        work, done = self._waiting.popleft()
        if self._waiting and not self._is_busy:
            self._begin()  # first: the work may raise
        work()
        self._loop.call_soon(done)

    def close(self) -> None:
        """Wait for all work; the loop is told once it comes round to it."""
        while self._waiting:
            self._run()
