"""`tidelog restore`: a new data directory from a copy in an object store, or from a backup."""

from __future__ import annotations

import os
import posixpath
import random
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog import limits
from tidelog.cli.copy_place import local_path, newest_manifest, no_copy, open_copy
from tidelog.cli.exits import FINE, guarded, until_pipe_closes
from tidelog.cli.journal.folder import real_disk
from tidelog.cli.options import AsJson, ShowsBar
from tidelog.cli.output.progress_bar import ReportProgress, progress_bar
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.output.values import parse_moment, time_of, time_or_number
from tidelog.cli.ship_options import DatabaseId, KeyOfCopy
from tidelog.errors import DataDirectoryError
from tidelog.ids import Ts

if TYPE_CHECKING:
    from tidelog.ports import Disk
    from tidelog.shipping.restoring import RestorePlan
    from tidelog.store.restore import Restored
    from tidelog.system.counted_store import CountedStore

EPILOG: Final = """\
Examples:

  tidelog restore --from s3://bucket/tidelog --data restored

  tidelog restore --from s3://bucket/tidelog --data restored --at 2026-11-15T20:03:20Z

  tidelog restore --from s3://bucket/tidelog --data restored --at 2026-11-15T20:03:20Z --dry-run

  tidelog restore --from s3://bucket/tidelog --data restored --lazy

  tidelog restore --from backup-monday --data restored --shards 4

  tidelog serve --data restored

The earlier spelling `tidelog restore SOURCE --data DIR --until TIME` means the same as --from and --at.

JSON: kind "damaged" (problem) for snapshots that could not be used, and at the end "restored" (path, ts, time,
shards, keys, bytes, snapshot_ts, transactions, lost_nodes; of a copy also database, lineage, manifest, fetched_bytes,
requests; with --lazy left_files and left_bytes, and no keys, transactions and lost_nodes). With --dry-run: "part"
(part, files, objects, bytes) and "plan" (from, database, lineage, manifest, ts, time, snapshot_ts, snapshot_time,
files, objects, bytes).

Exit status: 0 if the directory is complete, 1 if the source is damaged, 2 if the directory could not be made."""

_COLUMNS: Final = (
    Column("restored", style="bold"),
    Column("time"),
    Column("ts", right=True),
    Column("shards", right=True),
    Column("keys", right=True),
    Column("bytes", right=True),
    Column("transactions", right=True),
)
_LAZY_COLUMNS: Final = (
    *_COLUMNS[:4],
    Column("bytes", right=True),
    Column("left in the copy", right=True),
)
_PARTS: Final = (
    Column("to fetch"),
    Column("files", right=True),
    Column("objects", right=True),
    Column("bytes, at most", right=True),
)


@guarded
def restore(
    data: Annotated[
        str, typer.Option(metavar="DIR", help="The data directory to create; it must be missing or empty.")
    ],
    source: Annotated[
        str | None,
        typer.Argument(metavar="SOURCE", help="The same as --from, as it was spelled earlier.", show_default=False),
    ] = None,
    source_url: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="A copy that a server has shipped (s3://, gs://, az://, file:// or a folder), a backup that `tidelog "
            "snapshot` made, one snapshot of a data directory, or a whole data directory.",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TS|TIME",
            help="Restore the state at this ts (µs) or ISO time, including it. [default: the newest moment]",
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TS|TIME", help="The same as --at, as it was spelled earlier.")
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The number of shards. [default: as many as the source has]",
            min=1,
            max=limits.SHARDS_MAX,
        ),
    ] = None,
    database: DatabaseId = None,
    ship_key_file: KeyOfCopy = None,
    lazy: Annotated[
        bool,
        typer.Option(
            "--lazy",
            help="Leave old entries of streams in the copy, for the newest moment: `tidelog serve` reads them there, "
            "and fetches them in the background.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only say what would be fetched of a copy; nothing but its manifest is."),
    ] = False,
    progress: ShowsBar = True,
    as_json: AsJson = False,
) -> int:
    """Make a new data directory from a copy in an object store, or from a backup.

    It begins with the newest intact snapshot before the moment that is wanted, and takes the journal from there up to
    that moment. Everything is checked before the new directory can be used: `tidelog serve` refuses a directory whose
    restore did not finish, and restoring into it again starts from the beginning. The source is not changed.

    The new directory is a database of its own: a server on it never ships into the copy that it came from. With --lazy
    the copy has to stay until that server has fetched the rest (`INFO history`).
    """
    place = _one_of(source, source_url, "--from", "a source is missing: name it with --from")
    if lazy and shards is not None:
        raise typer.BadParameter(
            "with --lazy there are as many shards as in the copy, because its files are taken as they are: leave out "
            "--lazy or --shards",
            param_hint="--shards",
        )
    moment = _moment(at, until)
    data = data.rstrip("/") or "/"
    path = local_path(place)
    output = Output(as_json=as_json)
    if path is not None and not _is_copy(path, place):
        if database is not None or ship_key_file is not None or dry_run or lazy:
            raise typer.BadParameter(
                f"{place} is on this machine and no copy: --database, --ship-key-file, --lazy and --dry-run are for "
                f"copies"
            )
        with progress_bar(is_wanted=progress) as moved:
            made = _restore_backup(path, data, shards, moment, moved)
        with until_pipe_closes():  # it is done, whoever listens
            _print_restored(output, made, None, None)
        return FINE
    from tidelog.shipping.restoring import plan_lazy, plan_restore

    objects = open_copy(place, ship_key_file)
    plan = plan_restore(newest_manifest(objects, place, database), moment)
    if lazy:
        plan = plan_lazy(plan)
    if dry_run:
        _print_plan(output, place, plan)
        return FINE
    if plan.left is not None:
        with progress_bar(is_wanted=progress) as moved:
            size = _fetch_copy(objects, plan, data, path, place, moved, is_sealed=ship_key_file is not None)
        with until_pipe_closes():
            _print_fetched(output, data, plan, size, objects)
        return FINE
    with progress_bar(is_wanted=progress) as moved:
        made = _restore_copy(objects, plan, data, shards, moved)
    with until_pipe_closes():
        _print_restored(output, made, plan, objects)
    return FINE


def _one_of(old: str | None, new: str | None, name: str, problem: str) -> str:
    if old is not None and new is not None:
        raise typer.BadParameter("it is given twice, in its earlier spelling too", param_hint=name)
    found = old if new is None else new
    if not found:
        raise typer.BadParameter(problem)
    return found


def _moment(at: str | None, until: str | None) -> Ts | None:
    if at is None and until is None:
        return None
    text = _one_of(until, at, "--at", "the moment is empty: --at takes a ts or a time")
    try:
        return Ts(parse_moment(text))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--until" if at is None else "--at") from None


def _is_copy(path: str, place: str) -> bool:
    """Whether a folder is one that a server ships to, and not a data directory or a backup."""
    from tidelog.journal.layout import META
    from tidelog.shipping.manifest_log import database_ids

    if os.path.exists(f"{path}/{META}") or not os.path.isdir(path):
        return False  # what is no directory of ours is told as it is of any command
    if database_ids(open_copy(path, None)):
        return True
    raise DataDirectoryError(f"{place} is not a data directory and no backup, and {no_copy(place)}")


# --- restoring --------------------------------------------------------------------------------------------------------


def _restore_backup(
    path: str, data: str, shards: int | None, moment: Ts | None, moved: ReportProgress | None
) -> Restored:
    from tidelog.store.restore import restore as run
    from tidelog.store.store import Store
    from tidelog.system.clock import SystemClock

    store = Store(SystemClock(), random.Random())
    return run(real_disk(), store, path, data, shard_count=shards, until=moment, on_progress=moved)


def _restore_copy(
    objects: CountedStore, plan: RestorePlan, data: str, shards: int | None, moved: ReportProgress | None
) -> Restored:
    from concurrent.futures import ThreadPoolExecutor

    from tidelog.shipping.restoring import restore_shipped
    from tidelog.store.new_directory import check_target
    from tidelog.store.store import Store
    from tidelog.system.clock import SystemClock
    from tidelog.system.scratch import ScratchFile

    disk, store = real_disk(), Store(SystemClock(), random.Random())
    check_target(disk, data)
    _check_parent(disk, data)
    scratch = ScratchFile(data if disk.exists(data) else posixpath.dirname(data) or ".")
    threads = ThreadPoolExecutor(limits.FETCHED_OBJECTS_AT_ONCE, thread_name_prefix="fetch")
    try:
        return restore_shipped(
            disk,
            store,
            objects,
            plan,
            data,
            shard_count=shards,
            on_progress=moved,
            fetch_ahead=threads.submit,
            scratch=scratch,
        )
    finally:
        threads.shutdown(cancel_futures=True)
        scratch.close()


def _fetch_copy(
    objects: CountedStore,
    plan: RestorePlan,
    data: str,
    path: str | None,
    place: str,
    moved: ReportProgress | None,
    *,
    is_sealed: bool,
) -> int:
    """`path`: of a copy on this machine. A server that is started elsewhere has to find it, so it is told in full."""
    from tidelog.shipping.fetch import LeftBehind
    from tidelog.shipping.restoring import fetch_shipped
    from tidelog.store.new_directory import check_target
    from tidelog.system.ship_store import fetch_all

    disk = real_disk()
    check_target(disk, data)
    _check_parent(disk, data)
    left = LeftBehind(place if path is None else os.path.abspath(path), is_sealed)
    total = sum(part.size for part in plan.parts)
    count = Lock()
    fetched = 0

    def note(size: int) -> None:
        nonlocal fetched
        with count:
            fetched += size
            if moved is not None:
                moved("fetching", min(fetched, total), total)

    return fetch_shipped(disk, objects, plan, data, left, fetch_all, note)


def _check_parent(disk: Disk, data: str) -> None:
    parent = posixpath.dirname(data) or "."
    if not disk.exists(parent):
        raise DataDirectoryError(f"{parent} does not exist: make it first")


# --- telling ----------------------------------------------------------------------------------------------------------


def _print_restored(output: Output, made: Restored, plan: RestorePlan | None, objects: CountedStore | None) -> None:
    for problem in made.damaged:
        if output.as_json:
            output.object("damaged", {"problem": problem})
        else:
            output.line(f"not used, because it is damaged: {problem}", "yellow")
    if made.lost_nodes and not output.as_json:
        output.line(f"{made.lost_nodes} nodes of streams were lost before; reads of them fail as before", "yellow")
    if output.as_json:
        members = {
            "path": made.path,
            "ts": made.ts,
            "time": time_of(made.ts or None),
            "shards": made.shard_count,
            "keys": made.keys,
            "bytes": made.size_bytes,
            "snapshot_ts": made.snapshot_ts,
            "transactions": made.transactions,
            "lost_nodes": made.lost_nodes,
        }
        if plan is not None and objects is not None:
            members |= {
                "database": plan.manifest.database_id,
                "lineage": plan.lineage.name,
                "manifest": plan.manifest.number,
                "fetched_bytes": objects.bytes_read,
                "requests": objects.requests.total(),
            }
        output.object("restored", members)
    else:
        when = time_or_number(made.ts or None)
        figures = made.shard_count, made.keys, made.size_bytes, made.transactions
        output.table(_COLUMNS, [(made.path, when, str(made.ts), *figures)])


def _print_fetched(output: Output, data: str, plan: RestorePlan, size: int, objects: CountedStore) -> None:
    left = plan.left
    assert left is not None
    if output.as_json:
        members = {
            "path": data,
            "ts": plan.until,
            "time": time_of(plan.until or None),
            "shards": plan.lineage.shard_count,
            "bytes": size,
            "snapshot_ts": plan.snapshot_ts,
            "database": plan.manifest.database_id,
            "lineage": plan.lineage.name,
            "manifest": plan.manifest.number,
            "fetched_bytes": objects.bytes_read,
            "requests": objects.requests.total(),
            "left_files": left.files,
            "left_bytes": left.size,
        }
        output.object("restored", members)
    else:
        when = time_or_number(plan.until or None)
        output.table(_LAZY_COLUMNS, [(data, when, str(plan.until), plan.lineage.shard_count, size, left.size)])


def _print_plan(output: Output, place: str, plan: RestorePlan) -> None:
    files, objects, size = (
        sum(column) for column in zip(*((p.files, p.objects, p.size) for p in plan.parts), strict=True)
    )
    if output.as_json:
        for part in plan.parts:
            members = {"part": part.part, "files": part.files, "objects": part.objects, "bytes": part.size}
            output.object("part", members)
        output.object(
            "plan",
            {
                "from": place,
                "database": plan.manifest.database_id,
                "lineage": plan.lineage.name,
                "manifest": plan.manifest.number,
                "ts": plan.until,
                "time": time_of(plan.until or None),
                "snapshot_ts": plan.snapshot_ts,
                "snapshot_time": time_of(plan.snapshot_ts or None),
                "files": files,
                "objects": objects,
                "bytes": size,
            },
        )
        return
    output.line(f"database  {plan.manifest.database_id}, manifest {plan.manifest.number}")
    output.line(f"lineage   {plan.lineage.name}")
    output.line(f"moment    {time_or_number(plan.until or None)} (ts {plan.until})")
    snapshot = f"{time_or_number(plan.snapshot_ts)} (ts {plan.snapshot_ts})" if plan.snapshot_ts else "none is needed"
    output.line(f"snapshot  {snapshot}")
    output.line()
    rows: list[tuple[str, int, int, int]] = [(part.part, part.files, part.objects, part.size) for part in plan.parts]
    output.table(_PARTS, [*rows, ("total", files, objects, size)], total=True)
