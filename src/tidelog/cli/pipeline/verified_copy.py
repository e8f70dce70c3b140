"""What `tidelog pipeline verify` prints about a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.cli.exits import DAMAGED, FINE, complain, until_pipe_closes
from tidelog.cli.output.stdout import Column
from tidelog.cli.output.values import time_or_number

if TYPE_CHECKING:
    from tidelog.cli.output.stdout import Output
    from tidelog.spark.jobs.verify_copy import CopyReport, LineageReport

_LINEAGES: Final = ("lineage", "segments", "frames", "records", "transactions", "snapshots", "nodes", "bytes")
_COLUMNS: Final = (Column(_LINEAGES[0]), *(Column(name, right=True) for name in _LINEAGES[1:]))


def tell_copy(output: Output, report: CopyReport, url: str) -> int:
    """Print a report, and return the exit status."""
    with until_pipe_closes():  # the status is known, whoever listens
        if output.as_json:
            _print_json(output, report)
        else:
            _print_text(output, report)
    if not report.is_sound:
        complain(f"damage found in {url}: {len(report.damage)} problem(s)")
    return FINE if report.is_sound else DAMAGED


def _figures(each: LineageReport) -> tuple[int, ...]:
    if each.audit is None:
        return (0,) * (len(_LINEAGES) - 1)
    shards = each.audit.shards
    return (
        sum(shard.segments for shard in shards),
        sum(shard.frames for shard in shards),
        sum(shard.records for shard in shards),
        sum(shard.transactions for shard in shards),
        each.audit.snapshots,
        each.audit.nodes,
        sum(shard.bytes for shard in shards),
    )


def _print_json(output: Output, report: CopyReport) -> None:
    for each in report.lineages:
        output.object("lineage", dict(zip(_LINEAGES, (each.name, *_figures(each)), strict=True)))
        for note in each.audit.notes if each.audit is not None else ():
            output.object("note", {"lineage": each.name, "text": note})
    for damage in report.damage:
        output.object("problem", damage._asdict())
    summary = {
        "sound": report.is_sound,
        "problems": len(report.damage),
        "database": report.database_id,
        "manifest": report.manifest,
        "manifests": report.manifests,
        "objects": report.objects,
        "bytes": report.bytes,
        "announced": report.announced,
        "unnamed": report.unnamed,
        "unnamed_bytes": report.unnamed_bytes,
    }
    output.object("summary", summary)


def _print_text(output: Output, report: CopyReport) -> None:
    output.table(_COLUMNS, [(each.name, *_figures(each)) for each in report.lineages])
    output.line()
    last = max((each.audit.last_ts for each in report.lineages if each.audit is not None), default=0)
    output.line(f"database         {report.database_id}")
    output.line(f"manifests        {report.manifests}, the newest is {report.manifest}")
    output.line(f"objects          {report.objects} with {report.bytes} bytes")
    output.line(f"going            {report.announced} objects that will be deleted")
    output.line(f"unnamed          {report.unnamed} objects with {report.unnamed_bytes} bytes that nobody refers to")
    output.line(f"last transaction {time_or_number(last or None)}")
    for each in report.lineages:
        for note in each.audit.notes if each.audit is not None else ():
            output.line(f"note: lineage {each.name}: {note}", "yellow")
    for damage in report.damage:
        output.line(f"problem: {damage}", "red")
    output.line("sound" if report.is_sound else "DAMAGED", "bold green" if report.is_sound else "bold red")
