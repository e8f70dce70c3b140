"""`tidelog view drop`: remove a view that is kept no more."""

from __future__ import annotations

from typing import Final

from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import BUSY, FINE, complain, guarded
from tidelog.cli.options import AsJson, Database, PasswordFile, StorageOptions, To, Url, ViewName
from tidelog.cli.output.stdout import Output
from tidelog.cli.pipeline.session import needs_spark
from tidelog.cli.server_link import connected, find_address

EPILOG: Final = """\
Examples:

  tidelog view drop orders_by_state --to lake

A view that is taken out of its file stays as it was, and is changed no more. This removes its hashes view:NAME:*, its
table, and all that `tidelog pipeline view` has noted of it. One that is still in a file is built anew by the next run.

JSON: kind "dropped" (view, hashes).

Exit status: 0, 2 if it cannot be done (no server, no such view), 3 if a job keeps it."""


@guarded
def drop(
    name: ViewName,
    to: To,
    url: Url = URL_DEFAULT,
    password_file: PasswordFile = None,
    database: Database = 0,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> int:
    """Remove a view: its hashes, its table, and what is noted of it."""
    address = find_address(url, password_file, database)
    output = Output(as_json=as_json)
    with needs_spark():
        from tidelog.spark.jobs.holding import JobRunning
        from tidelog.spark.lake.storage import find_storage
        from tidelog.spark.views.dropping import drop_view
    place = find_storage(to, storage or ())
    try:
        with connected(address) as client:
            hashes = drop_view(client, place, name, address.database)
    except JobRunning as error:
        complain(str(error))
        return BUSY
    if as_json:
        output.object("dropped", {"view": name, "hashes": hashes})
    else:
        output.line(f"view {name} is gone, with {hashes} hashes")
    return FINE
