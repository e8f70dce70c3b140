"""What `tidelog pipeline compress` and `expire` share: both work through the days of job sets, item by item."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.exits import FAILED, FINE
from tidelog.cli.output.progress_bar import rich_progress
from tidelog.cli.output.stdout import Cell, Column, Output
from tidelog.cli.pipeline.runner import JobRun
from tidelog.cli.server_link import connected
from tidelog.errors import ClientError

if TYPE_CHECKING:
    from tidelog.spark.jobs.job import Done, Job
    from tidelog.spark.jobs.lazy_session import LazySession
    from tidelog.spark.jobs.pace import Pace

EXITS: Final = """\
Exit status: 0 if all went well, 1 if some items failed (the others are done), 2 if the job could not run (no server, no
Spark, a later job took over), 3 if another job is running, 130 for Ctrl-C, 143 for SIGTERM. However it ends, you can
run it again: finished items stay finished, and all others are unchanged."""

_FAILURES: Final = (Column("queue"), Column("jobset"), Column("days"), Column("error", style="red"))

DoneMembers = Callable[["Done"], dict[str, Any]]


def read_today(text: str | None) -> date:
    """Today in UTC, unless the option names another day."""
    if text is None:
        return datetime.now(UTC).date()
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ClientError(f"--today {text!r} is not a date such as 2024-05-01") from None


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


def run_day_job(
    job: Job[Any],
    output: Output,
    *,
    kind: str,
    members: DoneMembers,
    master: str | None,
    conf: list[str] | None,
    pace: Pace,
    lease_seconds: float,
    shows_progress: bool,
) -> int:
    """Run a job, and return its exit status. With JSON, each result is an object of this kind with these members."""
    from tidelog.spark.jobs.job import run_job

    run = JobRun(job.name, output)

    def work(spark: LazySession, bar: _DayBar | None) -> None:
        def on_result(done: Done) -> None:
            if output.as_json:
                output.object(kind, members(done))
                sys.stdout.flush()
            if bar is not None:
                bar.move()

        def on_found(count: int, is_all: bool) -> None:
            if bar is not None:
                bar.found(count, is_all)

        lease_ms = int(1000 * lease_seconds)
        run_job(job, spark, run.stop, pace=pace, lease_ms=lease_ms, on_result=on_result, on_found=on_found)

    status = run.run(
        work,
        _day_bar(job, is_wanted=shows_progress),
        lambda: _sum_up(job, output, run),
        master=master,
        conf=conf,
        address=job.address,
    )
    return FAILED if status == FINE and job.total.failed else status


def _sum_up(job: Job[Any], output: Output, run: JobRun) -> None:
    total, figures = job.total, job.figures()
    if output.as_json:
        run.tell_summary({"job": job.name, **figures, "last_error": total.last_error})
        return
    figures = {**figures, "seconds": round(run.seconds, 1)}
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


class _DayBar:
    """A line on stderr: how many items are done, how many there are once that is known, and how much was read and
    written."""

    def __init__(self, job: Job[Any], bar: Any) -> None:
        self._job = job
        self._bar = bar
        self._task = bar.add_task(job.name, total=None, text="")
        self._begun: float | None = None

    def found(self, count: int, is_all: bool) -> None:
        self._begun = self._begun or time.monotonic()  # Spark has started, and the work begins
        if is_all:  # the number of items is known only when SCAN has gone round
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
def _day_bar(job: Job[Any], *, is_wanted: bool) -> Iterator[_DayBar | None]:
    def columns() -> list[Any]:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        description, text = TextColumn("{task.description}"), TextColumn("{task.fields[text]}")
        return [description, BarColumn(), text, TimeElapsedColumn(), TimeRemainingColumn()]

    with rich_progress(columns, is_wanted=is_wanted) as bar:
        yield None if bar is None else _DayBar(job, bar)


def plain_members(done: Done, names: Mapping[str, Any]) -> dict[str, Any]:
    """The members that every result has in JSON, and those of its own."""
    return {
        "queue": done.queue,
        "jobset": done.jobset,
        **names,
        "outcome": done.outcome,
        "seconds": round(done.seconds, 3),
        "error": done.error,
    }
