"""`tidelog events ls`: lists the job sets of a server and the state of their days."""

from __future__ import annotations

from typing import Final

from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import FINE, guarded
from tidelog.cli.options import AsJson, DatabaseNumber, IsCluster, PasswordFile, Url
from tidelog.cli.output.stdout import Cell, Column, Output
from tidelog.cli.server_link import connected, find_address

EPILOG: Final = """\
Examples:

  tidelog events ls

  tidelog events ls --url redis://127.0.0.1:6379 --json

In a hot day, each entry is one event. In a compressed day, each entry is a batch of up to 4 MB of events.

JSON: kind "day" (queue, jobset, day, state, entries), "late" (queue, jobset, entries)."""

_COLUMNS: Final = (
    Column("queue", style="bold"),
    Column("jobset", style="bold"),
    Column("day"),
    Column("state"),
    Column("entries", right=True),
)


@guarded
def ls(
    url: Url = URL_DEFAULT,
    password_file: PasswordFile = None,
    database: DatabaseNumber = 0,
    cluster: IsCluster = False,
    as_json: AsJson = False,
) -> int:
    """List the job sets of a server, and the state of each of their days."""
    output = Output(as_json=as_json)
    rows: list[list[Cell]] = []
    with connected(find_address(url, password_file, database, is_cluster=cluster, takes_cluster=True)) as server:
        from tidelog.days.listing import list_jobsets

        for jobset, days, late in list_jobsets(server):
            names: dict[str, Cell] = {"queue": jobset.queue, "jobset": jobset.jobset}
            for stream, entries in days:
                day, state = stream.day.isoformat(), "hot" if stream.is_hot else "compressed"
                rows.append([*names.values(), day, state, entries])
                if as_json:
                    output.object("day", {**names, "day": day, "state": state, "entries": entries})
            if late:
                rows.append([*names.values(), None, "late", late])
                if as_json:
                    output.object("late", {**names, "entries": late})
    if not as_json:
        output.table(_COLUMNS, rows)
    return FINE
