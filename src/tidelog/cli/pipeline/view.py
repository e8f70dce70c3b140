"""`tidelog pipeline view`: keeps views that are declared in SQL up to date, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog import limits
from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import guarded
from tidelog.cli.options import (
    AsJson,
    BatchRecords,
    Conf,
    DatabaseNumber,
    FromFollowers,
    LeaseSeconds,
    Master,
    Once,
    PasswordFile,
    ShowsLine,
    StorageOptions,
    To,
    TriggerSeconds,
    Url,
)
from tidelog.cli.output.live_line import live_line
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.pipeline.runner import JobRun
from tidelog.cli.pipeline.session import LIGHT, STEADY, needs_spark
from tidelog.cli.server_link import find_address
from tidelog.keys import VIEW_JOB_PREFIX

if TYPE_CHECKING:
    from tidelog.spark.views.dataflow.job import ViewJob

EPILOG: Final = """\
Examples:

  tidelog pipeline view --file views.toml --to lake --once

  tidelog pipeline view --file views.toml --to lake --continuous

  tidelog pipeline view --url redis://10.0.0.5:6399 --file views.toml --to s3://bucket/lake --continuous

The file:

  [views.orders_by_state]

  source = "prefix:order:"        # or "stream:KEY", "days:QUEUE/JOBSET"

  sql = "select state, count(*) as n, sum(cast(amount as double)) as total from source group by state"

  key = ["state"]                 # these columns name a row: its hash is view:orders_by_state:<state>

Each row of a view is a hash on the server and a row of the Delta table PATH/views/orders_by_state. Applications read it
with HGETALL view:orders_by_state:open, and follow changes with CHANGEFEED PREFIX view:. If the definition of a view
changes, the view is built again, and replaces the old one once it is complete. `tidelog view check` recomputes views
and compares.

JSON: kind "view" (view, version, source_rows, view_rows, ts) for each view, then "summary" (batches, rows, changed,
seconds, stopped).

Exit status: 0 if all went well, 2 if the job could not run (no server, no Spark, a view that cannot be kept up to
date), 3 if another job keeps these views, 130 for Ctrl-C and 143 for SIGTERM. With --continuous, the status is 0 if a
signal stopped the job. However it ends, you can run it again."""

_COLUMNS: Final = (
    Column("view", style="bold"),
    Column("version", right=True),
    Column("rows", right=True),
    Column("source rows", right=True),
    Column("source"),
)


@guarded
def view(
    file: Annotated[
        str, typer.Option("--file", metavar="FILE", help="The TOML file that declares the views.", show_default=False)
    ],
    to: To,
    url: Url = URL_DEFAULT,
    password_file: PasswordFile = None,
    database: DatabaseNumber = 0,
    from_followers: FromFollowers = False,
    once: Once = True,
    storage: StorageOptions = None,
    master: Master = None,
    conf: Conf = None,
    batch_records: BatchRecords = limits.VIEW_BATCH_RECORDS,
    trigger_seconds: TriggerSeconds = limits.VIEW_TRIGGER_S,
    buckets: Annotated[
        int | None,
        typer.Option(
            "--buckets",
            min=1,
            max=limits.VIEW_BUCKETS_MAX,
            metavar="N",
            help="Divide the state of views that are built into so many buckets (default: as the source is large).",
            show_default=False,
        ),
    ] = None,
    lease_seconds: LeaseSeconds = limits.LEASE_MS_DEFAULT / 1000,
    progress: ShowsLine = True,
    as_json: AsJson = False,
) -> int:
    """Keep views that are declared in SQL up to date, as hashes on the server and as tables of the lake."""
    address = find_address(url, password_file, database)
    output = Output(as_json=as_json)
    run = JobRun("view", output, is_endless=not once)
    with needs_spark():
        from tidelog.spark.delta.storage import find_storage
        from tidelog.spark.views.dataflow.job import ViewJob, ViewOptions
        from tidelog.spark.views.sql.definition import read_views
    options = ViewOptions(once, batch_records, trigger_seconds, int(1000 * lease_seconds), from_followers, buckets)
    job = ViewJob(address, find_storage(to, storage or ()), read_views(file), options)
    return run.run(
        lambda spark, _line: job.run(spark, run.stop),
        live_line("view", job.told, is_wanted=progress),
        lambda: _sum_up(job, output, run),
        master=master,
        conf=conf,
        settings=LIGHT if once else STEADY,
        address=address,
    )


def _sum_up(job: ViewJob, output: Output, run: JobRun) -> None:
    parts: dict[str, Any] = {name.removeprefix(VIEW_JOB_PREFIX): dict(figures) for name, figures in job.parts().items()}
    figures = job.totals()
    if output.as_json:
        for name, each in parts.items():
            output.object("view", {"view": name, **each})
        run.tell_summary(figures)
        return
    names = ("version", "view_rows", "source_rows", "source")
    output.table(_COLUMNS, [[name, *(each[figure] for figure in names)] for name, each in parts.items()])
    output.line(
        f"{figures['rows']} changed rows in {figures['batches']} batches, {figures['changed']} rows of views changed, "
        f"{run.seconds:.1f} s"
    )
