"""`tidelog pipeline verify`: the audit of `tidelog journal verify`, on Spark."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog import limits
from tidelog.cli.exits import INTERRUPTED, TERMINATED, guarded
from tidelog.cli.journal_folder import AsJson, find_place
from tidelog.cli.journal_verify import tell
from tidelog.cli.output import Output
from tidelog.cli.pipeline_options import Conf, Master, spark_session, stopped_in_order
from tidelog.cli.progress_bar import progress_bar
from tidelog.errors import ClientError, EnvironmentFault

if TYPE_CHECKING:
    from tidelog.spark.jobs.verify import Proof, Task

EPILOG: Final = """\
Examples:

  tidelog pipeline verify data

  tidelog pipeline verify /backups/2024-05-01 --master spark://10.0.0.9:7077

  tidelog pipeline verify s3://bucket/data --storage anon=true --json

Executors read the files themselves: on a cluster, DIR must be there on every machine, or be a URL that fsspec knows.
The report is that of `tidelog journal verify`, as is the JSON; damage is told in the same words.

Exit status: 0 if it is sound, 1 if there is damage, 2 if it is no journal, 130 for Ctrl-C, 143 for SIGTERM."""


class _Stopped(Exception):
    """By a signal."""


@guarded
def verify(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="A data directory or a snapshot; a URL that fsspec knows.", show_default=False
        ),
    ],
    storage: Annotated[
        list[str] | None,
        typer.Option("--storage", metavar="NAME=VALUE", help="An option of fsspec's; may be given again."),
    ] = None,
    frames: Annotated[
        int, typer.Option("--frames", metavar="N", min=1, help="Frames of one task.")
    ] = limits.SPARK_PARTITION_FRAMES,
    master: Master = None,
    conf: Conf = None,
    progress: Annotated[
        bool, typer.Option("--progress/--no-progress", help="A progress bar, if stderr is a terminal.")
    ] = True,
    as_json: AsJson = False,
) -> int:
    """Check a whole journal, side by side: every checksum, mark, blob, lsn and transaction, and the snapshots."""
    try:
        from tidelog.spark.jobs.holding import Stop
        from tidelog.spark.jobs.verify import Proof, audit_side_by_side, prove_numbered
        from tidelog.spark.jobs.waves import Waves
        from tidelog.spark.remote_disk import disk_of
    except ModuleNotFoundError as error:
        raise EnvironmentFault(f"this needs {error.name}: pip install 'tidelog[spark]'") from None
    options = dict(map(_option, storage or []))
    disk, path = disk_of(folder, options)
    place = find_place(disk, path)
    url = place.folder
    if "://" in folder:
        url = folder.rstrip("/").rpartition("/")[0] if place.is_shard else folder
    stop = Stop()
    with (
        stopped_in_order(stop) as signals,
        spark_session("tidelog verify", master, conf, signals.install) as spark,
        progress_bar(is_wanted=progress) as moved,
    ):

        def run_tasks(tasks: Sequence[Task]) -> list[Proof]:
            proofs: dict[int, Proof] = {}

            def take(numbered: tuple[int, Proof]) -> None:
                proofs[numbered[0]] = numbered[1]
                if moved is not None:
                    moved("verifying", len(proofs), len(tasks))

            waves = Waves[tuple[int, "Task"], tuple[int, "Proof"]](
                spark(), stop, on_result=take, failed=lambda item, why: (item[0], Proof(problem=why))
            )
            numbered = list(enumerate(tasks))
            for start in range(0, len(numbered), limits.PIPELINE_WAVE_ITEMS):
                wave = numbered[start : start + limits.PIPELINE_WAVE_ITEMS]
                waves.run(wave, partial(prove_numbered, url=url, storage=options))
                if stop.is_set():
                    raise _Stopped
            return [proofs[number] for number in range(len(tasks))]

        try:
            report = audit_side_by_side(url, options, run_tasks, frames=frames)
        except _Stopped:
            return INTERRUPTED if signals.number == signal.SIGINT else TERMINATED
    return tell(Output(as_json=as_json), report, place)


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ClientError(f"--storage {text!r} is no NAME=VALUE such as anon=true")
    return name, value
