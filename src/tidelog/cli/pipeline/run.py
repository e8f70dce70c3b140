"""`tidelog pipeline run`: several jobs in one process, with one Spark session, each on its own schedule."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli.exits import CANNOT, FAILED, FINE, INTERRUPTED, TERMINATED, complain, guarded, until_pipe_closes
from tidelog.cli.options import AsJson, Conf, Master, ShowsLine
from tidelog.cli.output.job_figures import json_value
from tidelog.cli.output.stdout import Cell, Column, Output
from tidelog.cli.pipeline.hosting import Checked, JobHost, hosted_by
from tidelog.cli.pipeline.jobs_file import FileJob, JobsFile, read_jobs
from tidelog.cli.pipeline.run_display import run_display
from tidelog.cli.pipeline.session import LIGHT, STEADY, needs_spark, spark_session, stopped_in_order
from tidelog.errors import EnvironmentFault, TidelogError

if TYPE_CHECKING:
    from tidelog.address import ServerAddress
    from tidelog.spark.jobs.job_lease import Stop
    from tidelog.spark.jobs.several import JobState, PlannedJob, SeveralJobs
    from tidelog.spark.jobs.several_report import SeveralReport
    from tidelog.spark.jobs.shared_session import SharedSession

EPILOG: Final = """\
Examples:

  tidelog pipeline run --file pipeline.toml

  tidelog pipeline run --file pipeline.toml --once

  tidelog pipeline run --file pipeline.toml --json | jq 'select(.error)'

The file:

  url = "redis://127.0.0.1:6399"  # for all jobs; so are password_file, master, conf ...

  [lake]                          # the options of `tidelog pipeline lake`

  to = "lake"

  [view]

  file = "views.toml"

  to = "lake"

  [compress]

  every = "1h"                    # or at = "03:00", in UTC

  older_than_days = 2

  [expire]

  at = "03:30"

  older_than_days = 30

The jobs lake and view follow the server without end, unless they have a schedule. The batches of jobs that follow come
before the work of the others. A job that fails is run again after a second, then two, four ... up to five minutes; the
others go on. `tidelog pipeline status` shows `run`, `run:JOB` (runs, failures, the last error), and each job as always.

JSON: kind "began" (job, runs), "ended" (job, state, error, run_seconds, due_ms, figures: what the job reports), and
"summary" (jobs, failing, runs, failures, seconds, stopped).

Exit status: 0 if the last run of each job went well, 1 if that of some job failed, 2 if nothing could run (an entry of
the file, no Spark) or Spark has ended. With --once, 130 for Ctrl-C and 143 for SIGTERM."""

_COLUMNS: Final = (
    Column("job", style="bold"),
    Column("state"),
    Column("runs", right=True),
    Column("failed", right=True),
    Column("last error", style="red"),
)


@guarded
def run(
    file: Annotated[
        str, typer.Option("--file", metavar="FILE", help="The TOML file that names the jobs.", show_default=False)
    ],
    once: Annotated[
        bool,
        typer.Option("--once/--continuous", help="Run each job once and end, or keep running, each on its schedule."),
    ] = False,
    master: Master = None,
    conf: Conf = None,
    progress: ShowsLine = True,
    as_json: AsJson = False,
) -> int:
    """Run the jobs that a file names in one process, with one Spark session, each on its own schedule."""
    jobs = read_jobs(file)
    with needs_spark():
        addresses = _checked(jobs)
    return _Run(jobs, Output(as_json=as_json), is_once=once).run(
        addresses, master or jobs.master, [*jobs.conf, *(conf or ())], shows_progress=progress
    )


def _checked(jobs: JobsFile) -> list[ServerAddress]:
    """Has every command check its options, before any of them begins. Returns the servers that they work on."""
    from tidelog.spark.jobs.job_lease import Stop

    addresses: dict[ServerAddress, None] = {}
    for job in jobs.jobs:
        try:
            with hosted_by(JobHost(Stop(), None, lambda: False)):
                job.run(is_once=True)
        except Checked as checked:
            if checked.address is not None:
                addresses[checked.address] = None
        except TidelogError as error:
            raise jobs.refusal(job, str(error)) from None
    return list(addresses)


class _Run:
    """One run of the command."""

    def __init__(self, jobs: JobsFile, output: Output, *, is_once: bool) -> None:
        from tidelog.spark.jobs.job_lease import Stop

        self._jobs = jobs
        self._output = output
        self._is_once = is_once
        self._stop: Stop = Stop()
        self._printing = threading.Lock()
        self._reports: list[SeveralReport] = []
        self._begun_s = time.monotonic()

    def run(self, addresses: list[ServerAddress], master: str | None, conf: list[str], *, shows_progress: bool) -> int:
        from tidelog.spark.cache import cache_folder
        from tidelog.spark.jobs.pools import pool_settings
        from tidelog.spark.jobs.several import SeveralJobs
        from tidelog.spark.jobs.several_report import SeveralReport
        from tidelog.spark.jobs.shared_session import SharedSession

        pools = [f"{name}={value}" for name, value in pool_settings(cache_folder(os.environ)).items()]
        settings = LIGHT if self._is_once else STEADY
        with (
            stopped_in_order(self._stop) as signals,
            spark_session("tidelog pipeline", master, [*pools, *conf], signals.install_here, settings) as lazy,
        ):
            shared = SharedSession(lazy)
            several = SeveralJobs(
                [self._planned(job, shared) for job in self._jobs.jobs],
                self._stop,
                is_once=self._is_once,
                on_change=self._tell,
                is_over=shared.is_over,
            )
            with ExitStack() as reports:
                self._reports = [reports.enter_context(SeveralReport(address, several.states)) for address in addresses]
                with run_display(several.states, self._figures, is_wanted=shows_progress):
                    several.run()
        with until_pipe_closes():
            self._sum_up(several)
        return self._status(several, signals.number)

    def _planned(self, job: FileJob, shared: SharedSession) -> PlannedJob:
        from tidelog.spark.jobs.pools import SCHEDULED
        from tidelog.spark.jobs.schedule import Schedule
        from tidelog.spark.jobs.several import PlannedJob

        follows = job.can_follow and job.is_endless
        make_spark = shared.in_pool(None if follows else SCHEDULED)

        def work(stop: Stop) -> None:
            with hosted_by(JobHost(stop, make_spark, self._stop.is_set)):
                if job.run(is_once=self._is_once) == FAILED and not stop.is_set():
                    raise EnvironmentFault(f"some items failed: {self._last_error(job.row.name)}")

        return PlannedJob(job.row.name, Schedule(job.every_s, job.at_s), work, job.row.turn)

    # --- what is told ---------------------------------------------------------------------------------------------

    def _figures(self, job: str) -> dict[str, Any]:
        """What a job reported last."""
        for report in self._reports:
            if found := report.told.get(job):
                return dict(found)
        return {}

    def _figures_now(self, job: str) -> dict[str, Any]:
        """The same, asked at this moment."""
        for report in self._reports:
            if found := report.read(job):
                return dict(found)
        return {}

    def _last_error(self, job: str) -> str:
        return self._figures_now(job).get("last_error") or f"`tidelog pipeline {job}` alone lists them"

    def _tell(self, state: JobState) -> None:
        """A run has begun or ended. Nobody being there to read it stops the jobs, as it does with one."""
        is_begin = state.state == "running"
        with self._printing:
            if not self._output.as_json:
                if state.state == "failed":
                    pause_s = 0.0 if state.due_s is None else max(0.0, state.due_s - time.time())
                    then = "" if state.due_s is None else f"; trying again in {pause_s:.0f} s"
                    complain(f"{state.name} failed: {state.last_error}{then}")
                return
            is_heard = False
            with until_pipe_closes():
                members: dict[str, Any] = {"job": state.name}
                if is_begin:
                    self._output.object("began", {**members, "runs": state.runs})
                else:
                    members |= {"state": state.state, "error": state.last_error, **state.figures()}
                    figures = {name: json_value(value) for name, value in self._figures_now(state.name).items()}
                    self._output.object("ended", {**members, "figures": figures})
                sys.stdout.flush()
                is_heard = True
            if not is_heard:
                self._stop.because("nobody reads what it prints")

    def _sum_up(self, several: SeveralJobs) -> None:
        states = several.states
        if self._output.as_json:
            self._output.object(
                "summary",
                {
                    "jobs": len(states),
                    "failing": sum(state.is_failing for state in states),
                    "runs": sum(state.runs for state in states),
                    "failures": sum(state.failures for state in states),
                    "seconds": round(time.monotonic() - self._begun_s, 1),
                    "stopped": self._stop.reason or None,
                },
            )
            return
        rows: list[list[Cell]] = [
            [state.name, state.state, state.runs, state.failures, state.last_error] for state in states
        ]
        self._output.table(_COLUMNS, rows)

    def _status(self, several: SeveralJobs, signal_number: int) -> int:
        import signal

        if self._stop.reason.startswith("Spark has ended"):
            complain(self._stop.reason)
            return CANNOT
        if self._is_once and signal_number:
            complain(f"the jobs were stopped before their end: {self._stop.reason}")
            return {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}[signal.Signals(signal_number)]
        return FAILED if any(state.is_failing for state in several.states) else FINE
