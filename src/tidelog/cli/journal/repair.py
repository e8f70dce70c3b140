"""`tidelog journal repair`: back to the newest point that is whole; what is given up is set aside."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from tidelog.cli.exits import CANNOT, FINE, complain, guarded, until_pipe_closes
from tidelog.cli.journal.folder import WholeFolder, find_place, real_disk
from tidelog.cli.options import AsJson
from tidelog.cli.output.stdout import Column, Output
from tidelog.cli.output.values import time_of, time_or_number

EPILOG: Final = """\
Examples:

  tidelog journal repair data --dry-run

  tidelog journal repair data

JSON: kind "action" (text), and at the end "summary" (needed, dry_run, set_aside, last_ts, last_time).

Exit status: 0 if it is whole now (or, with --dry-run, can be made so), 1 if nothing whole is left to go back to, 2 if
DIR cannot be repaired: no such directory, or a server has it open."""

_ACTIONS: Final = (Column("", right=True), Column("action"))


@guarded
def repair(
    folder: WholeFolder,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done; nothing is changed.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Make a damaged data directory open again.

    It goes back to the newest point that is whole on all shards, and cuts what follows. Nothing is deleted: what it
    cuts is kept in a folder set-aside-N of the data directory. Transactions after the last ts that it names are lost
    to the server; followers and feeds that had seen more are told so. It needs the directory for itself: stop the
    server first.

    A torn tail after a crash needs no repair: the next start cuts it.
    """
    from tidelog.journal.repair import repair as run

    disk, output = real_disk(), Output(as_json=as_json)
    place = find_place(disk, folder)
    if place.is_shard:
        complain(f"{folder} is one shard: they are repaired together, by `tidelog journal repair {place.folder}`")
        return CANNOT
    report = run(disk, place.folder, dry_run=dry_run)
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
