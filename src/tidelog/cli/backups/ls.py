"""`tidelog backups ls`: which databases an object store has copies of, and which moments can be restored."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog import limits
from tidelog.cli.copy_place import newest_manifest, no_copy, open_copy
from tidelog.cli.exits import FINE, guarded, until_pipe_closes
from tidelog.cli.options import AsJson
from tidelog.cli.output.stdout import Cell, Column, Output, Styled
from tidelog.cli.output.values import time_of, time_or_number
from tidelog.cli.ship_options import DatabaseId, KeyOfCopy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.ids import Ts
    from tidelog.shipping.lineage import Lineage
    from tidelog.shipping.manifest import Manifest

EPILOG: Final = """\
Examples:

  tidelog backups ls s3://bucket/tidelog

  tidelog backups ls copy --json | jq 'select(.kind == "moments")'

  tidelog restore --from s3://bucket/tidelog --data restored --at 2026-11-15T20:03:20Z

A lineage is the history as one server has written it; another begins after a failover, unless the files are the same.
The moments of a gap cannot be restored: the server before was lost with them, or a first snapshot came later.

JSON: kind "database" (database, manifest, shipped_us, shipped_time, age_seconds, is_encrypted, lineages, bytes),
"moments" (database, state: covered or gap, from_ts, from, to_ts, to, lineage), "lineage" (database, lineage, epoch,
shards, begins_ts, begins, ts, time, ends_ts, ends, snapshots, files, bytes), "snapshot" (database, lineage, ts, time,
keys, bytes), "going" (database, objects, announced_us, announced_time, goes_time).

Exit status: 0, 1 if a manifest is damaged, 2 if there is no copy, or its key is missing or wrong."""

_DATABASES: Final = (
    Column("database", style="bold"),
    Column("last shipped"),
    Column("seconds ago", right=True),
    Column("manifest", right=True),
    Column("bytes", right=True),
    Column("encrypted"),
)
_MOMENTS: Final = (
    Column("moments from"),
    Column("to"),
    Column("from ts", right=True),
    Column("to ts", right=True),
    Column("lineage", style="cyan"),
)
_LINEAGES: Final = (
    Column("lineage", style="cyan"),
    Column("up to"),
    Column("shards", right=True),
    Column("snapshots", right=True),
    Column("newest snapshot"),
    Column("files", right=True),
    Column("bytes", right=True),
    Column("state"),
)


@guarded
def ls(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="The copy: s3://, gs://, az://, file:// or a folder.", show_default=False),
    ],
    database: DatabaseId = None,
    ship_key_file: KeyOfCopy = None,
    as_json: AsJson = False,
) -> int:
    """List the databases of a copy, and which moments of them can be restored.

    Only manifests are read. A server that lives ships every 10 seconds, even if nothing has changed.
    """
    from tidelog.shipping.manifest_log import database_ids

    objects, output = open_copy(url, ship_key_file), Output(as_json=as_json)
    wanted = [database] if database is not None else database_ids(objects)
    if not wanted:
        raise no_copy(url)
    manifests = [newest_manifest(objects, url, each) for each in wanted]
    with until_pipe_closes():
        for index, manifest in enumerate(manifests):
            if as_json:
                _print_json(output, manifest, is_encrypted=ship_key_file is not None)
            else:
                if index:
                    output.line()
                _print_tables(output, manifest, is_encrypted=ship_key_file is not None)
    return FINE


def _age_us(manifest: Manifest) -> int:
    return max(0, time.time_ns() // 1000 - manifest.made_us)


def _runs(manifest: Manifest) -> Iterator[tuple[str, Ts, Ts, str]]:
    """Moments that are covered, and gaps between them: a state, the first and the last ts, the lineage."""
    from tidelog.ids import Ts
    from tidelog.shipping.moments import covered_moments

    last: Ts | None = None
    for run in covered_moments(manifest):
        if last is not None and run.first > last + 1:
            yield "gap", Ts(last + 1), Ts(run.first - 1), ""
        yield "covered", run.first, run.last, run.lineage.name
        last = run.last if last is None else max(last, run.last)


def _snapshot_bytes(lineage: Lineage, ts: Ts) -> int:
    """Of its own files, without node files, which snapshots share."""
    from tidelog.shipping.lineage import snapshot_folder

    folder = f"{snapshot_folder(ts)}/"
    return sum(file.size for path, file in lineage.files.items() if path.startswith(folder))


def _state(manifest: Manifest, lineage: Lineage) -> Styled:
    if lineage.begins_ts is None:
        return Styled("its first snapshot is still being shipped", "yellow")
    if lineage is manifest.lineages[-1]:
        return Styled("grows", "green")
    return Styled(f"ended at {time_or_number(lineage.history_ts)}", "dim")


def _print_tables(output: Output, manifest: Manifest, *, is_encrypted: bool) -> None:
    from tidelog.shipping.lineage import total_bytes

    size, age_s = total_bytes(manifest.lineages), _age_us(manifest) // 1_000_000
    shipped = time_or_number(manifest.made_us)
    row = (manifest.database_id, shipped, age_s, manifest.number, size, "yes" if is_encrypted else "no")
    output.table(_DATABASES, [row])
    output.line()
    rows: list[tuple[Cell, ...]] = []
    for state, first, last, lineage in _runs(manifest):
        begins = time_or_number(first) if first else "the beginning"
        style = "yellow" if state == "gap" else ""
        shown = Styled("(a gap)", style) if state == "gap" else lineage
        rows.append((Styled(begins, style), Styled(time_or_number(last), style), str(first), str(last), shown))
    if rows:
        output.table(_MOMENTS, rows)
    else:
        output.line("nothing can be restored yet: the first snapshot is still being shipped", "yellow")
    output.line()
    lineages = [
        (
            each.name,
            time_or_number(each.ts or None),
            each.shard_count,
            len(each.snapshots),
            time_or_number(max(each.snapshots, default=None)),
            len(each.files),
            total_bytes([each]),
            _state(manifest, each),
        )
        for each in manifest.lineages
    ]
    output.table(_LINEAGES, lineages)
    for going in manifest.going:
        goes = time_or_number(going.announced_us + limits.SHIP_NOTICE_US)
        output.line(f"{going.names_count} objects that no moment needs any more will be deleted after {goes}")


def _print_json(output: Output, manifest: Manifest, *, is_encrypted: bool) -> None:
    from tidelog.shipping.lineage import total_bytes

    database = {"database": manifest.database_id}
    output.object(
        "database",
        database
        | {
            "manifest": manifest.number,
            "shipped_us": manifest.made_us,
            "shipped_time": time_of(manifest.made_us),
            "age_seconds": _age_us(manifest) / 1e6,
            "is_encrypted": is_encrypted,
            "lineages": len(manifest.lineages),
            "bytes": total_bytes(manifest.lineages),
        },
    )
    for state, first, last, lineage in _runs(manifest):
        members = {"state": state, "from_ts": first, "from": time_of(first or None), "to_ts": last, "to": time_of(last)}
        output.object("moments", database | members | {"lineage": lineage or None})
    for each in manifest.lineages:
        members = {
            "lineage": each.name,
            "epoch": each.name.partition(".")[0],
            "shards": each.shard_count,
            "begins_ts": each.begins_ts,
            "begins": time_of(each.begins_ts or None),
            "ts": each.ts,
            "time": time_of(each.ts or None),
            "ends_ts": each.ends_ts,
            "ends": time_of(each.ends_ts or None),
            "snapshots": len(each.snapshots),
            "files": len(each.files),
            "bytes": total_bytes([each]),
        }
        output.object("lineage", database | members)
        for ts, point in each.snapshots.items():
            facts = {"ts": ts, "time": time_of(ts), "keys": point.keys, "bytes": _snapshot_bytes(each, ts)}
            output.object("snapshot", database | {"lineage": each.name} | facts)
    for going in manifest.going:
        times = {
            "announced_us": going.announced_us,
            "announced_time": time_of(going.announced_us),
            "goes_time": time_of(going.announced_us + limits.SHIP_NOTICE_US),
        }
        output.object("going", database | {"objects": going.names_count} | times)
