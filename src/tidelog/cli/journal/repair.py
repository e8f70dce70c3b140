"""`tidelog journal repair`: goes back to the newest intact point, and sets the rest aside."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from tidelog.cli.exits import CANNOT, FINE, complain, guarded, until_pipe_closes
from tidelog.cli.journal.folder import WholeFolder, find_place, known_operations, real_disk
from tidelog.cli.options import AsJson
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.output.values import time_of, time_or_number

EPILOG: Final = """\
Examples:

  tidelog journal repair data --dry-run

  tidelog journal repair data

JSON: kind "action" (text), and at the end "summary" (needed, dry_run, set_aside, last_ts, last_time).

Exit status: 0 if the directory is intact now (with --dry-run: can be repaired), 1 if no intact point is left to go back
to, 2 if DIR cannot be repaired: there is no such directory, or a server has it open."""

_ACTIONS: Final = (Column("", right=True), Column("action"))


@guarded
def repair(
    folder: WholeFolder,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be done; nothing is changed.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Make a damaged data directory open again.

    The journal goes back to the newest point that is intact on all shards, and everything after it is cut. Nothing is
    deleted: the cut parts are kept in a folder set-aside-N of the data directory. The server loses the transactions
    after the last ts that the command prints; feeds that had delivered them are told so. Stop the server
    first: the command needs the directory for itself.

    If a node of a stream is damaged or its file is missing, an older snapshot takes over when it does not need the
    node and the journal has everything since. Otherwise the command names the entries that are lost: the server
    starts, and reads of those entries fail with an error until the stream is trimmed past them.

    A torn tail after a crash needs no repair: the next start sets it aside in cut-tails.
    """
    from tidelog.journal.repair import repair as run

    disk, output = real_disk(), Output(as_json=as_json)
    place = find_place(disk, folder)
    if place.is_shard:
        complain(
            f"{folder} is one shard, and all shards are repaired together: use `tidelog journal repair {place.folder}`"
        )
        return CANNOT
    report = run(real_disk(place.folder), place.folder, dry_run=dry_run, table=known_operations())
    with until_pipe_closes():  # it is done, whoever listens
        if as_json:
            for action in report.actions:
                output.object("action", {"text": action})
            summary = {
                "needed": report.was_needed,
                "dry_run": dry_run,
                "set_aside": report.set_aside,
                "last_ts": report.last_ts,
                "last_time": time_of(report.last_ts),
            }
            output.object("summary", summary)
        elif not report.was_needed:
            output.line(f"{place.folder} needs no repair")
        else:
            output.line("would do:" if dry_run else "done:", "bold")
            output.table(_ACTIONS, list(enumerate(report.actions, start=1)))
            output.line()
            if report.set_aside is not None:
                output.line(f"set aside in {report.set_aside}")
            verb, last = "would end" if dry_run else "ends", time_or_number(report.last_ts or None)
            output.line(f"history {verb} at {last} (ts {report.last_ts}): what came after it is lost", "yellow")
    return FINE
