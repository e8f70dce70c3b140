"""`tidelog journal verify`: checks every byte of a journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.exits import DAMAGED, FINE, complain, guarded, until_pipe_closes
from tidelog.cli.journal.folder import DataFolder, damage_members, find_place, known_operations, real_disk
from tidelog.cli.options import AsJson, ShowsBar
from tidelog.cli.output.progress_bar import rich_progress
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.output.values import time_of, time_or_number

if TYPE_CHECKING:
    from tidelog.journal.inspection import JournalFolder
    from tidelog.journal.verify import VerifyReport
    from tidelog.ports import Disk

EPILOG: Final = """\
Examples:

  tidelog journal verify data

  tidelog journal verify data --json | jq 'select(.kind == "problem")'

  tidelog journal verify data/snapshots/snapshot-0006439a7c8f2b10

JSON: kind "shard" (shard, segments, frames, records, transactions, bytes, blobs), "problem" (path, frame, position,
problem), "note" (text), and at the end "summary" (sound, starts, problems, snapshots, nodes, lost_nodes,
remote_node_files, cycle, synced_cycle, last_ts, last_time, tail_bytes). If damage was found, records and transactions
are those before it.

Exit status: 0 if the journal is sound, 1 if damage was found, 2 if DIR cannot be read."""

_SHARDS: Final = (
    Column("shard", right=True),
    Column("segments", right=True),
    Column("frames", right=True),
    Column("records", right=True),
    Column("transactions", right=True),
    Column("blobs", right=True),
    Column("bytes", right=True),
)


@guarded
def verify(
    folder: DataFolder,
    progress: ShowsBar = True,
    as_json: AsJson = False,
) -> int:
    """Check a whole journal: every checksum, mark, blob, lsn and transaction, and the snapshots.

    It first does what a start does, so a server starts on a directory that is sound. A torn tail is not damage: it is
    an unfinished write, and the next start sets it aside. The command takes no lock: a
    server may be writing at the same time. The shards vouch for each other, so if DIR is one shard, the whole directory
    is checked.
    """
    disk, output = real_disk(), Output(as_json=as_json)
    place = find_place(disk, folder)
    with _byte_bar(is_wanted=progress) as on_progress:
        report = _verify(disk, place.folder, on_progress)
    return tell(output, report, place)


def tell(output: Output, report: VerifyReport, place: JournalFolder) -> int:
    """Print a report, and return the exit status."""
    if place.is_shard:
        report.notes.append(f"the shards vouch for each other: all of {place.folder} was checked")
    with until_pipe_closes():  # the status is known, whoever listens
        if output.as_json:
            _print_json(output, report)
        else:
            _print_text(output, report)
    if not report.is_sound:
        complain(f"damage found in {place.folder}: {len(report.problems)} problem(s)")
    return FINE if report.is_sound else DAMAGED


def _verify(disk: Disk, folder: str, on_progress: Callable[[int, int], None] | None) -> VerifyReport:
    from tidelog.journal.verify import verify as run

    return run(disk, folder, known_operations(), on_progress)


@contextmanager
def _byte_bar(*, is_wanted: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A function to call with the bytes that are done and the bytes in all; None if nobody would see the bar."""

    def columns() -> list[Any]:
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

        sizes = DownloadColumn(binary_units=True)
        return [TextColumn("verifying"), BarColumn(), sizes, TransferSpeedColumn(), TimeRemainingColumn()]

    with rich_progress(columns, is_wanted=is_wanted) as bar:
        task = None if bar is None else bar.add_task("", total=None)
        yield None if bar is None else lambda done, total: bar.update(task, completed=done, total=total)


def _print_json(output: Output, report: VerifyReport) -> None:
    for shard in report.shards:
        members = {
            "shard": shard.shard,
            "segments": shard.segments,
            "frames": shard.frames,
            "records": shard.records,
            "transactions": shard.transactions,
            "bytes": shard.bytes,
            "blobs": shard.blobs,
        }
        output.object("shard", members)
    for problem in report.problems:
        output.object("problem", damage_members(problem))
    for note in report.notes:
        output.object("note", {"text": note})
    summary = {
        "sound": report.is_sound,
        "starts": report.refusal is None,
        "problems": len(report.problems),
        "snapshots": report.snapshots,
        "nodes": report.nodes,
        "lost_nodes": report.lost_nodes,
        "remote_node_files": report.remote_files,
        "cycle": report.cycle,
        "synced_cycle": report.synced_cycle,
        "last_ts": report.last_ts,
        "last_time": time_of(report.last_ts),
        "tail_bytes": report.tail_bytes,
    }
    output.object("summary", summary)


def _print_text(output: Output, report: VerifyReport) -> None:
    rows = [
        (each.shard, each.segments, each.frames, each.records, each.transactions, each.blobs, each.bytes)
        for each in report.shards
    ]
    sums = [sum(column) for column in zip(*rows, strict=True)][1:]
    output.table(_SHARDS, [*rows, ("all", *sums)], total=True)
    output.line()
    output.line(f"snapshots        {report.snapshots}")
    if report.nodes or report.lost_nodes:
        output.line(f"nodes on disk    {report.nodes}")
    if report.remote_files:
        output.line(f"files elsewhere  {report.remote_files}")
    output.line(f"complete cycle   {report.cycle}")
    output.line(f"synced cycle     {report.synced_cycle}")
    output.line(f"last transaction {time_or_number(report.last_ts or None)}")
    for note in report.notes:
        output.line(f"note: {note}", "yellow")
    for problem in report.problems:
        output.line(f"problem: {problem}", "red")
    output.line("sound" if report.is_sound else "DAMAGED", "bold green" if report.is_sound else "bold red")
