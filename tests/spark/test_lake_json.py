"""JSON columns: which there are, what is in them, and what is set aside."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.server_process import ServerProcess
from tests.spark.lake_check import InProcess, Lake, check
from tidelog.spark.lake.job import LakeOptions
from tidelog.spark.lake.json_columns import JsonColumns, agreed
from tidelog.spark.lake.layout import BAD, CHANGES, CURRENT, ENTRIES, SCHEMAS

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(120)]

FIXED = set(SCHEMAS[CURRENT].names)


def rows_of(*values: Any) -> pa.RecordBatch:
    """Rows of `current` with these as values; what is no bytes is made JSON."""
    texts = [value if isinstance(value, bytes | None) else json.dumps(value).encode() for value in values]
    rows = [
        {"shard": 0, "key": b"k%d" % n, "type": "string", "value": text, "ts": n, "seq": 0}
        for n, text in enumerate(texts)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMAS[CURRENT])


def expanded(columns: JsonColumns, *values: Any) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """The members of each row that are not null, and the reasons by row."""
    made, bad = columns.expand(rows_of(*values), "value")
    found = [{n: v for n, v in row.items() if n not in FIXED and v is not None} for row in made.to_pylist()]
    return found, {} if bad is None else {row["ts"]: row["reason"] for row in bad.to_pylist()}


def test_members_are_columns_of_their_types() -> None:
    columns = JsonColumns(CURRENT, {})
    value = {"is": True, "n": 1, "x": 1.5, "long": 2**60, "text": "é", "list": [1, {"a": None}], "object": {"b": 1}}
    found, bad = expanded(columns, value, {"n": 2.5, "nothing": None}, {})
    assert bad == {}
    texts = {"list": '[1,{"a":null}]', "object": '{"b":1}'}
    assert found == [{**value, "n": 1.0, **texts}, {"n": 2.5}, {}]
    assert columns.found == {
        "is": "boolean",
        "n": "double",
        "x": "double",
        "long": "bigint",
        "text": "string",
        "list": "string",
        "object": "string",
    }


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\xff{}", "it is not UTF-8"),
        (b"{", "it is not JSON"),
        (b"", "it is not JSON"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b"[1]", "it is an array, not an object"),
        (b"17", "it is a number, not an object"),
        (b"null", "it is null, not an object"),
        (b"[" * 100_000, "it is nested too deeply"),
    ],
)
def test_what_is_no_object_is_set_aside(value: bytes, reason: str) -> None:
    found, bad = expanded(JsonColumns(CURRENT, {}), {"a": 1}, value, {"a": 2})
    assert found == [{"a": 1.0}, {}, {"a": 2.0}]
    assert list(bad) == [1]
    assert reason in bad[1]


def test_however_deep_a_value_is_it_is_kept_or_set_aside() -> None:
    """Some can be read and not be written: which these are depends on how deep the caller is in the stack."""
    bad: dict[int, str] = {}
    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit() + 1):
        deep = b'{"a": ' + b"[" * depth + b"]" * depth + b', "n": 1}'
        found, bad = expanded(JsonColumns(CURRENT, {}), deep, {"a": [1], "n": 2})
        assert found[1] == {"a": "[1]", "n": 2.0}
        if 0 in bad:
            assert "it is nested too deeply" in bad[0]
            assert "a" not in found[0]
        else:
            assert found[0] == {"a": "[" * depth + "]" * depth, "n": 1.0}
    assert 0 in bad


def test_a_member_that_does_not_fit_is_null_and_set_aside() -> None:
    columns = JsonColumns(CURRENT, {"n": "double", "b": "boolean", "l": "bigint"})
    found, bad = expanded(
        columns,
        {"n": "text", "b": True, "l": 1},
        {"n": 2**60, "b": 1, "l": 2**63},
        {"n": 5, "b": False, "l": -(2**63)},
        {"s": "\ud800", "n": 1},
    )
    assert found == [{"b": True, "l": 1}, {}, {"n": 5.0, "b": False, "l": -(2**63)}, {"n": 1.0}]
    assert bad == {
        0: "member 'n': it is a text, but its column has type double",
        1: "member 'n': it does not fit exactly into a column of type double; "
        "member 'b': it is a number, but its column has type boolean; "
        "member 'l': it does not fit exactly into a column of type bigint",
        3: "member 's': it does not fit exactly into a column of type string",
    }


def test_the_first_value_decides_where_types_differ() -> None:
    columns = JsonColumns(CURRENT, {})
    found, bad = expanded(columns, {"a": "x"}, {"a": 1}, {"a": "y"})
    assert columns.found == {"a": "string"}
    assert found == [{"a": "x"}, {}, {"a": "y"}]
    assert list(bad) == [1]


def test_names_that_are_taken_or_refused_are_altered() -> None:
    columns = JsonColumns(CURRENT, {})
    value = {"key": "a", "key_": "b", "TS": "c", "a b": "d", "x.y": "e", "": "f", "Name": "g", "name": "h", 'q"': "i"}
    found, bad = expanded(columns, value, value)
    expected = {
        "key_": "a",
        "key__": "b",
        "TS_": "c",
        "a_b": "d",
        "x_y": "e",
        "_": "f",
        "Name": "g",
        "name_": "h",
        "q_": "i",
    }
    assert (found, bad) == ([expected, expected], {})
    again = JsonColumns(CURRENT, columns.found)
    assert expanded(again, {"name": "h"}) == ([{"name_": "h"}], {})
    found, bad = expanded(JsonColumns(CURRENT, {}), {"a b": 1, "a_b": 2})
    assert found == [{"a_b": 1.0}]
    assert "another has the column 'a_b'" in bad[0]


@pytest.mark.parametrize("table", [CHANGES, CURRENT])
def test_what_changes_and_what_holds_have_the_same_names(table: str) -> None:
    """A member of a value that was there when the lake began is in the column that its changes have later."""
    members = dict.fromkeys(("timestamp", "kind", "end", "day", "type"), "x")
    rows = rows_of(members)
    made, bad = JsonColumns(table, {}).expand(rows, "value")
    assert made.schema.names[len(rows.schema) :] == [f"{member}_" for member in members]
    assert bad is None


def test_there_are_only_so_many_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.limits.LAKE_JSON_COLUMNS_MAX", 2)
    found, bad = expanded(JsonColumns(CURRENT, {"a": "string"}), {"a": "1", "b": "2", "c": "3"})
    assert found == [{"a": "1", "b": "2"}]
    assert bad == {0: "member 'c': there is no room for its column"}
    assert agreed({"a": "string"}, [{"b": "string"}, {"c": "string"}]) == ({"a": "string", "b": "string"}, False)


def test_other_rows_have_no_columns() -> None:
    rows = rows_of({"a": 1}, None, {"a": 2})
    types = pa.array(["string", "stream", "hash"])
    made, bad = JsonColumns(CURRENT, {}).expand(rows.set_column(3, "type", types), "value")
    assert made.column("a").to_pylist() == [1.0, None, None]
    assert bad is None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([{"a": "string"}, {"a": "string", "b": "double"}], ({"k": "string", "a": "string", "b": "double"}, True)),
        ([{"a": "string"}, {"a": "double"}], ({"k": "string", "a": "string"}, False)),
        ([{"a": "string"}, {"A": "string"}], ({"k": "string", "a": "string"}, False)),
    ],
)
def test_tasks_have_to_agree(found: list[dict[str, str]], expected: Any) -> None:
    assert agreed({"k": "string"}, found) == expected


# --- in a lake --------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", "--shards", "3", has_flight=True) as running:
        yield running


@pytest.mark.parametrize("start", ["earliest", "initial"])
def test_new_members_become_columns_of_a_lake(server: ServerProcess, tmp_path: Path, start: str) -> None:
    folder, options = tmp_path / "lake", LakeOptions(is_json=True, start=start)
    begun = 0
    with server.client() as client:
        link: Any = client
        for number in range(30):
            client.set(f"order:{number}", json.dumps({"state": "open", "amount": number}))
        client.set("plain", "text")
        link.execute_command("TWRITE", "log", "ENTRIES", "t", '{"level": "info"}', "t", "no json")
        begun = InProcess(server.port, folder, options).take()
        client.set("order:3", json.dumps({"state": "paid", "amount": "much", "who": {"name": "x"}}))
        client.delete("order:4")
        link.execute_command("TWRITE", "log", "ENTRIES", "t", '{"level": "warn", "code": 7}')
        InProcess(server.port, folder, options).run()
        check(server.port, client, folder, since=begun if start == "initial" else 0)
    lake = Lake(folder)
    held = {row["key"]: row for row in lake.rows(CURRENT)}
    assert (held[b"order:3"]["state"], held[b"order:3"]["amount"], held[b"order:3"]["who"]) == (
        "paid",
        None,
        '{"name":"x"}',
    )
    assert (held[b"order:7"]["state"], held[b"order:7"]["amount"], held[b"order:7"]["who"]) == ("open", 7.0, None)
    entries = sorted((row["offset"], row["level"], row["code"]) for row in lake.rows(ENTRIES))
    assert entries == [(1, "info", None), (2, None, None), (3, "warn", 7.0)]
    bad = sorted((row["table"], row["key"], row["value"]) for row in lake.rows(BAD))
    first = CHANGES if start == "earliest" else CURRENT
    assert bad == sorted(
        [
            (first, b"plain", b"text"),
            (CHANGES, b"order:3", json.dumps({"state": "paid", "amount": "much", "who": {"name": "x"}}).encode()),
            (ENTRIES, b"log", b"no json"),
        ]
    )


def test_tasks_that_disagree_are_done_again(server: ServerProcess, tmp_path: Path) -> None:
    """Shards see the same member for the first time, each as something else."""
    with server.client() as client:
        for number in range(40):
            client.set(
                f"k{number}", json.dumps({"a": number if number % 2 else "text", ("B" if number % 3 else "b"): 1})
            )
        InProcess(server.port, tmp_path / "lake", LakeOptions(is_json=True)).run()
        check(server.port, client, tmp_path / "lake")
    lake = Lake(tmp_path / "lake")
    table = lake.table(CURRENT)
    assert table.num_rows == 40
    names = set(table.column_names) - FIXED
    assert len(names) == 3
    assert "a" in names
    kept = 40 - table.column("a").null_count
    assert 0 < kept < 40
    assert len(lake.rows(BAD)) == 40 - kept
