"""The rows of a view as hashes on a real server."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import Peer
from tests.spark.kept_views import hashes_of
from tests.spark.shown_groups import SCHEMA, ShownGroups
from tidelog import limits
from tidelog.spark.endpoint import take_endpoint
from tidelog.spark.options import Options
from tidelog.spark.views.dataflow.correction import Correction
from tidelog.spark.views.dataflow.hashes import Hashes, texts_of
from tidelog.spark.views.dataflow.packing import buckets_of

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def hashes(tide: Peer) -> Hashes:
    return Hashes(take_endpoint(Options({"url": tide.url})), "v", tuple(SCHEMA.names))


def fields_of(hashes: Hashes, rows: Mapping[str, tuple[Any, ...]]) -> dict[bytes, dict[bytes, bytes]]:
    table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows.values()], SCHEMA)
    return hashes.fields([group.encode() for group in rows], table)


def test_hashes_have_the_columns_that_are_not_null(tide: Peer, hashes: Hashes) -> None:
    rows = {"x:1": ("x", 1, 5, None), "%:%": (None, None, 1, "u"), ":0": ("", 0, 0, "")}
    hashes.write(fields_of(hashes, rows), [])
    assert hashes_of(tide.client, "v") == {
        "view:v:x:1": {"a": "x", "b": "1", "n": "5"},
        "view:v:%:%": {"n": "1", "hi": "u"},
        "view:v::0": {"a": "", "b": "0", "n": "0", "hi": ""},
    }
    hashes.write(fields_of(hashes, {"%:%": (None, None, 2, None)}), [b"x:1"])
    assert hashes_of(tide.client, "v") == {
        "view:v:%:%": {"n": "2"},
        "view:v::0": {"a": "", "b": "0", "n": "0", "hi": ""},
    }
    hashes.write({}, [])


def test_a_row_of_nulls_alone_has_no_hash(tide: Peer, hashes: Hashes) -> None:
    hashes.write(fields_of(hashes, {"%:%": (None, None, 1, None)}), [])
    nothing = fields_of(hashes, {"%:%": (None, None, None, None)})
    hashes.write(nothing, [])
    assert hashes_of(tide.client, "v") == {}
    assert hashes.correct(tide.client, nothing) == 0


def test_more_rows_than_are_sent_together(tide: Peer, hashes: Hashes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VIEW_CALLS", 7)
    rows = {f"{number}:1": (str(number), 1, number, None) for number in range(50)}
    hashes.write(fields_of(hashes, rows), [])
    assert len(hashes_of(tide.client, "v")) == 50
    hashes.write({}, [group.encode() for group in list(rows)[:45]])
    assert len(hashes_of(tide.client, "v")) == 5


@pytest.mark.timeout(300)
def test_correcting_makes_everything_right_and_touches_nothing_else(
    spark: SparkSession, tide: Peer, hashes: Hashes, tmp_path: Path
) -> None:
    names = [f"{number}:1" for number in range(2500)]
    buckets = buckets_of(pa.array(map(str.encode, names), pa.binary()), 3)
    groups = ShownGroups(tmp_path, 3)
    for bucket in range(3):
        some = [name for name, each in zip(names, buckets, strict=True) if each == bucket]
        groups.put(bucket, {name: (name[:-2], 1, int(name[:-2]), None) for name in some})
        groups.put(bucket, {name: None for name in some if name.startswith("24")})
    correction = Correction(hashes, groups.rows())
    assert correction.run(spark) == 2500 - 111
    expected = hashes_of(tide.client, "v")
    assert len(expected) == 2500 - 111
    assert expected["view:v:7:1"] == {"a": "7", "b": "1", "n": "7"}
    assert correction.run(spark) == 0
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
    assert correction.run(spark) == 8
    assert hashes_of(tide.client, "v") == expected
    assert tide.call("HGETALL", "view:v2:1:1")
    assert Correction(hashes, ShownGroups(tmp_path / "other", 2).rows()).run(spark) == 2500 - 111
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
