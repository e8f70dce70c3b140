"""Compares a view with its recomputation: all of its source is read and put through the SQL as a whole, by Spark.

The hashes on the server and the table in the lake are compared value by value (`comparison`). While the source
changes, a view is a little behind. So a difference counts only if nothing changed between reading the source and
reading the view; the check repeats for a while to get there.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from tidelog import limits
from tidelog.errors import ClientError
from tidelog.spark.delta.faults import TableUnusable
from tidelog.spark.delta.storage import Storage
from tidelog.spark.endpoint import Endpoint
from tidelog.spark.source.feed.position import ask_position
from tidelog.spark.views.dataflow.change_reader import ask_now
from tidelog.spark.views.dataflow.comparison import Check, ViewComparison
from tidelog.spark.views.dataflow.folders import FOLDER, view_names
from tidelog.spark.views.dataflow.maintained import MaintainedView
from tidelog.spark.views.dataflow.result_table import description, open_result
from tidelog.spark.views.sql.definition import View, ViewSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stored_views(storage: Storage, names: list[str]) -> list[View]:
    """The definitions of views in the lake; without names, of all views."""
    found = []
    for name in names or view_names(storage):
        table = open_result(storage, name)
        if table is None:
            raise ClientError(f"there is no view {name} in {storage.root}")
        about = description(table)
        try:
            kind, _, target = about["source"].partition(":")
            lookups = {alias: ViewSource(*each.split(":", 1)) for alias, each in about["lookups"].items()}
            found.append(View(name, ViewSource(kind, target), about["sql"], tuple(about["key"]), lookups))
        except (KeyError, TypeError, AttributeError):
            raise TableUnusable(
                f"{storage.uri(FOLDER)}/{name} does not say which view it is: give the definition with --file"
            ) from None
    return found


def check_view(spark: SparkSession, storage: Storage, server: Endpoint, view: View) -> Check:
    """Recompute a view, and compare."""
    kept = MaintainedView(spark, storage, server, view)
    table = _table_of(storage, view)
    deadline = time.monotonic() + limits.VIEW_CHECK_S_MAX
    while True:
        position = ask_now(server)
        expected = kept.recomputed(position)
        found = ViewComparison(kept.hashes, kept.plan, kept.result, storage).run(expected, table)
        with server.connect() as client:
            is_settled = ask_position(client).visible == position.visible
        found = found._replace(is_settled=is_settled)
        if found.is_right or is_settled or time.monotonic() > deadline:
            return found
        time.sleep(limits.VIEW_CHECK_PAUSE_S)
        if table is not None:
            table.update_incremental()


def _table_of(storage: Storage, view: View) -> DeltaTable | None:
    """The view's table, if there is one; that of another definition is refused."""
    table = open_result(storage, view.name)
    if table is not None and description(table).get("digest") != view.digest:
        raise ClientError(
            f"view {view.name} in {storage.root} was built by another definition: run `tidelog pipeline view` first"
        )
    return table
