"""The rows of a view as hashes on a real server, and as a table in a lake."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.spark.conftest import Peer
from tests.spark.kept_views import hashes_of
from tidelog import limits
from tidelog.spark.delta.faults import TableTaken, TableUnusable
from tidelog.spark.delta.storage import find_storage
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.endpoint import take_endpoint
from tidelog.spark.options import Options
from tidelog.spark.views.keeping.result_table import ResultTable, open_result
from tidelog.spark.views.keeping.results import Difference, Hashes, Results, rows_by_group, texts_of
from tidelog.spark.views.sql.definition import View, ViewSource
from tidelog.spark.views.sql.query import plan_view

VIEW = View(
    "v", ViewSource("stream", "s"), "select a, b, count(*) as n, max(x) as hi from source group by a, b", ("a", "b")
)
SCHEMA = pa.schema([("a", pa.string()), ("b", pa.int32()), ("n", pa.int64()), ("hi", pa.string())])
POINT = HistoryPoint(1, 1)


def table(*rows: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


# --- what is different ------------------------------------------------------------------------------------------------


def test_only_what_is_different_is_told() -> None:
    results = Results(plan_view(VIEW))
    first = results.update(None, table(("x", 1, 5, None), ("y", None, 1, "u")))
    assert (set(first.changed), set(first.gone)) == ({"x:1", "y:%"}, set())
    same = results.update(["x:1", "never"], table(("x", 1, 5, None)))
    assert not same
    later = results.update(["x:1", "y:%"], table(("x", 1, 6, None)))
    assert (later.changed, later.gone) == ({"x:1": ("x", 1, 6, None)}, {"y:%": ("y", None, 1, "u")})
    assert results.rows == {"x:1": ("x", 1, 6, None)}
    assert results.update(None, table()).gone == {"x:1": ("x", 1, 6, None)}


def test_nan_is_what_it_was() -> None:
    view = View("v", ViewSource("stream", "s"), "select a, max(x) as x from source group by a", ("a",))
    schema = pa.schema([("a", pa.string()), ("x", pa.float64())])
    results = Results(plan_view(view))
    assert results.update(None, table(("k", math.nan), schema=schema))
    assert not results.update(None, table(("k", math.nan), schema=schema))
    assert results.update(None, table(("k", 1.0), schema=schema))


# --- hashes -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def hashes(tide: Peer) -> Hashes:
    return Hashes(take_endpoint(Options({"url": tide.url})), plan_view(VIEW), "v")


def test_hashes_have_the_columns_that_are_not_null(tide: Peer, hashes: Hashes) -> None:
    rows = {"x:1": ("x", 1, 5, None), "%:%": (None, None, 1, "u"), ":0": ("", 0, 0, "")}
    hashes.write(Difference(rows, {}), SCHEMA)
    assert hashes_of(tide.client, "v") == {
        "view:v:x:1": {"a": "x", "b": "1", "n": "5"},
        "view:v:%:%": {"n": "1", "hi": "u"},
        "view:v::0": {"a": "", "b": "0", "n": "0", "hi": ""},
    }
    hashes.write(Difference({"%:%": (None, None, 2, None)}, {"x:1": rows["x:1"]}), SCHEMA)
    assert hashes_of(tide.client, "v") == {
        "view:v:%:%": {"n": "2"},
        "view:v::0": {"a": "", "b": "0", "n": "0", "hi": ""},
    }


def test_a_row_of_nulls_alone_has_no_hash(tide: Peer, hashes: Hashes) -> None:
    hashes.write(Difference({"%:%": (None, None, 1, None)}, {}), SCHEMA)
    hashes.write(Difference({"%:%": (None, None, None, None)}, {}), SCHEMA)
    assert hashes_of(tide.client, "v") == {}
    assert hashes.reconcile({"%:%": (None, None, None, None)}, SCHEMA) == 0


def test_reconciling_makes_everything_right_and_touches_nothing_else(tide: Peer, hashes: Hashes) -> None:
    rows = {f"{number}:1": (str(number), 1, number, None) for number in range(2500)}
    assert hashes.reconcile(rows, SCHEMA) == 2500
    expected = hashes_of(tide.client, "v")
    assert len(expected) == 2500
    assert hashes.reconcile(rows, SCHEMA) == 0
    tide.call("DEL", "view:v:7:1")
    tide.call("HSET", "view:v:8:1", "n", "9")
    tide.call("HSET", "view:v:9:1", "old", "column")
    tide.call("HDEL", "view:v:10:1", "n")
    tide.call("HSET", "view:v:gone:1", "n", "9")
    tide.call("HSET", b"view:v:\xff", "n", "9")
    tide.call("SET", "view:v:text", "no hash")
    tide.call("DEL", "view:v:11:1")
    tide.call("SADD", "view:v:11:1", "no hash")
    tide.call("HSET", "view:v2:1:1", "n", "not ours")
    assert hashes.reconcile(rows, SCHEMA) == 8
    assert hashes_of(tide.client, "v") == expected
    assert tide.call("HGETALL", "view:v2:1:1")
    assert hashes.reconcile({}, SCHEMA) == 2500
    assert hashes_of(tide.client, "v") == {}


def test_values_as_text() -> None:
    moment = datetime(2026, 3, 1, 10, 0, 0, 500_000, UTC)
    cases: list[tuple[Any, pa.DataType, str | None]] = [
        (0.1, pa.float64(), "0.1"),
        (1e300, pa.float64(), "1e+300"),
        (math.nan, pa.float64(), "nan"),
        (None, pa.float64(), None),
        (True, pa.bool_(), "true"),
        (Decimal("1.50"), pa.decimal128(10, 2), "1.50"),
        (date(2026, 3, 1), pa.date32(), "2026-03-01"),
        (moment, pa.timestamp("us", "UTC"), "2026-03-01 10:00:00.5"),
        ("ü", pa.string(), "ü"),
        (-(2**63), pa.int64(), str(-(2**63))),
    ]
    for value, kind, expected in cases:
        assert texts_of(pa.array([value], kind)) == [expected]


# --- the table --------------------------------------------------------------------------------------------------------


def rows_in(folder: Path) -> list[tuple[Any, ...]]:
    found = DeltaTable(str(folder / "views" / "v")).to_pyarrow_table()
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def test_a_table_gets_what_is_different(tmp_path: Path) -> None:
    made = ResultTable(find_storage(str(tmp_path)), VIEW, SCHEMA)
    assert (made.point, made.is_ours, made.version) == (None, False, 1)
    rows = {"x:1": ("x", 1, 5, None), "%:%": (None, None, 1, "u"), "%:2": (None, 2, 1, "u"), "y:%": ("y", None, 1, "")}
    made.replace(rows, POINT)
    assert (made.point, made.is_ours, made.version) == (POINT, True, 1)
    changed = {"%:%": (None, None, 2, None), "new:3": ("new", 3, 1, "v")}
    made.merge(Difference(changed, {"y:%": rows["y:%"], "never:0": ("never", 0, 0, None)}), HistoryPoint(2, 1))
    expected = [rows["x:1"], rows["%:2"], changed["%:%"], changed["new:3"]]
    assert rows_in(tmp_path) == sorted(expected, key=repr)
    assert ResultTable(find_storage(str(tmp_path)), VIEW, SCHEMA).point == HistoryPoint(2, 1)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.timestamp("us", "UTC"), datetime(2026, 3, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)),
        (pa.date32(), date(2026, 3, 1), date(1, 1, 1)),
        (pa.bool_(), True, False),
        (pa.int8(), 1, -1),
        (pa.decimal128(38, 10), Decimal("1.5"), Decimal("-0.0000000001")),
    ],
)
def test_keys_of_any_type_are_found_again(tmp_path: Path, kind: pa.DataType, one: Any, other: Any) -> None:
    schema = pa.schema([("a", kind), ("b", kind), ("n", pa.int64())])
    made = ResultTable(find_storage(str(tmp_path)), VIEW, schema)
    keys = [(a, b) for a in (one, other, None) for b in (one, other, None)]
    made.replace({repr(key): (*key, 1) for key in keys}, POINT)
    made.merge(
        Difference({repr(key): (*key, 2) for key in keys[:5]}, {repr(keys[8]): (*keys[8], 1)}), HistoryPoint(2, 1)
    )
    counts = [row[2] for row in rows_in(tmp_path)]
    assert sorted(counts) == [1, 1, 1, 2, 2, 2, 2, 2]


def test_a_view_without_a_key_is_one_row(tmp_path: Path) -> None:
    view = View("v", ViewSource("stream", "s"), "select count(*) as n from source", ())
    made = ResultTable(find_storage(str(tmp_path)), view, pa.schema([("n", pa.int64())]))
    made.replace({"": (0,)}, POINT)
    made.merge(Difference({"": (7,)}, {}), HistoryPoint(2, 1))
    assert rows_in(tmp_path) == [(7,)]


def test_another_definition_takes_the_place_of_the_first(tmp_path: Path) -> None:
    storage = find_storage(str(tmp_path))
    ResultTable(storage, VIEW, SCHEMA).replace({"x:1": ("x", 1, 5, None)}, POINT)
    view = View("v", ViewSource("stream", "s"), "select c, count(*) as n from source group by c", ("c",))
    schema = pa.schema([("c", pa.string()), ("n", pa.int64())])
    made = ResultTable(storage, view, schema)
    assert (made.is_ours, made.version) == (False, 2)
    made.replace({"z": ("z", 1)}, HistoryPoint(2, 1))
    assert (made.is_ours, made.version) == (True, 2)
    assert rows_in(tmp_path) == [("z", 1)]
    made.merge(Difference({"z": ("z", 2)}, {}), HistoryPoint(3, 1))
    assert rows_in(tmp_path) == [("z", 2)]
    assert ResultTable(storage, VIEW, SCHEMA).version == 3


def test_a_table_of_another_database_is_left_alone(tmp_path: Path) -> None:
    storage = find_storage(str(tmp_path))
    ResultTable(storage, VIEW, SCHEMA, 1).replace({"x:1": ("x", 1, 5, None)}, POINT)
    assert ResultTable(storage, VIEW, SCHEMA, 1).is_ours
    with pytest.raises(TableUnusable, match="was made from database 1, and now it is 0"):
        ResultTable(storage, VIEW, SCHEMA)


def test_small_files_are_put_together_and_the_place_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ResultTable(find_storage(str(tmp_path)), VIEW, SCHEMA)
    made.replace({}, POINT)
    rows = {f"x:{number}": ("x", number, 1, None) for number in range(4)}
    for number, (name, row) in enumerate(rows.items()):
        if number == 3:
            assert len(DeltaTable(str(tmp_path / "views" / "v")).file_uris()) == 3
            monkeypatch.setattr(limits, "VIEW_VACUUM_S", -1.0)
        made.merge(Difference({name: row}, {}), HistoryPoint(2 + number, 1))
    assert len(DeltaTable(str(tmp_path / "views" / "v")).file_uris()) == 1
    assert rows_in(tmp_path) == sorted(rows.values(), key=repr)
    assert made.point == ResultTable(find_storage(str(tmp_path)), VIEW, SCHEMA).point == HistoryPoint(5, 1)
    made.merge(Difference({}, rows), HistoryPoint(6, 1))
    assert rows_in(tmp_path) == []


def test_who_comes_second_is_told(tmp_path: Path) -> None:
    storage = find_storage(str(tmp_path))
    ResultTable(storage, VIEW, SCHEMA).replace({}, POINT)
    one, other = ResultTable(storage, VIEW, SCHEMA), ResultTable(storage, VIEW, SCHEMA)
    one.merge(Difference({"x:1": ("x", 1, 5, None)}, {}), HistoryPoint(2, 1))
    with pytest.raises(TableTaken, match="another job wrote to this table"):
        other.merge(Difference({"x:1": ("x", 1, 6, None)}, {}), HistoryPoint(2, 1))
    assert rows_in(tmp_path) == [("x", 1, 5, None)]


def test_a_table_that_is_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "views" / "v"), pa.table({"a": [1]}))
    with pytest.raises(TableUnusable, match="did not make"):
        open_result(find_storage(str(tmp_path)), "v")


def test_rows_are_named_by_their_key_whatever_their_order() -> None:
    found = rows_by_group(plan_view(VIEW), table(("a:b", 1, 1, None), (None, None, 1, None)))
    assert found == {"a%3Ab:1": ("a:b", 1, 1, None), "%:%": (None, None, 1, None)}
