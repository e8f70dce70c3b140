"""What `tidelog pipeline compress` and `expire` share: running a job, showing how far it is, and summing it up."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.exits import BUSY, CANNOT, FAILED, FINE, INTERRUPTED, TERMINATED, complain, until_pipe_closes
from tidelog.cli.output import Cell, Column, Output
from tidelog.cli.pipeline_options import spark_session, stopped_in_order
from tidelog.cli.server_link import connected

if TYPE_CHECKING:
    from tidelog.spark.jobs.job import Done, Job
    from tidelog.spark.jobs.pace import Pace

EXITS: Final = """\
Exit status: 0 if all went well, 1 if some failed (the others are done), 2 if it cannot be done (no server, no Spark, a
later job took over), 3 if another job is running, 130 for Ctrl-C, 143 for SIGTERM. However it ends, it can be run
again: what is done is done, and what is not is as it was."""

_FAILURES: Final = (Column("queue"), Column("jobset"), Column("days"), Column("error", style="red"))

Members = Callable[["Done"], dict[str, Any]]


def dry_run(job: Job[Any], output: Output, columns: Sequence[Column], row: Callable[[Any], Sequence[Cell]]) -> int:
    """List what the job would work on."""
    count = 0
    with connected(job.address) as server:
        if not output.as_json:
            output.header(columns)
        for item in job.find(server):
            count += 1
            cells = row(item)
            if output.as_json:
                output.object("found", dict(zip((column.title for column in columns), cells, strict=True)))
            else:
                output.row(columns, cells)
    if output.as_json:
        output.object("summary", {"job": job.name, "dry_run": True, "found": count})
    else:
        output.line(f"{count} to {job.name}; nothing was changed")
    return FINE


def run(
    job: Job[Any],
    output: Output,
    *,
    kind: str,
    members: Members,
    master: str | None,
    conf: list[str] | None,
    pace: Pace,
    lease_seconds: float,
    show_progress: bool,
) -> int:
    """Run a job, and return its exit status."""
    from tidelog.spark.jobs.holding import JobRunning, Stop
    from tidelog.spark.jobs.job import run_job

    stop = Stop()
    begun = time.monotonic()

    def on_result(done: Done) -> None:
        if output.as_json:
            output.object(kind, members(done))
            sys.stdout.flush()
        shown.move()

    with (
        stopped_in_order(stop) as signals,
        spark_session(f"tidelog {job.name}", master, conf, signals.install) as spark,
        _progress(job, is_wanted=show_progress) as shown,
        connected(job.address),
    ):
        try:
            run_job(
                job,
                spark,
                stop,
                pace=pace,
                lease_ms=int(1000 * lease_seconds),
                on_result=on_result,
                on_found=shown.found,
            )
        except JobRunning as error:
            complain(str(error))
            return BUSY
    seconds = time.monotonic() - begun
    with until_pipe_closes():  # the status is known, whoever listens
        _sum_up(job, output, seconds, stop.reason)
    if stop.is_set():
        complain(f"{job.name} was stopped before its end: {stop.reason}")
        statuses: dict[int, int] = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}
        return statuses.get(signals.number, CANNOT)
    return FAILED if job.total.failed else FINE


def _sum_up(job: Job[Any], output: Output, seconds: float, reason: str) -> None:
    figures = {**job.figures(), "seconds": round(seconds, 1)}
    total = job.total
    if output.as_json:
        output.object(
            "summary", {"job": job.name, **figures, "stopped": reason or None, "last_error": total.last_error}
        )
        return
    columns = [Column(name.replace("_", " "), right=True) for name in figures]
    output.table(columns, [[_cell(value) for value in figures.values()]])
    if total.failures:
        output.line()
        output.table(
            _FAILURES, [(each.queue, each.jobset, ", ".join(each.days), each.error) for each in total.failures]
        )
        if total.failed > len(total.failures):
            output.line(f"and {total.failed - len(total.failures)} more")


def _cell(value: Any) -> Cell:
    return f"{value:.2f}" if isinstance(value, float) else value


class _Shown:
    """Nothing is shown: nobody would see it."""

    def found(self, _count: int, _is_all: bool) -> None:
        return None

    def move(self) -> None:
        return None


class _Bar(_Shown):
    """A line on stderr: how many are done, how many there are if that is known, and how much was read and written."""

    def __init__(self, job: Job[Any], bar: Any) -> None:
        self._job = job
        self._bar = bar
        self._task = bar.add_task(job.name, total=None, text="")
        self._begun: float | None = None

    def found(self, count: int, is_all: bool) -> None:
        self._begun = self._begun or time.monotonic()  # when Spark is there, and work begins
        if is_all:  # how many there are is known only when SCAN has gone round
            self._bar.update(self._task, total=count)

    def move(self) -> None:
        total = self._job.total
        text = f"{total.seen:,} done"
        if total.event_bytes and self._begun is not None:
            rate = total.event_bytes / (time.monotonic() - self._begun) / 1e6
            text += f", {total.event_bytes / 1e6:,.1f} MB -> {total.packed_bytes / 1e6:,.1f} MB, {rate:,.1f} MB/s"
        if total.failed:
            text += f", {total.failed:,} failed"
        self._bar.update(self._task, completed=total.seen, text=text)


@contextmanager
def _progress(job: Job[Any], *, is_wanted: bool) -> Iterator[_Shown]:
    if not (is_wanted and sys.stderr.isatty()):
        yield _Shown()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    # Rich would print on the terminal what we write to stdout, also where that is a file.
    redirect = sys.stdout.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=redirect) as bar:
        yield _Bar(job, bar)


def plain_members(done: Done, names: Mapping[str, Any]) -> dict[str, Any]:
    """The members that every result has in JSON, with those of its own."""
    return {
        "queue": done.queue,
        "jobset": done.jobset,
        **names,
        "outcome": done.outcome,
        "seconds": round(done.seconds, 3),
        "error": done.error,
    }
