"""`tidelog restore`: a new data directory from a backup."""

from __future__ import annotations

import random
from typing import Annotated, Final

import typer

from tidelog import limits
from tidelog.cli.exits import FINE, guarded, until_pipe_closes
from tidelog.cli.journal.folder import real_disk
from tidelog.cli.options import AsJson, ShowsBar
from tidelog.cli.output.progress_bar import progress_bar
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.output.values import parse_moment, time_of, time_or_number
from tidelog.ids import Ts

EPILOG: Final = """\
Examples:

  tidelog restore backup-monday --data restored

  tidelog restore backup-monday --data restored --shards 4

  tidelog restore copy-of-data --data restored --until 2025-11-15T20:03:20Z

  tidelog serve --data restored

JSON: kind "damaged" (problem) for snapshots that could not be used, and at the end "restored" (path, ts, time,
shards, keys, bytes, snapshot_ts, transactions, lost_nodes).

Exit status: 0 if the directory is complete, 1 if the backup is damaged, 2 if the directory could not be made."""

_COLUMNS: Final = (
    Column("restored", style="bold"),
    Column("time"),
    Column("ts", right=True),
    Column("shards", right=True),
    Column("keys", right=True),
    Column("bytes", right=True),
    Column("transactions", right=True),
)


@guarded
def restore(
    backup: Annotated[
        str,
        typer.Argument(
            metavar="BACKUP",
            help="A backup that `tidelog snapshot` made, one snapshot of a data directory, or a whole data directory.",
            show_default=False,
        ),
    ],
    data: Annotated[
        str, typer.Option(metavar="DIR", help="The data directory to create; it must be missing or empty.")
    ],
    shards: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The number of shards. [default: as many as the backup has]",
            min=1,
            max=limits.SHARDS_MAX,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TS|TIME",
            help="Restore the state at this ts (µs) or ISO time, including it. BACKUP must be a whole data directory.",
        ),
    ] = None,
    progress: ShowsBar = True,
    as_json: AsJson = False,
) -> int:
    """Make a new data directory from a backup.

    A whole data directory is restored from its newest intact snapshot and the journal after that snapshot. Everything
    is checked before the new directory can be used: `tidelog serve` refuses a directory whose restore did not finish,
    and restoring into it again starts from the beginning. The backup is not changed.
    """
    from tidelog.store.restore import restore as run
    from tidelog.store.store import Store
    from tidelog.system.clock import SystemClock

    moment = None
    if until is not None:
        try:
            moment = Ts(parse_moment(until))
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--until") from None
    disk, output = real_disk(), Output(as_json=as_json)
    backup, data = backup.rstrip("/") or "/", data.rstrip("/") or "/"
    with progress_bar(is_wanted=progress) as moved:
        store = Store(SystemClock(), random.Random())
        made = run(disk, store, backup, data, shard_count=shards, until=moment, on_progress=moved)
    with until_pipe_closes():  # it is done, whoever listens
        for problem in made.damaged:
            if as_json:
                output.object("damaged", {"problem": problem})
            else:
                output.line(f"not used, because it is damaged: {problem}", "yellow")
        if made.lost_nodes and not as_json:
            output.line(f"{made.lost_nodes} nodes of streams were lost before; reads of them fail as before", "yellow")
        if as_json:
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
            output.object("restored", members)
        else:
            when = time_or_number(made.ts or None)
            figures = made.shard_count, made.keys, made.size_bytes, made.transactions
            output.table(_COLUMNS, [(made.path, when, str(made.ts), *figures)])
    return FINE
