"""`tidelog pipeline lake`: Delta tables that are kept equal to what a server has and what changes there, on Spark."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog import limits
from tidelog.cli.events_options import connected, find_location
from tidelog.cli.exits import BUSY, CANNOT, FINE, INTERRUPTED, TERMINATED, complain, guarded, until_pipe_closes
from tidelog.cli.output import Cell, Column, Output
from tidelog.cli.pipeline_options import Conf, LeaseSeconds, Master, spark_session, stopped_in_order
from tidelog.cli.server_link import URL_DEFAULT
from tidelog.cli.stream_options import Database, PasswordFile, Url
from tidelog.errors import EnvironmentFault

if TYPE_CHECKING:
    from tidelog.spark.lake.batches import Taken
    from tidelog.spark.lake.job import LakeJob

EPILOG: Final = """\
Examples:

  tidelog pipeline lake --to lake --once

  tidelog pipeline lake --url redis://10.0.0.5:6399 --to lake --prefix order: --prefix cart: --continuous

  tidelog pipeline lake --to lake --once --json --output json

  tidelog pipeline lake --to s3://bucket/lake --storage endpoint_url=http://127.0.0.1:9000 --storage key=K --storage
  secret=S --once

Tables below PATH: changes (each change once, by day), current (a row for each key and field that exists), entries (what
was appended to streams, by day), and with --json bad (what does not fit its columns, with the reason).

Note that --json is about the tables: members of JSON values become columns. What is printed is JSON with --output json:
kind "batch" (ts, lag_seconds, batches, rows, ...) after each batch, then "summary".

The tables know how far they are, in the commits that add their rows: there is no checkpoint besides them, and a job
that was killed is just run again. One job at a time keeps a lake; HGETALL tidelog:pipeline:lake says how far it is.

Exit status: 0 if all went well, 2 if it cannot be done (no server, no Spark, a folder that is no lake, history that the
server no longer has), 3 if another job keeps this lake, 130 for Ctrl-C, 143 for SIGTERM. However it ends, it can be run
again."""


class Start(StrEnum):
    """Where a new lake begins."""

    AUTO = "auto"
    EARLIEST = "earliest"
    INITIAL = "initial"
    LATEST = "latest"


class Form(StrEnum):
    """What is printed."""

    TEXT = "text"
    JSON = "json"


@guarded
def lake(
    to: Annotated[str, typer.Option("--to", metavar="PATH", help="A folder, or a URL such as s3://bucket/lake.")],
    url: Url = URL_DEFAULT,
    prefix: Annotated[
        list[str] | None,
        typer.Option("--prefix", metavar="P", help="Only keys that begin like this; may be given again."),
    ] = None,
    continuous: Annotated[
        bool,
        typer.Option("--continuous/--once", help="Stay and take what comes, or take what there is and end."),
    ] = False,
    start: Annotated[
        Start,
        typer.Option(
            "--start",
            help="Where a new lake begins: with all that the journal has, with the values of now, or now. auto: "
            "earliest if the journal goes back to the beginning, otherwise initial.",
        ),
    ] = Start.AUTO,
    json_columns: Annotated[
        bool, typer.Option("--json", help="Members of values and entries that are JSON objects become columns.")
    ] = False,
    storage: Annotated[
        list[str] | None,
        typer.Option(
            "--storage",
            metavar="NAME=VALUE",
            help="A setting of the object store: key, secret, token, endpoint_url, region, anon, or any name that "
            "delta-rs has; may be given again.",
        ),
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", metavar="S", min=0.0, help="With --continuous, seconds between two batches.")
    ] = limits.LAKE_TRIGGER_S,
    batch_records: Annotated[
        int, typer.Option("--batch-records", metavar="N", min=1, help="Of each shard that a batch takes, about.")
    ] = limits.LAKE_BATCH_RECORDS,
    compact: Annotated[bool, typer.Option("--compact/--no-compact", help="Put small files together.")] = True,
    vacuum_hours: Annotated[
        int | None,
        typer.Option(
            "--vacuum-hours",
            metavar="H",
            min=0,
            help=f"Remove files that no table has had for so long. [default: {limits.LAKE_VACUUM_HOURS}; those of "
            "current after a quarter of an hour]",
            show_default=False,
        ),
    ] = None,
    password_file: PasswordFile = None,
    database: Database = 0,
    master: Master = None,
    conf: Conf = None,
    lease_seconds: LeaseSeconds = limits.LEASE_MS_DEFAULT / 1000,
    progress: Annotated[
        bool, typer.Option("--progress/--no-progress", help="A live line, if stderr is a terminal.")
    ] = True,
    form: Annotated[Form, typer.Option("--output", help="What is printed: text, or a JSON object a line.")] = Form.TEXT,
) -> int:
    """Keep Delta tables equal to a server: what changed, what holds, and what was appended to streams.

    Each change is there exactly once, however often the job is killed and run again.
    """
    location = find_location(url, password_file, database)
    try:
        from tidelog.spark.lake.job import LakeJob, LakeOptions
        from tidelog.spark.lake.storage import find_storage
    except ModuleNotFoundError as error:
        raise EnvironmentFault(f"this needs {error.name}: pip install 'tidelog[spark]'") from None
    options = LakeOptions(
        prefixes=tuple(prefix or ()),
        start=start.value,
        is_json=json_columns,
        is_once=not continuous,
        batch_records=batch_records,
        trigger_s=interval,
        is_compacting=compact,
        vacuum_hours=vacuum_hours,
        lease_ms=int(1000 * lease_seconds),
    )
    output = Output(as_json=form is Form.JSON)

    def on_batch(_taken: Taken) -> None:
        if output.as_json:
            output.object("batch", _told(job))
            sys.stdout.flush()
        shown()

    job = LakeJob(location, find_storage(to, storage or ()), options, on_batch)
    with _live_line(job, is_wanted=progress) as shown:
        return _run(job, output, master, conf)


def _run(job: LakeJob, output: Output, master: str | None, conf: list[str] | None) -> int:
    from tidelog.spark.jobs.holding import JobRunning, Stop

    stop = Stop()
    begun = time.monotonic()
    with (
        stopped_in_order(stop) as signals,
        spark_session("tidelog lake", master, conf, signals.install) as spark,
        connected(job.location),
    ):
        try:
            job.run(spark, stop)
        except JobRunning as error:
            complain(str(error))
            return BUSY
    with until_pipe_closes():  # the status is known, whoever listens
        _sum_up(job, output, time.monotonic() - begun, stop.reason)
    if stop.is_set():
        complain(f"lake was stopped: {stop.reason}")
        statuses: dict[int, int] = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}
        return statuses.get(signals.number, CANNOT)
    return FINE


def _told(job: LakeJob) -> dict[str, Any]:
    return {name: value for name, value in job.figures().items() if value is not None}


_SUMMARY: Final = ("batches", "changes", "entries", "bad", "passes", "files", "file_bytes", "files_compacted")


def _sum_up(job: LakeJob, output: Output, seconds: float, reason: str) -> None:
    figures = job.figures()
    if output.as_json:
        output.object("summary", {"job": "lake", **_told(job), "seconds": round(seconds, 1), "stopped": reason or None})
        return
    told: dict[str, Cell] = {name: _cell(figures[name]) for name in _SUMMARY}
    told["changes/s"] = _cell(round(float(figures["rows_per_second"] or 0)))
    told["seconds"] = f"{seconds:.1f}"
    output.table([Column(name.replace("_", " "), right=True) for name in told], [list(told.values())])


def _cell(value: Any) -> Cell:
    return f"{value:.2f}" if isinstance(value, float) else value


@contextmanager
def _live_line(job: LakeJob, *, is_wanted: bool) -> Iterator[Callable[[], None]]:
    """On stderr: how much was taken, and how far behind it is."""
    if not (is_wanted and sys.stderr.isatty()):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("lake {task.fields[text]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, text="begins")

        def show() -> None:
            figures = job.figures()
            text = (
                f"{figures['rows']:,} rows, {figures['rows_per_second']:,.0f}/s, {figures['lag_seconds']:,.1f} s behind"
            )
            bar.update(task, text=text)

        yield show
