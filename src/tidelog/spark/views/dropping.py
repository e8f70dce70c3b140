"""A view that nobody wants any more: its hashes, its table, what it goes on from, and what was said of it.

Whoever drops a view holds its lease, so no job keeps it meanwhile. What a job would go on from goes first and what
lists the view last: if this is killed, it can be done again, and a job that keeps the view builds it anew.
"""

from __future__ import annotations

from typing import Any

from tidelog import limits
from tidelog.errors import ClientError
from tidelog.keys import JOB_INDEX, PIPELINE_PREFIX
from tidelog.spark.jobs.holding import take_lease
from tidelog.spark.lake.storage import Storage
from tidelog.spark.views.definition import NAME
from tidelog.spark.views.folders import FOLDER, remove_view
from tidelog.spark.views.naming import hash_prefix, lease_of
from tidelog.spark.views.result_table import open_result, refuse_other_database


def drop_view(client: Any, storage: Storage, name: str, database: int) -> int:
    """Remove a view of a server and of a lake; how many hashes it had."""
    if not NAME.fullmatch(name):
        raise ClientError(f"{name!r} is no name of a view: `tidelog view ls` lists those that there are")
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
