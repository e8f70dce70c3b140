"""`tidelog pipeline verify`: checks a journal as `tidelog journal verify` does, or a copy of one, on Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

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
from tidelog.cli.pipeline.verified_copy import tell_copy
from tidelog.cli.ship_options import CopyKeyFile, DatabaseId
from tidelog.errors import ClientError

if TYPE_CHECKING:
    from tidelog.journal.verify import VerifyReport
    from tidelog.spark.copies.address import HistoryAddress
    from tidelog.spark.jobs.lazy_session import LazySession
    from tidelog.spark.jobs.verify import Proof, Task
    from tidelog.spark.jobs.verify_copy import CopyProof, CopyReport, CopyTask

EPILOG: Final = """\
Examples:

  tidelog pipeline verify data

  tidelog pipeline verify /backups/2024-05-01 --master spark://10.0.0.9:7077

  tidelog pipeline verify s3://bucket/data --storage anon=true --json

  tidelog pipeline verify s3://bucket/copy

Executors read the files themselves: on a cluster, DIR must exist on every machine, or be a URL that fsspec understands.
The report and its JSON are those of `tidelog journal verify`; for a copy, there is a row for each lineage: the files of
one server.

Exit status: 0 if the journal is sound, 1 if there is damage, 2 if there is neither a journal nor a copy, 130 for
Ctrl-C, 143 for SIGTERM."""


class _Stopped(Exception):
    """By a signal."""


@guarded
def verify(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR|URL",
            help="A data directory or a snapshot: a path, or a URL that fsspec understands. Or a copy (--ship-to): "
            "s3://, gs://, az://, or the path of a folder.",
            show_default=False,
        ),
    ],
    storage: Annotated[
        list[str] | None,
        typer.Option(
            "--storage",
            metavar="NAME=VALUE",
            help="An option for the URL (of fsspec, or of obstore for a copy); repeatable.",
        ),
    ] = None,
    frames: Annotated[
        int, typer.Option("--frames", metavar="N", min=1, help="How many frames a task checks.")
    ] = limits.SPARK_PARTITION_FRAMES,
    database: DatabaseId = None,
    ship_key_file: CopyKeyFile = None,
    master: Master = None,
    conf: Conf = None,
    progress: ShowsBar = True,
    as_json: AsJson = False,
) -> int:
    """Check a whole journal, or a copy of one, in parallel: every checksum, mark, blob and lsn, and the snapshots.

    Of a copy in an object store, also every manifest, and every object with its size and digest.
    """
    with needs_spark():
        from tidelog.spark.copies.address import HistoryAddress, find_history
        from tidelog.spark.remote_disk import disk_of
    options = dict(map(_option, storage or []))
    output = Output(as_json=as_json)
    work = _Verifying(JobRun("verify", output), frames)
    copy = find_history(folder, options, database, ship_key_file)
    if copy.is_copy:
        found: list[CopyReport] = []
        status = work.run(lambda: found.append(work.audit_copy(copy)), progress, master, conf)
        return tell_copy(output, found[0], folder) if found else status
    disk, path = disk_of(folder, options)
    place = find_place(disk, path)
    url = place.folder
    if "://" in folder:
        url = folder.rstrip("/").rpartition("/")[0] if place.is_shard else folder
    address = HistoryAddress(url, options)
    reports: list[VerifyReport] = []
    status = work.run(lambda: reports.append(work.audit(address)), progress, master, conf)
    return tell(output, reports[0], place) if reports else status


class _Verifying:
    """Runs the tasks of an audit on Spark."""

    def __init__(self, run: JobRun, frames: int) -> None:
        self._run = run
        self._frames = frames
        self._spark: LazySession | None = None
        self._report_progress: ReportProgress | None = None

    def run(self, audit: Callable[[], object], is_shown: bool, master: str | None, conf: list[str] | None) -> int:
        def work(spark: LazySession, report_progress: ReportProgress | None) -> None:
            self._spark, self._report_progress = spark, report_progress
            with suppress(_Stopped):
                audit()

        return self._run.run(work, progress_bar(is_wanted=is_shown), lambda: None, master=master, conf=conf)

    def audit(self, address: HistoryAddress, lineage: str = "") -> VerifyReport:
        from tidelog.spark.jobs.verify import audit_in_parallel

        run_tasks = partial(self._run_lineage, address, lineage)
        return audit_in_parallel(address, run_tasks, lineage=lineage, frames=self._frames)

    def audit_copy(self, address: HistoryAddress) -> CopyReport:
        from tidelog.spark.jobs.verify_copy import CopyProof, Damage, audit_copy, prove_copy_numbered

        def run_tasks(tasks: Sequence[CopyTask]) -> list[CopyProof]:
            prove = partial(prove_copy_numbered, address=address)
            return self._run_all(tasks, prove, lambda why: CopyProof((Damage("a task", why),)), "objects")

        return audit_copy(address, run_tasks, partial(self._run_lineage, address), frames=self._frames)

    def _run_lineage(self, address: HistoryAddress, lineage: str, tasks: Sequence[Task]) -> list[Proof]:
        from tidelog.spark.jobs.verify import Proof, prove_numbered

        prove = partial(prove_numbered, address=address, lineage=lineage)
        return self._run_all(tasks, prove, lambda why: Proof(problem=why), "verifying")

    def _run_all(
        self,
        tasks: Sequence[Any],
        prove: Callable[[tuple[int, Any]], tuple[int, Any]],
        failed: Callable[[str], Any],
        what: str,
    ) -> list[Any]:
        """The proofs, in the order of the tasks."""
        from tidelog.spark.jobs.waves import Waves

        proofs: dict[int, Any] = {}

        def take(numbered: tuple[int, Any]) -> None:
            proofs[numbered[0]] = numbered[1]
            if self._report_progress is not None:
                self._report_progress(what, len(proofs), len(tasks))

        assert self._spark is not None
        waves = Waves[tuple[int, Any], tuple[int, Any]](
            self._spark(), self._run.stop, on_result=take, failed=lambda item, why: (item[0], failed(why))
        )
        numbered = list(enumerate(tasks))
        for start in range(0, len(numbered), limits.PIPELINE_WAVE_ITEMS):
            waves.run(numbered[start : start + limits.PIPELINE_WAVE_ITEMS], prove)
            if self._run.stop.is_set():
                raise _Stopped
        return [proofs[number] for number in range(len(tasks))]


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ClientError(f"--storage {text!r} is not NAME=VALUE, such as anon=true")
    return name, value
