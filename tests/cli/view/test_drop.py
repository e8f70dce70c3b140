"""`tidelog view drop` against a real server and a real lake: what goes, and what stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cli.view_hashes import Kept

pytest.importorskip("deltalake")

from tidelog.spark.delta.storage import find_storage
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.views.dataflow.result_table import ResultTable
from tidelog.spark.views.dataflow.shown_rows import ShownRows
from tidelog.spark.views.sql.definition import View, ViewSource

SQL = "select count(*) as n from source"


def lake_with(folder: Path, *names: str, database: int = 0) -> None:
    """Views with a table each, which has no rows: they have no buckets, so nothing is left to do for Spark."""
    none: Any = None
    for name in names:
        view = View(name, ViewSource("prefix", "order:"), SQL, ())
        schema = pa.schema([("n", pa.int64())])
        rows = ShownRows(none, none, schema, none, ())
        table = ResultTable(find_storage(str(folder)), view, schema, database)
        table.write(none, rows, (), "token", HistoryPoint(1, 1))
        (folder / "_state" / name / "0-abc" / "source").mkdir(parents=True)


def folders(lake: Path) -> list[str]:
    return sorted(f"{each.parent.name}/{each.name}" for each in lake.glob("*/*"))


def test_a_view_goes_with_all_that_it_has_and_others_stay(kept: Kept, tmp_path: Path) -> None:
    lake_with(tmp_path, "orders", "orders2")
    for name in ("orders", "orders2"):
        kept.put(name, new={"n": "2"}, paid={"n": "1"})
    outcome = kept.view("drop", "orders", "--to", str(tmp_path))
    assert (outcome.status, outcome.stdout) == (0, "view orders is gone, with 2 hashes\n"), outcome.stderr
    assert folders(tmp_path) == ["_state/orders2", "views/orders2"]
    assert sorted(kept.client.scan_iter(match="view:*")) == [b"view:orders2:new", b"view:orders2:paid"]
    assert kept.client.smembers("tidelog:pipeline:jobs") == {b"view:orders2", b"view", b"lake"}
    assert not kept.client.exists("tidelog:pipeline:view:orders", "tidelog:pipeline:lease:view:orders")
    outcome = kept.view("drop", "orders", "--to", str(tmp_path))
    assert outcome.status == 2
    assert "there is no view orders" in outcome.stderr
    outcome = kept.view("drop", "orders2", "--to", str(tmp_path), "--json")
    assert outcome.objects == [{"kind": "dropped", "view": "orders2", "hashes": 2}]


def test_a_view_that_a_job_keeps_is_not_dropped(kept: Kept, tmp_path: Path) -> None:
    lake_with(tmp_path, "orders")
    kept.put("orders", new={"n": "2"})
    kept.client.set("tidelog:pipeline:lease:view:orders", "another's", px=60_000)
    outcome = kept.view("drop", "orders", "--to", str(tmp_path))
    assert outcome.status == 3
    assert "another job has the lease 'view:orders'" in outcome.stderr
    assert folders(tmp_path) == ["_state/orders", "views/orders"]
    assert kept.client.exists("view:orders:new")


@pytest.mark.parametrize("name", ["../views/orders", "a:b", "*", ""])
def test_what_is_no_name_removes_nothing(kept: Kept, tmp_path: Path, name: str) -> None:
    lake_with(tmp_path, "orders")
    kept.put("orders", new={"n": "2"})
    outcome = kept.view("drop", name, "--to", str(tmp_path))
    assert outcome.status == 2
    assert "is not the name of a view" in outcome.stderr
    assert folders(tmp_path) == ["_state/orders", "views/orders"]
    assert kept.client.exists("view:orders:new")


def test_a_view_of_another_database_is_not_dropped(kept: Kept, tmp_path: Path) -> None:
    lake_with(tmp_path, "orders", database=1)
    kept.put("orders", new={"n": "2"})
    outcome = kept.view("drop", "orders", "--to", str(tmp_path))
    assert outcome.status == 2
    assert "was made from database 1" in outcome.stderr
    assert kept.client.exists("view:orders:new")
