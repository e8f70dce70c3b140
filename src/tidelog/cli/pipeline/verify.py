"""`tidelog pipeline verify`: checks a journal as `tidelog journal verify` does, on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog import limits
from tidelog.cli.exits import guarded
from tidelog.cli.journal.folder import find_place
from tidelog.cli.journal.verify import tell
from tidelog.cli.options import AsJson, Conf, Master, ShowsBar
from tidelog.cli.output.progress_bar import ReportProgress, progress_bar
from tidelog.cli.output.stdout import Output
from tidelog.cli.pipeline.runner import JobRun
from tidelog.cli.pipeline.session import needs_spark
from tidelog.errors import ClientError

if TYPE_CHECKING:
    from tidelog.spark.jobs.lazy_session import LazySession
    from tidelog.spark.jobs.verify import Proof, Task

EPILOG: Final = """\
Examples:

  tidelog pipeline verify data

  tidelog pipeline verify /backups/2024-05-01 --master spark://10.0.0.9:7077

  tidelog pipeline verify s3://bucket/data --storage anon=true --json

Executors read the files themselves: on a cluster, DIR must exist on every machine, or be a URL that fsspec understands.
The report and its JSON are those of `tidelog journal verify`.

Exit status: 0 if the journal is sound, 1 if there is damage, 2 if DIR is not a journal, 130 for Ctrl-C, 143 for
SIGTERM."""


class _Stopped(Exception):
    """By a signal."""


@guarded
def verify(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="A data directory or a snapshot: a path, or a URL that fsspec understands.",
            show_default=False,
        ),
    ],
    storage: Annotated[
        list[str] | None,
        typer.Option("--storage", metavar="NAME=VALUE", help="An fsspec option for the URL; repeatable."),
    ] = None,
    frames: Annotated[
        int, typer.Option("--frames", metavar="N", min=1, help="How many frames a task checks.")
    ] = limits.SPARK_PARTITION_FRAMES,
    master: Master = None,
    conf: Conf = None,
    progress: ShowsBar = True,
    as_json: AsJson = False,
) -> int:
    """Check a whole journal in parallel: every checksum, mark, blob, lsn and transaction, and the snapshots."""
    with needs_spark():
        from tidelog.spark.jobs.verify import Proof, audit_in_parallel, prove_numbered
        from tidelog.spark.jobs.waves import Waves
        from tidelog.spark.remote_disk import disk_of
    options = dict(map(_option, storage or []))
    disk, path = disk_of(folder, options)
    place = find_place(disk, path)
    url = place.folder
    if "://" in folder:
        url = folder.rstrip("/").rpartition("/")[0] if place.is_shard else folder
    output = Output(as_json=as_json)
    run = JobRun("verify", output)
    reports = []

    def work(spark: LazySession, report_progress: ReportProgress | None) -> None:
        def run_tasks(tasks: Sequence[Task]) -> list[Proof]:
            proofs: dict[int, Proof] = {}

            def take(numbered: tuple[int, Proof]) -> None:
                proofs[numbered[0]] = numbered[1]
                if report_progress is not None:
                    report_progress("verifying", len(proofs), len(tasks))

            waves = Waves[tuple[int, "Task"], tuple[int, "Proof"]](
                spark(), run.stop, on_result=take, failed=lambda item, why: (item[0], Proof(problem=why))
            )
            numbered = list(enumerate(tasks))
            for start in range(0, len(numbered), limits.PIPELINE_WAVE_ITEMS):
                wave = numbered[start : start + limits.PIPELINE_WAVE_ITEMS]
                waves.run(wave, partial(prove_numbered, url=url, storage=options))
                if run.stop.is_set():
                    raise _Stopped
            return [proofs[number] for number in range(len(tasks))]

        with suppress(_Stopped):
            reports.append(audit_in_parallel(url, options, run_tasks, frames=frames))

    status = run.run(work, progress_bar(is_wanted=progress), lambda: None, master=master, conf=conf)
    return tell(output, reports[0], place) if reports else status


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ClientError(f"--storage {text!r} is not NAME=VALUE, such as anon=true")
    return name, value
