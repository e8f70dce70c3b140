"""Compares a view with its recomputation: all of its source is read and put through the SQL as a whole, by Spark.

The hashes on the server and the table in the lake are compared value by value. Fractions may differ in their last
digits, because they are added in another order. While the source changes, a view is a little behind. So a difference
counts only if nothing changed between reading the source and reading the view; the check repeats for a while to get
there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from tidelog import limits
from tidelog.errors import ClientError
from tidelog.spark.delta.faults import TableUnusable
from tidelog.spark.delta.storage import Storage
from tidelog.spark.endpoint import Endpoint
from tidelog.spark.source.feed.position import ask_position
from tidelog.spark.views.keeping.change_reader import read_everything
from tidelog.spark.views.keeping.folders import FOLDER, view_names
from tidelog.spark.views.keeping.maintained import MaintainedView
from tidelog.spark.views.keeping.result_table import description, open_result
from tidelog.spark.views.keeping.results import Hashes, rows_by_group
from tidelog.spark.views.sql.definition import View, ViewSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Fields = Mapping[bytes, bytes]


class Differences(NamedTuple):
    """Keys of rows that differ."""

    missing: list[str]
    wrong: list[str]
    extra: list[str]

    @property
    def number(self) -> int:
        return len(self.missing) + len(self.wrong) + len(self.extra)


class Check(NamedTuple):
    """The result of a check."""

    view: str
    rows: int
    """That the recomputation has."""
    hashes: Differences
    table: Differences
    is_settled: bool
    """False: something kept changing, so the view may only be a little behind."""

    @property
    def is_right(self) -> bool:
        return not self.hashes.number and not self.table.number


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
    _table_of(storage, view)
    deadline = time.monotonic() + limits.VIEW_CHECK_S_MAX
    while True:
        point, changes = read_everything(spark, server, list(kept.wanted.values()))
        expected = kept.recomputed(changes)
        found = _compared(storage, server, kept, expected)
        with server.connect() as client:
            is_settled = ask_position(client).visible == point.ts
        found = found._replace(is_settled=is_settled)
        if found.is_right or is_settled or time.monotonic() > deadline:
            return found
        time.sleep(limits.VIEW_CHECK_PAUSE_S)


def _compared(storage: Storage, server: Endpoint, kept: MaintainedView, expected: pa.Table) -> Check:
    plan, name = kept.plan, kept.view.name
    hashes = Hashes(server, plan, name)
    wanted = hashes.texts(rows_by_group(plan, expected), expected.schema)
    wanted = {group: fields for group, fields in wanted.items() if fields}
    numbers = {field.name.encode() for field in expected.schema if pa.types.is_floating(field.type)}
    with server.connect() as client:
        there: dict[str, dict[bytes, bytes]] = {}
        for some in hashes.read(client):
            there |= some
    delta = _table_of(storage, kept.view)
    table = expected.schema.empty_table() if delta is None else delta.to_pyarrow_table().cast(expected.schema)
    in_lake = hashes.texts(rows_by_group(plan, table), expected.schema)
    in_lake = {group: fields for group, fields in in_lake.items() if fields}
    return Check(name, len(expected), _different(wanted, there, numbers), _different(wanted, in_lake, numbers), True)


def _table_of(storage: Storage, view: View) -> DeltaTable | None:
    """The view's table, if there is one; that of another definition is refused."""
    table = open_result(storage, view.name)
    if table is not None and description(table).get("digest") != view.digest:
        raise ClientError(
            f"view {view.name} in {storage.root} was built by another definition: run `tidelog pipeline view` first"
        )
    return table


def _different(wanted: Mapping[str, Fields], there: Mapping[str, Fields], numbers: set[bytes]) -> Differences:
    wrong = [group for group in wanted.keys() & there.keys() if not _is_same(wanted[group], there[group], numbers)]
    return Differences(sorted(wanted.keys() - there.keys()), sorted(wrong), sorted(there.keys() - wanted.keys()))


def _is_same(one: Fields, other: Fields, numbers: set[bytes]) -> bool:
    if one == other:
        return True
    if one.keys() != other.keys():
        return False
    return all(
        value == other[name] or (name in numbers and _is_close(value, other[name])) for name, value in one.items()
    )


def _is_close(one: bytes, other: bytes) -> bool:
    try:
        return math.isclose(float(one), float(other), rel_tol=1e-9, abs_tol=1e-9)
    except ValueError:
        return False
