"""Removes a view: its hashes, its table, its state, and its report.

Dropping takes the lease of the view, so no job keeps it meanwhile. The state goes first and the entry that lists the
view last. If dropping is killed, it can be repeated, and a job that keeps the view builds it anew.
"""

from __future__ import annotations

from typing import Any

from tidelog import limits
from tidelog.errors import ClientError
from tidelog.keys import JOB_INDEX, PIPELINE_PREFIX
from tidelog.spark.delta.storage import Storage
from tidelog.spark.jobs.job_lease import take_lease
from tidelog.spark.views.dataflow.folders import FOLDER, remove_view
from tidelog.spark.views.dataflow.result_table import open_result, refuse_other_database
from tidelog.spark.views.naming import VIEW_NAME, hash_prefix, lease_of


def drop_view(client: Any, storage: Storage, name: str, database: int) -> int:
    """Remove a view from a server and a lake. Returns how many hashes it had."""
    if not VIEW_NAME.fullmatch(name):
        raise ClientError(f"{name!r} is not the name of a view: `tidelog view ls` lists all views")
    table = open_result(storage, name)
    if table is not None:
        refuse_other_database(table, f"{storage.uri(FOLDER)}/{name}", database)
    part = lease_of(name)
    lease = take_lease(client, "drop", limits.LEASE_MS_DEFAULT, part, (part,))
    try:
        is_there = remove_view(storage, name)
        count = 0
        cursor: Any = None
        while cursor != 0:
            lease.renew()
            cursor, keys = client.scan(cursor or 0, match=f"{hash_prefix(name)}*", count=limits.VIEW_SCAN_KEYS)
            count += int(client.delete(*keys)) if keys else 0
        is_listed = client.delete(PIPELINE_PREFIX + part) + client.srem(JOB_INDEX, part)
    finally:
        lease.release()
    if not is_there and not count and not is_listed:
        raise ClientError(f"there is no view {name}, neither on the server nor in {storage.root}")
    return count
