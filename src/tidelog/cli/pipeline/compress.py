"""`tidelog pipeline compress`: packs old days of job sets into batches, on Spark."""

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

  tidelog pipeline compress --older-than-days 2

  tidelog pipeline compress --url redis://10.0.0.5:6379 --older-than-days 2 --master spark://10.0.0.9:7077

  tidelog pipeline compress --older-than-days 2 --streams-per-hour 600 --bytes-per-second 20000000

  tidelog pipeline compress --older-than-days 2 --dry-run --json

Only one job that rewrites days runs at a time. `tidelog pipeline status` shows its progress, also after it has ended.

A day that would save less than --min-saving of its memory (MEMORY USAGE) is left hot. It is not tried again before it
has other entries, or a run has a smaller --min-saving. The ratio in the summary is that of memory.

JSON: kind "stream" (queue, jobset, day, outcome, events, batches, event_bytes, packed_bytes, memory_before_bytes,
memory_after_bytes, seconds, error), then "summary".

{EXITS}"""

_COLUMNS: Final = (Column("queue", 20), Column("jobset", 30), Column("day", 10))


@guarded
def compress(
    older_than_days: OlderThanDays,
    url: Url = URL_DEFAULT,
    password_file: PasswordFile = None,
    database: DatabaseNumber = 0,
    cluster: IsCluster = False,
    master: Master = None,
    conf: Conf = None,
    streams_per_hour: Annotated[
        float | None,
        typer.Option(
            "--streams-per-hour", metavar="N", min=0.001, help="Start at most this many days.", show_default=False
        ),
    ] = None,
    bytes_per_second: Annotated[
        float | None,
        typer.Option(
            "--bytes-per-second",
            metavar="N",
            min=1,
            help="The most that all tasks together read and write.",
            show_default=False,
        ),
    ] = None,
    min_saving: Annotated[
        float,
        typer.Option(
            "--min-saving",
            metavar="SHARE",
            max=1.0,
            help="Leave a day hot if compressing it would save less than this share of its memory.",
        ),
    ] = limits.DAYS_SAVING_MIN,
    lease_seconds: LeaseSeconds = limits.LEASE_MS_DEFAULT / 1000,
    only_list: DryRun = False,
    progress: ShowsBar = True,
    today: Today = None,
    as_json: AsJson = False,
) -> int:
    """Compress old days of job sets.

    The events of a day are packed into batches of up to 4 MB. The batches are read back and compared, and then replace
    the day in one step; readers go on without a gap. Messages that come later for a compressed day count as late.
    """
    address = find_address(url, password_file, database, is_cluster=cluster, takes_cluster=True)
    from tidelog.spark.jobs.compress import CompressJob
    from tidelog.spark.jobs.pace import Pace

    output = Output(as_json=as_json)
    job = CompressJob(address, older_than_days=older_than_days, today=read_today(today), saving_min=min_saving)
    if only_list:
        return dry_run(job, output, _COLUMNS, lambda item: (item.queue, item.jobset, item.day.isoformat()))
    return run_day_job(
        job,
        output,
        kind="stream",
        members=_members,
        master=master,
        conf=conf,
        pace=Pace(streams_per_hour, bytes_per_second),
        lease_seconds=lease_seconds,
        shows_progress=progress,
    )


def _members(done: Done) -> dict[str, Any]:
    sizes = {
        "day": done.days[0],
        "events": done.events,
        "batches": done.batches,
        "event_bytes": done.event_bytes,
        "packed_bytes": done.packed_bytes,
        "memory_before_bytes": done.memory_before_bytes,
        "memory_after_bytes": done.memory_after_bytes,
    }
    return plain_members(done, sizes)
