"""Several jobs in one process, each on a thread and a schedule of its own.

    waiting ──due──> running ──ended well──> waiting, or done if each runs once
       ^                │
       │                └──failed──> failed ──after a pause──> running
       └─ the schedule               the pause doubles up to a limit

- A job that fails does not end the others. It is reported, and run again.
- Jobs of the same `turn` never run at the same time: they need the same lease.
- A stop is passed on to every job that runs, and `run` returns when all have ended.
- If Spark itself has ended, no job can go on: that ends all of them (`is_over`).
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog import limits
from tidelog.errors import TidelogError
from tidelog.spark.jobs.job_lease import Stop
from tidelog.spark.jobs.schedule import Schedule

_LOOK_S: Final = 0.1
_SLEEP_S_MAX: Final = 30.0
"""The clock may be set: it is looked at this often."""


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job, and when it runs."""

    name: str
    schedule: Schedule
    work: Callable[[Stop], None]
    """Runs it to its end, or until the stop is set. An error is a failure."""
    turn: str | None = None


@dataclass(slots=True)
class JobState:
    """Where a job is. Its thread writes it; any thread may look."""

    name: str
    state: str = "waiting"
    """waiting, running, failed (and waiting to run again), done, stopped"""
    runs: int = 0
    """That have begun."""
    failures: int = 0
    failed_in_a_row: int = 0
    """Since a run ended well, or lasted for a while."""
    last_error: str | None = None
    """Of the last run, if it failed; of an earlier one while it runs again."""
    is_failing: bool = False
    """The last run that ended has failed, or one before a run that was stopped soon."""
    begun_s: float | None = None
    due_s: float | None = None
    """When it runs again."""
    seconds: float | None = None
    """How long the last run took."""

    @property
    def is_well(self) -> bool:
        """The last run ended well, or the present one has lasted for a while."""
        lasted_s = 0.0 if self.state != "running" or self.begun_s is None else time.time() - self.begun_s
        return not self.is_failing or lasted_s >= limits.PIPELINE_STEADY_S

    def figures(self) -> dict[str, Any]:
        due_ms = None if self.due_s is None or self.state == "running" else int(self.due_s * 1000)
        return {
            "runs": self.runs,
            "failures": self.failures,
            "due_ms": due_ms,
            "run_seconds": None if self.seconds is None else round(self.seconds, 1),
        }


@dataclass(slots=True)
class _Kept:
    """A job, its state, its thread, and the stop of its present run."""

    job: PlannedJob
    state: JobState
    thread: threading.Thread | None = None
    stop: Stop = field(default_factory=Stop)


class SeveralJobs:
    """Runs jobs until they are stopped, or each of them once."""

    def __init__(
        self,
        jobs: Sequence[PlannedJob],
        stop: Stop,
        *,
        is_once: bool,
        on_change: Callable[[JobState], object] = lambda _: None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`on_change` is called on the thread of a job when a run of it begins or ends."""
        self._stop = stop
        self._is_once = is_once
        self._on_change = on_change
        self._is_over = is_over
        self._turns = {job.turn: threading.Lock() for job in jobs if job.turn is not None}
        self._kept = [_Kept(job, JobState(job.name)) for job in jobs]

    @property
    def states(self) -> list[JobState]:
        return [kept.state for kept in self._kept]

    def run(self) -> None:
        """Returns when all jobs have ended."""
        for kept in self._kept:
            kept.thread = threading.Thread(target=self._keep, args=(kept,), name=f"job {kept.job.name}", daemon=True)
            kept.thread.start()
        while any(kept.thread is not None and kept.thread.is_alive() for kept in self._kept):
            if self._stop.is_set():
                for kept in self._kept:
                    kept.stop.because(self._stop.reason)
                time.sleep(_LOOK_S)
            else:
                self._stop.wait(_LOOK_S)

    # --- on the thread of a job -----------------------------------------------------------------------------------

    def _keep(self, kept: _Kept) -> None:
        schedule, state = kept.job.schedule, kept.state
        state.due_s = time.time() if self._is_once else schedule.first_s(time.time())
        while state.due_s is not None and self._waited(state.due_s):
            with self._turn(kept.job.turn) as is_ours:
                if not is_ours:
                    break
                begun_s = state.begun_s = time.time()
                self._run(kept)
            if self._stop.is_set():
                state.state, state.due_s = "stopped", None
            elif self._is_once:
                state.state, state.due_s = ("failed" if state.is_failing else "done"), None
            elif state.is_failing:
                state.due_s = time.time() + self._pause_s(state)
            else:
                now_s = time.time()  # a job without end that has ended is not run at once again, and again
                next_s = now_s + limits.PIPELINE_RETRY_S_MIN if schedule.is_endless else schedule.next_s(begun_s, now_s)
                state.state, state.due_s = "waiting", next_s
            self._on_change(state)
            if self._is_once:
                return
        state.state, state.due_s = "stopped", None

    def _run(self, kept: _Kept) -> None:
        state = kept.state
        kept.stop = Stop()
        if self._stop.is_set():
            kept.stop.because(self._stop.reason)
        state.runs += 1
        state.state, state.due_s = "running", None
        self._on_change(state)
        begun = time.monotonic()
        error: str | None = None
        try:
            kept.job.work(kept.stop)
        except TidelogError as problem:
            error = str(problem)
        except Exception as problem:  # a bug of one job is told, and does not end the others
            traceback.print_exc()
            error = f"{type(problem).__name__}: {problem}".partition("\n")[0]
        state.seconds = time.monotonic() - begun
        is_steady = state.seconds >= limits.PIPELINE_STEADY_S
        if self._stop.is_set():  # whatever it raises on its way out; if it had failed before, it may do so again
            state.is_failing = state.is_failing and not is_steady
            return
        state.is_failing = error is not None
        state.last_error = error
        if is_steady or not state.is_failing:
            state.failed_in_a_row = 0
        if state.is_failing:
            state.failures += 1
            state.failed_in_a_row += 1
            state.state = "failed"
            if self._is_over():
                self._stop.because(f"Spark has ended: {error}")

    def _pause_s(self, state: JobState) -> float:
        """Before a job that failed runs again."""
        doubled_s = limits.PIPELINE_RETRY_S_MIN * 2.0 ** min(state.failed_in_a_row - 1, 32)
        return min(doubled_s, limits.PIPELINE_RETRY_S_MAX)

    def _waited(self, due_s: float) -> bool:
        """False: the stop came first."""
        while not self._stop.is_set():
            left_s = due_s - time.time()
            if left_s <= 0:
                return True
            self._stop.wait(min(left_s, _SLEEP_S_MAX))
        return False

    @contextmanager
    def _turn(self, name: str | None) -> Iterator[bool]:
        """Waits until no other job of the same turn runs; False: the stop came first."""
        lock = None if name is None else self._turns[name]
        while lock is not None and not lock.acquire(timeout=_LOOK_S):
            if self._stop.is_set():
                yield False
                return
        try:
            yield not self._stop.is_set()
        finally:
            if lock is not None:
                lock.release()
