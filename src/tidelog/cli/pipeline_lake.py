"""`tidelog pipeline lake`: Delta tables that are kept equal to what a server has and what changes there, on Spark."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog import limits
from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import guarded
from tidelog.cli.lake_options import Once, ShowsProgress, StorageOptions, To
from tidelog.cli.output import Cell, Column, Output
from tidelog.cli.pipeline_follow import Following
from tidelog.cli.pipeline_options import Conf, LeaseSeconds, Master, needs_spark
from tidelog.cli.server_link import find_address
from tidelog.cli.stream_options import Database, PasswordFile, Url

if TYPE_CHECKING:
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
kind "batch" (ts, lag_seconds, batches, rows, changes, ...) after each batch, then "summary".

The tables know how far they are, in the commits that add their rows: there is no checkpoint besides them, and a job
that was killed is just run again. One job at a time keeps a lake; HGETALL tidelog:pipeline:lake says how far it is.

Exit status: 0 if all went well, 2 if it cannot be done (no server, no Spark, a folder that is no lake, history that the
server no longer has), 3 if another job keeps this lake, 130 for Ctrl-C and 143 for SIGTERM with --once; stopped so,
--continuous is fine, and so it is when nobody reads what it prints any more. However it ends, it can be run again."""


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
    to: To,
    url: Url = URL_DEFAULT,
    prefix: Annotated[
        list[str] | None,
        typer.Option("--prefix", metavar="P", help="Only keys that begin like this; may be given again."),
    ] = None,
    once: Once = True,
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
    storage: StorageOptions = None,
    trigger_seconds: Annotated[
        float, typer.Option("--trigger-seconds", metavar="S", min=0, help="How often to look for more.")
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
    progress: ShowsProgress = True,
    form: Annotated[Form, typer.Option("--output", help="What is printed: text, or a JSON object a line.")] = Form.TEXT,
) -> int:
    """Keep Delta tables equal to a server: what changed, what holds, and what was appended to streams.

    Each change is there exactly once, however often the job is killed and run again.
    """
    address = find_address(url, password_file, database)
    output = Output(as_json=form is Form.JSON)
    following = Following("lake", output, is_once=once)
    with needs_spark():
        from tidelog.spark.lake.job import LakeJob, LakeOptions
        from tidelog.spark.lake.storage import find_storage
    options = LakeOptions(
        prefixes=tuple(prefix or ()),
        start=start.value,
        is_json=json_columns,
        is_once=once,
        batch_records=batch_records,
        trigger_s=trigger_seconds,
        is_compacting=compact,
        vacuum_hours=vacuum_hours,
        lease_ms=int(1000 * lease_seconds),
    )
    job = LakeJob(address, find_storage(to, storage or ()), options, lambda _taken: following.tell_batch(job.figures()))
    return following.run(job, address, master, conf, lambda: _sum_up(job, output, following), shows_progress=progress)


_SUMMARY: Final = ("batches", "changes", "entries", "bad", "passes", "files", "file_bytes", "files_compacted")


def _sum_up(job: LakeJob, output: Output, following: Following) -> None:
    figures = job.totals()
    if output.as_json:
        following.tell_summary(figures)
        return
    told: dict[str, Cell] = {name: int(figures[name] or 0) for name in _SUMMARY}
    told["seconds"] = f"{following.seconds:.1f}"
    output.table([Column(name.replace("_", " "), right=True) for name in told], [list(told.values())])
