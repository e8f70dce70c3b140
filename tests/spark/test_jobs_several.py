"""Several jobs in one process: when they run, what a failure does, how they stop. No Spark is needed for that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from tidelog import limits
from tidelog.errors import EnvironmentFault
from tidelog.spark.jobs.job_lease import Stop
from tidelog.spark.jobs.schedule import Schedule
from tidelog.spark.jobs.several import JobState, PlannedJob, SeveralJobs

NOON_S = 1_700_000_000 // 86_400 * 86_400 + 43_200
WAIT_S_MAX = 30.0


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Running:
    """Jobs on a thread, so that the test goes on."""

    def __init__(self, *jobs: PlannedJob, is_over: Callable[[], bool] = lambda: False) -> None:
        self.stop = Stop()
        self.changes: list[tuple[str, str]] = []
        self.several = SeveralJobs(jobs, self.stop, is_once=False, on_change=self._on_change, is_over=is_over)
        self._thread = threading.Thread(target=self.several.run)
        self._thread.start()

    def _on_change(self, state: JobState) -> None:
        self.changes.append((state.name, state.state))

    def end(self) -> None:
        self.stop.because("terminated")
        self.wait()

    def wait(self) -> None:
        self._thread.join(WAIT_S_MAX)
        assert not self._thread.is_alive()


def follows(stop: Stop) -> None:
    stop.wait()


def test_every_hour() -> None:
    schedule = Schedule(every_s=3600)
    assert schedule.first_s(NOON_S) == NOON_S
    assert schedule.next_s(NOON_S, NOON_S + 60) == NOON_S + 3600
    assert schedule.next_s(NOON_S, NOON_S + 4000) == NOON_S + 4000, "it took longer than an hour"


def test_at_times_of_the_day() -> None:
    schedule = Schedule(at_s=(3 * 3600, 15 * 3600))
    assert schedule.first_s(NOON_S) == NOON_S + 3 * 3600
    assert schedule.first_s(NOON_S + 3 * 3600) == NOON_S + 15 * 3600, "the next day, not now again"
    assert schedule.next_s(NOON_S + 3 * 3600, NOON_S + 16 * 3600) == NOON_S + 27 * 3600


def test_a_failure_is_run_again_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PIPELINE_RETRY_S_MIN", 0.01)
    attempts: list[float] = []

    def fails(stop: Stop) -> None:
        attempts.append(time.monotonic())
        if len(attempts) < 4:
            raise EnvironmentFault(f"attempt {len(attempts)}")
        stop.wait()

    running = Running(PlannedJob("lake", Schedule(), follows), PlannedJob("view", Schedule(), fails))
    until(lambda: len(attempts) == 4)
    lake, view = running.several.states
    assert (lake.runs, lake.failures, lake.state) == (1, 0, "running")
    assert (view.runs, view.failures, view.state, view.last_error) == (4, 3, "running", "attempt 3")
    assert view.is_failing, "it has not ended well since"
    pauses = [after - before for before, after in pairwise(attempts)]
    assert all(pause >= 0.01 * 2**number for number, pause in enumerate(pauses))
    running.end()
    assert [state.state for state in running.several.states] == ["stopped", "stopped"]
    assert view.is_failing, "it was stopped too soon to say"
    assert running.changes.count(("view", "failed")) == 3


def test_pauses_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PIPELINE_RETRY_S_MIN", 0.01)
    monkeypatch.setattr(limits, "PIPELINE_RETRY_S_MAX", 0.02)
    count = 0

    def fails(_stop: Stop) -> None:
        nonlocal count
        count += 1
        raise ValueError("a bug")

    running = Running(PlannedJob("view", Schedule(), fails))
    until(lambda: count > 20)  # without the limit, this would take hours
    running.end()
    [state] = running.several.states
    assert state.failed_in_a_row == state.failures == state.runs


def test_a_bug_is_told_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def fails(_stop: Stop) -> None:
        raise ValueError("a bug\nof two lines")

    several = SeveralJobs([PlannedJob("view", Schedule(), fails)], Stop(), is_once=True)
    several.run()
    [state] = several.states
    assert (state.state, state.last_error) == ("failed", "ValueError: a bug")
    assert "Traceback" in capsys.readouterr().err


def test_once_runs_each_job_once_whatever_its_schedule() -> None:
    ran: list[str] = []
    jobs = [
        PlannedJob("lake", Schedule(), lambda _: ran.append("lake")),
        PlannedJob("expire", Schedule(at_s=(0,)), lambda _: ran.append("expire")),
        PlannedJob("compress", Schedule(every_s=3600), lambda _: ran.append("compress")),
    ]
    several = SeveralJobs(jobs, Stop(), is_once=True)
    several.run()
    assert sorted(ran) == ["compress", "expire", "lake"]
    assert [(state.state, state.runs) for state in several.states] == [("done", 1)] * 3


def test_jobs_of_one_turn_wait_for_each_other() -> None:
    inside: list[str] = []
    most = 0

    def work(name: str) -> Callable[[Stop], None]:
        def run(_stop: Stop) -> None:
            nonlocal most
            inside.append(name)
            most = max(most, len(inside))
            time.sleep(0.2)
            inside.remove(name)

        return run

    names = ("compress", "expire")
    SeveralJobs([PlannedJob(name, Schedule(), work(name), "days") for name in names], Stop(), is_once=True).run()
    assert most == 1
    SeveralJobs([PlannedJob(name, Schedule(), work(name)) for name in names], Stop(), is_once=True).run()
    assert most == 2, "without a turn they run together"


def test_a_stop_ends_running_and_waiting_jobs() -> None:
    reasons: list[str] = []

    def ends(stop: Stop) -> None:
        stop.wait()
        reasons.append(stop.reason)
        raise EnvironmentFault("an error on the way out is none")

    running = Running(PlannedJob("lake", Schedule(), ends), PlannedJob("expire", Schedule(at_s=(1,)), follows))
    until(lambda: running.several.states[0].state == "running")
    running.end()
    assert reasons == ["terminated"]
    assert [(state.state, state.failures) for state in running.several.states] == [("stopped", 0)] * 2


def test_all_end_when_spark_has_ended() -> None:
    def fails(_stop: Stop) -> None:
        raise EnvironmentFault("connection refused")

    jobs = PlannedJob("lake", Schedule(), follows), PlannedJob("view", Schedule(), fails)
    running = Running(*jobs, is_over=lambda: True)
    running.wait()
    assert running.stop.reason == "Spark has ended: connection refused"


def test_a_lost_lease_is_of_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop of a run is its own: the next run begins with another."""
    monkeypatch.setattr(limits, "PIPELINE_RETRY_S_MIN", 0.01)
    stops: list[Stop] = []

    def loses(stop: Stop) -> None:
        stops.append(stop)
        if len(stops) == 1:
            stop.because("the lease was lost")
            raise EnvironmentFault(stop.reason)
        stop.wait()

    running = Running(PlannedJob("lake", Schedule(), follows), PlannedJob("view", Schedule(), loses))
    until(lambda: len(stops) == 2)
    assert not stops[1].is_set()
    assert not running.stop.is_set()
    running.end()


def test_a_job_that_lasts_is_well_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PIPELINE_RETRY_S_MIN", 0.01)
    monkeypatch.setattr(limits, "PIPELINE_STEADY_S", 0.2)
    count = 0

    def fails_first(stop: Stop) -> None:
        nonlocal count
        count += 1
        if count == 1:
            raise EnvironmentFault("once")
        stop.wait()

    running = Running(PlannedJob("view", Schedule(), fails_first))
    [state] = running.several.states
    until(lambda: state.runs == 2)
    assert not state.is_well
    until(lambda: state.is_well)
    running.end()
    assert not state.is_failing
