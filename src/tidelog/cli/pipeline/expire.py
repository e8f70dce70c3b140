"""`tidelog pipeline expire`: removes old days of job sets, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog import limits
from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import guarded
from tidelog.cli.options import (
    AsJson,
    Conf,
    DatabaseNumber,
    DryRun,
    IsCluster,
    LeaseSeconds,
    Master,
    OlderThanDays,
    PasswordFile,
    ShowsBar,
    Today,
    Url,
)
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.pipeline.day_jobs import EXITS, dry_run, plain_members, read_today, run_day_job
from tidelog.cli.server_link import find_address

if TYPE_CHECKING:
    from tidelog.spark.jobs.job import Done

EPILOG: Final = f"""\
Examples:

  tidelog pipeline expire --older-than-days 30

  tidelog pipeline expire --url redis://10.0.0.5:6379 --older-than-days 30 --dry-run

A reader that has not read all of a removed day gets an error. Only one job that rewrites days runs at a time; `tidelog
pipeline status` shows its progress.

JSON: kind "jobset" (queue, jobset, days, outcome, seconds, error), then "summary".

{EXITS}"""

_COLUMNS: Final = (Column("queue", 20), Column("jobset", 30), Column("days"))


@guarded
def expire(
    older_than_days: OlderThanDays,
    url: Url = URL_DEFAULT,
    password_file: PasswordFile = None,
    database: DatabaseNumber = 0,
    cluster: IsCluster = False,
    master: Master = None,
    conf: Conf = None,
    jobsets_per_hour: Annotated[
        float | None,
        typer.Option(
            "--jobsets-per-hour", metavar="N", min=0.001, help="Start at most this many job sets.", show_default=False
        ),
    ] = None,
    lease_seconds: LeaseSeconds = limits.LEASE_MS_DEFAULT / 1000,
    only_list: DryRun = False,
    progress: ShowsBar = True,
    today: Today = None,
    as_json: AsJson = False,
) -> int:
    """Remove old days of job sets, compressed or not, and late messages of the same age."""
    address = find_address(url, password_file, database, is_cluster=cluster, takes_cluster=True)
    from tidelog.spark.jobs.expire import ExpireJob
    from tidelog.spark.jobs.pace import Pace

    output = Output(as_json=as_json)
    job = ExpireJob(address, older_than_days=older_than_days, today=read_today(today))
    if only_list:
        return dry_run(job, output, _COLUMNS, lambda item: (item.queue, item.jobset, ", ".join(map(str, item.days))))
    return run_day_job(
        job,
        output,
        kind="jobset",
        members=_members,
        master=master,
        conf=conf,
        pace=Pace(jobsets_per_hour),
        lease_seconds=lease_seconds,
        shows_progress=progress,
    )


def _members(done: Done) -> dict[str, Any]:
    return plain_members(done, {"days": list(done.days)})
