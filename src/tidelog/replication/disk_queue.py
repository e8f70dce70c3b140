"""Work on the disk that a thread does, in order, while the loop goes on.

    add     a step for the thread, and what the loop does once it is done
    go      hand over what has gathered; while the thread works, more gathers
    drop    forget the steps that were not begun, and whatever was to follow those that were

One lot of steps is with the thread at a time, and a lot that was dropped has ended before the next is handed over. So
two steps never touch the disk at the same moment, whoever added them. A step that fails ends everything: those after it
are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.errors import EnvironmentFault
from tidelog.ports import Worker


class _Step(NamedTuple):
    work: Callable[[], None]
    done: Callable[[], None] | None
    size: int


class _Lot:
    """Steps that are handed over together."""

    def __init__(self, steps: list[_Step]) -> None:
        self._steps = steps
        self._done_count = 0
        self.size = sum(step.size for step in steps)
        self.is_dropped = False
        self.error: OSError | EnvironmentFault | None = None

    def run(self) -> None:
        """On the thread."""
        for step in self._steps:
            if self.is_dropped:
                return
            try:
                step.work()
            except (OSError, EnvironmentFault) as error:
                self.error = error
                return
            self._done_count += 1

    def tell(self) -> None:
        """Let the loop do what follows, as far as it is still wanted."""
        for step in self._steps[: self._done_count]:
            if step.done is not None and not self.is_dropped:
                step.done()


class DiskQueue:
    """Steps on their way to a thread. For the loop's thread."""

    def __init__(
        self, worker: Worker, on_end: Callable[[], None], on_failure: Callable[[OSError | EnvironmentFault], None]
    ) -> None:
        self._worker = worker
        self._gathered: list[_Step] = []
        self._under_way: _Lot | None = None
        self.waiting_bytes = 0
        """Of all steps that are not done."""
        self.on_end = on_end
        """Told when a lot has ended that was not dropped ..."""
        self.on_failure = on_failure
        """... and why a step has failed."""

    def add(self, work: Callable[[], None], done: Callable[[], None] | None = None, size: int = 0) -> None:
        self._gathered.append(_Step(work, done, size))
        self.waiting_bytes += size

    def go(self) -> None:
        if self._gathered and self._under_way is None:
            lot = self._under_way = _Lot(self._gathered)
            self._gathered = []
            self._worker.submit(lot.run, lambda: self._end(lot))

    def _end(self, lot: _Lot) -> None:
        lot.tell()
        self._under_way = None
        self.waiting_bytes -= lot.size
        if not lot.is_dropped:
            if lot.error is not None:
                self.drop()
                self.on_failure(lot.error)
            else:
                self.on_end()
        self.go()

    def drop(self) -> None:
        self.waiting_bytes -= sum(step.size for step in self._gathered)
        self._gathered = []
        if self._under_way is not None:
            self._under_way.is_dropped = True
