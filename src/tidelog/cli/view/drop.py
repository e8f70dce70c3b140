"""`tidelog view drop`: removes a view that is no longer kept up to date."""

from __future__ import annotations

from typing import Final

from tidelog.address import URL_DEFAULT
from tidelog.cli.exits import BUSY, FINE, complain, guarded
from tidelog.cli.options import AsJson, DatabaseNumber, PasswordFile, StorageOptions, To, Url, ViewName
from tidelog.cli.output.stdout import Output
from tidelog.cli.pipeline.session import needs_spark
from tidelog.cli.server_link import connected, find_address

EPILOG: Final = """\
Examples:

  tidelog view drop orders_by_state --to lake

If you take a view out of its file, its hashes and its table stay, and are no longer updated. This command removes the
hashes view:NAME:*, the table, and everything else that `tidelog pipeline view` has stored for the view. If the view is
still in a file, the next run builds it again.

JSON: kind "dropped" (view, hashes).

Exit status: 0, 2 if the view could not be removed (no server, no such view), 3 if a job keeps it up to date."""


@guarded
def drop(
    name: ViewName,
    to: To,
    url: Url = URL_DEFAULT,
    password_file: PasswordFile = None,
    database: DatabaseNumber = 0,
    storage: StorageOptions = None,
    as_json: AsJson = False,
) -> int:
    """Remove a view: its hashes, its table and its records."""
    address = find_address(url, password_file, database)
    output = Output(as_json=as_json)
    with needs_spark():
        from tidelog.spark.delta.storage import find_storage
        from tidelog.spark.jobs.job_lease import JobRunning
        from tidelog.spark.views.dataflow.dropping import drop_view
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
