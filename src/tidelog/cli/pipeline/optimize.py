"""`tidelog pipeline optimize`: puts files of a lake together and sorts them by key, on Spark, and removes old ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog import limits
from tidelog.cli.exits import FAILED, FINE, guarded
from tidelog.cli.options import AsJson, Conf, DryRun, Master, ShowsBar, StorageOptions, To
from tidelog.cli.output.progress_bar import ReportProgress, progress_bar
from tidelog.cli.output.stdout import Cell, Column, Output
from tidelog.cli.pipeline.runner import JobRun
from tidelog.cli.pipeline.session import LIGHT, needs_spark
from tidelog.errors import ClientError

if TYPE_CHECKING:
    from tidelog.spark.jobs.lazy_session import LazySession
    from tidelog.spark.lake.optimize import OptimizeJob

EPILOG: Final = """\
Examples:

  tidelog pipeline optimize --to lake

  tidelog pipeline optimize --to lake --table changes --table entries --keep 30d

  tidelog pipeline optimize --to lake --dry-run --json

  tidelog pipeline optimize --to s3://bucket/lake --storage endpoint_url=http://127.0.0.1:9000

Small files of a day, or of a bucket of the table current, are put together, and the rows of each file are sorted by
key: who asks for one key then reads a small part of each file. The rows of a table stay the same. A table in which all
files are in order is left alone.

It may run while `tidelog pipeline lake` writes the same lake. Files that the other job replaces first are skipped.

JSON: kind "table" (table, files_before, files, size_before_bytes, size_bytes, to_rewrite, rewritten, skipped, failed,
vacuumed, seconds), then "summary".

Exit status: 0 if all went well, 1 if some files could not be written anew (the others were), 2 if the job could not
run (no lake, no Spark), 130 for Ctrl-C, 143 for SIGTERM. However it ends, the tables are whole, and you can run it
again."""

_HOUR_MS: Final = 3_600_000


@guarded
def optimize(
    to: To,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="NAME",
            help="Only this table: changes, current, entries or bad; repeatable.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep",
            metavar="AGE",
            help="Remove files that no table has used for this long, such as 12h or 30d; at least an hour. "
            "[default: 7d; for the table current: a quarter of an hour]",
            show_default=False,
        ),
    ] = None,
    storage: StorageOptions = None,
    master: Master = None,
    conf: Conf = None,
    only_list: DryRun = False,
    progress: ShowsBar = True,
    as_json: AsJson = False,
) -> int:
    """Make a lake fast to read: few large files, sorted by key, and no old ones.

    It can run at any time, beside the job that writes the lake.
    """
    keep_hours = None if keep is None else _hours(keep)
    output = Output(as_json=as_json)
    with needs_spark():
        from tidelog.spark.delta.storage import find_storage
        from tidelog.spark.lake.optimize import OptimizeJob
    job = OptimizeJob(find_storage(to, storage or ()), table or (), keep_hours)
    run = JobRun("optimize", output)
    if only_list:
        job.plan()
        _sum_up(job, output, run, is_dry=True)
        return FINE

    def work(spark: LazySession, report: ReportProgress | None) -> None:
        job.run(spark, run.stop, *([report] if report else []))

    status = run.run(
        work,
        progress_bar(is_wanted=progress),
        lambda: _sum_up(job, output, run),
        master=master,
        conf=conf,
        settings=LIGHT,
    )
    return FAILED if status == FINE and job.failed else status


def _hours(text: str) -> int:
    from tidelog.channels.settings_table import duration_ms  # late: it imports asyncio

    ms = duration_ms(text)
    if ms is None or ms % _HOUR_MS or ms < limits.LAKE_KEEP_HOURS_MIN * _HOUR_MS:
        raise ClientError(f"--keep {text!r}: give whole hours or days, such as 12h or 30d, and at least an hour")
    return ms // _HOUR_MS


_COLUMNS: Final = {
    "table": "table",
    "files before": "files_before",
    "files": "files",
    "MB before": "size_before_bytes",
    "MB": "size_bytes",
    "to rewrite": "to_rewrite",
    "rewritten": "rewritten",
    "skipped": "skipped",
    "failed": "failed",
    "vacuumed": "vacuumed",
    "seconds": "seconds",
}


def _sum_up(job: OptimizeJob, output: Output, run: JobRun, *, is_dry: bool = False) -> None:
    rows: list[dict[str, Any]] = [vars(each) for each in job.totals]
    if output.as_json:
        for row in rows:
            output.object("table", dict(row))
        counts = {
            name: sum(row[name] for row in rows)
            for name in ("to_rewrite", "rewritten", "skipped", "failed", "vacuumed")
        }
        run.tell_summary({"dry_run": is_dry, "tables": len(rows), **counts, "last_error": job.last_error})
        return
    columns = [Column(title, right=title != "table") for title in _COLUMNS]
    output.table(columns, [[_cell(name, row[name]) for name in _COLUMNS.values()] for row in rows])
    if is_dry:
        output.line("nothing was changed")
    if job.last_error is not None:
        output.line(f"the last error: {job.last_error}")


def _cell(name: str, value: Any) -> Cell:
    if name.endswith("_bytes"):
        return f"{value / 1e6:.1f}"
    return f"{value:.1f}" if isinstance(value, float) else value
