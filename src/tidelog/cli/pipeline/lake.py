"""`tidelog pipeline lake`: keeps Delta tables up to date with a server, on Spark."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog import limits
from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import guarded
from tidelog.cli.options import (
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
from tidelog.cli.output.stdout import Cell, Column, Output
from tidelog.cli.pipeline.runner import JobRun
from tidelog.cli.pipeline.session import LIGHT, STEADY, needs_spark
from tidelog.cli.server_link import find_address
from tidelog.cli.ship_options import CopyKeyFile
from tidelog.errors import ClientError

if TYPE_CHECKING:
    from tidelog.spark.lake.job import LakeJob
    from tidelog.spark.source.feed.origin import FeedOrigin

EPILOG: Final = """\
Examples:

  tidelog pipeline lake --to lake --once

  tidelog pipeline lake --url redis://10.0.0.5:6399 --to lake --prefix order: --prefix cart: --continuous

  tidelog pipeline lake --to lake --once --json --output json

  tidelog pipeline lake --to s3://bucket/lake --storage endpoint_url=http://127.0.0.1:9000 --storage key=K --storage
  secret=S --once

  tidelog pipeline lake --from s3://bucket/tidelog --to lake --once

The tables below PATH are: changes (every change, by day), current (a row for each key and field that exists), entries
(what was appended to streams, by day), and with --json bad (values that do not fit their columns, with the reason).

The option --json changes the tables, not the output: members of JSON values become columns. With --output json, the
command prints kind "batch" (ts, lag_seconds, batches, rows, changes, ...) after each batch, then "summary".

Each commit to a table also records how far the table is. So there is no separate checkpoint: after a job was killed,
just run it again. Only one job at a time writes a lake; `tidelog pipeline status lake` shows its progress.

Exit status: 0 if all went well, 2 if the job could not run (no server, no Spark, a folder that is not a lake, history
that the server no longer has), 3 if another job writes this lake, 130 for Ctrl-C and 143 for SIGTERM. With
--continuous, the status is 0 if a signal stopped the job, or if the reader of its output went away. However it ends,
you can run it again."""


class LakeStart(StrEnum):
    """Where a new lake begins."""

    AUTO = "auto"
    EARLIEST = "earliest"
    INITIAL = "initial"
    LATEST = "latest"


class PrintedForm(StrEnum):
    """What is printed."""

    TEXT = "text"
    JSON = "json"


@guarded
def lake(
    to: To,
    url: Url = URL_DEFAULT,
    prefix: Annotated[
        list[str] | None,
        typer.Option("--prefix", metavar="P", help="Only take keys with this prefix; repeatable."),
    ] = None,
    once: Once = True,
    start: Annotated[
        LakeStart,
        typer.Option(
            "--start",
            help="Where a new lake starts. earliest: with all changes in the journal; initial: with the current "
            "values; latest: with the next change; auto: earliest if the journal is complete, otherwise initial.",
        ),
    ] = LakeStart.AUTO,
    json_columns: Annotated[
        bool, typer.Option("--json", help="Turn the members of JSON objects in values and entries into columns.")
    ] = False,
    storage: StorageOptions = None,
    trigger_seconds: TriggerSeconds = limits.LAKE_TRIGGER_S,
    batch_records: BatchRecords = limits.LAKE_BATCH_RECORDS,
    compact: Annotated[bool, typer.Option("--compact/--no-compact", help="Merge small files.")] = True,
    vacuum_hours: Annotated[
        int | None,
        typer.Option(
            "--vacuum-hours",
            metavar="H",
            min=0,
            help="Remove files that no table has used for this long. "
            f"[default: {limits.LAKE_VACUUM_HOURS}; for the table current: a quarter of an hour]",
            show_default=False,
        ),
    ] = None,
    password_file: PasswordFile = None,
    database: DatabaseNumber = 0,
    from_followers: FromFollowers = False,
    copy_url: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="Read a copy in an object store (--ship-to) instead of a server: s3://, gs://, az://, or the path of "
            "a folder.",
            show_default=False,
        ),
    ] = None,
    database_id: Annotated[
        str | None,
        typer.Option("--database-id", metavar="ID", help="Which database of the copy, if there are several."),
    ] = None,
    ship_key_file: CopyKeyFile = None,
    master: Master = None,
    conf: Conf = None,
    lease_seconds: LeaseSeconds = limits.LEASE_MS_DEFAULT / 1000,
    progress: ShowsLine = True,
    form: Annotated[
        PrintedForm, typer.Option("--output", help="Print text, or one JSON object a line.")
    ] = PrintedForm.TEXT,
) -> int:
    """Keep Delta tables up to date with a server: its changes, its current values, and the entries of its streams.

    The tables have each change exactly once, however often the job is killed and run again.
    """
    copy = None
    if copy_url is not None:
        if url != URL_DEFAULT or password_file is not None or from_followers:
            raise ClientError(
                "--from reads a copy and no server: give it without --url, --password-file, --from-followers"
            )
        copy = _open_copy(copy_url, database_id, ship_key_file, database)
    elif database_id is not None or ship_key_file is not None:
        raise ClientError("--database-id and --ship-key-file are about a copy: name it with --from")
    address = find_address(url, password_file, database)
    output = Output(as_json=form is PrintedForm.JSON)
    run = JobRun("lake", output, is_endless=not once)
    with needs_spark():
        from tidelog.spark.delta.storage import find_storage
        from tidelog.spark.lake.job import LakeJob, LakeOptions
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
        from_followers=from_followers,
    )
    place = find_storage(to, storage or ())
    job = LakeJob(address, place, options, lambda _taken: run.tell_batch(job.figures()), copy)
    return run.run(
        lambda spark, _line: job.run(spark, run.stop),
        live_line("lake", job.told, is_wanted=progress),
        lambda: _sum_up(job, output, run),
        master=master,
        conf=conf,
        settings=LIGHT if once else STEADY,
        address=address if copy is None else None,
    )


def _open_copy(url: str, database_id: str | None, key_file: str | None, database: int) -> FeedOrigin:
    with needs_spark():
        from tidelog.spark.source.feed.shipped import CopyPlace, find_copy
    return find_copy(CopyPlace(url, {}, database_id, key_file, database))


_SUMMARY: Final = ("batches", "changes", "entries", "bad", "passes", "files", "file_bytes", "files_compacted")


def _sum_up(job: LakeJob, output: Output, run: JobRun) -> None:
    figures = job.totals()
    if output.as_json:
        run.tell_summary(figures)
        return
    told: dict[str, Cell] = {name: int(figures[name] or 0) for name in _SUMMARY}
    told["seconds"] = f"{run.seconds:.1f}"
    output.table([Column(name.replace("_", " "), right=True) for name in told], [list(told.values())])
