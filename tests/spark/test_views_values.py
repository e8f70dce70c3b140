"""Values in the order of Spark, pairs of values as one key, and tables as one value."""

from __future__ import annotations

import math
import struct
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.sorted_runs import batches_of
from tidelog.spark.views.dataflow.packing import buckets_of, divided, packed, packed_row, portions, unpacked
from tidelog.spark.views.dataflow.pairs import PAIRS, netted, paired, pairs_of, split
from tidelog.spark.views.dataflow.values import from_kept, kept_type, to_kept

# --- doubles ----------------------------------------------------------------------------------------------------------

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
doubles = st.floats() | st.sampled_from([0.0, -0.0, math.nan, OTHER_NAN, math.inf, -math.inf, 5e-324, -5e-324])


def place_of(value: float) -> tuple[bool, float]:
    """As Spark orders them: NaN is larger than any number."""
    return (True, 0.0) if math.isnan(value) else (False, value)


@given(doubles, doubles)
def test_doubles_are_kept_in_their_order(one: float, other: float) -> None:
    a, b = to_kept(pa.array([one, other])).to_pylist()
    assert (a < b) == (place_of(one) < place_of(other))
    assert (a == b) == (place_of(one) == place_of(other)), "0.0 is -0.0, and NaN is NaN"


@pytest.mark.parametrize(("kind", "width"), [(pa.float64(), 64), (pa.float32(), 32)])
@given(data=st.data())
def test_doubles_come_back_as_they_were(kind: Any, width: Any, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | st.floats(width=width)))
    kept = to_kept(pa.array(values, kind))
    assert kept.type == kept_type(kind) == pa.int64()
    back = from_kept(kept, kind)
    assert back.type == kind
    for one, other in zip(pa.array(values, kind).to_pylist(), back.to_pylist(), strict=True):
        assert one == other or (math.isnan(one) and math.isnan(other))
        assert other != 0.0 or math.copysign(1, other) > 0, "there is one zero"


@pytest.mark.parametrize("kind", [pa.string(), pa.int8(), pa.bool_(), pa.date32(), pa.decimal128(10, 2), pa.binary()])
def test_other_values_are_kept_as_they_are(kind: Any) -> None:
    values = pa.nulls(2, kind)
    assert (kept_type(kind), to_kept(values), from_kept(values, kind)) == (kind, values, values)


def test_values_in_chunks_are_kept() -> None:
    chunked = pa.chunked_array([[1.5], [], [None, -2.0]], pa.float64())
    assert from_kept(to_kept(chunked), pa.float64()).to_pylist() == [1.5, None, -2.0]


# --- pairs ------------------------------------------------------------------------------------------------------------

zeros = st.lists(st.sampled_from([b"\0", b"\1", b"\2", b"a", b"\xff"]), max_size=5).map(b"".join)


def key_of(first: bytes, second: bytes) -> Any:
    return paired(pa.array([first], pa.binary()), pa.array([second], pa.binary()))[0].as_py()


@given(st.tuples(zeros, zeros), st.tuples(zeros, zeros))
def test_no_two_pairs_have_the_same_key(one: tuple[bytes, bytes], other: tuple[bytes, bytes]) -> None:
    assert split(key_of(*one)) == one
    assert (key_of(*one) == key_of(*other)) == (one == other)
    if one[0] != other[0]:
        assert (key_of(*one) < key_of(*other)) == (one[0] < other[0]), "sorted by the first"


@given(
    st.lists(st.lists(st.tuples(zeros, zeros, st.sampled_from([-1, 1, 1])), max_size=12), max_size=5),
    st.sets(zeros),
    st.integers(1, 4),
)
def test_pairs_are_found_by_the_first(
    batches: list[list[tuple[bytes, bytes, int]]], firsts: set[bytes], rows_max: int
) -> None:
    runs, expected = [], dict[tuple[bytes, bytes], bool]()
    for batch in batches:
        net = Counter[tuple[bytes, bytes]]()
        for first, second, sign in batch:
            net[first, second] += sign
        expected |= {pair: weight > 0 for pair, weight in net.items() if weight}
        one, other = (pa.array([each[n] for each in batch], pa.binary()) for n in range(2))
        table = netted(one, other, np.array([sign for _, _, sign in batch], np.int64))
        assert table.schema == PAIRS
        if len(table):
            runs.append(batches_of(table, rows_max))
    found = pairs_of(runs, pa.array(list(firsts), pa.binary()))
    assert sorted(found) == sorted(pair for pair, is_there in expected.items() if is_there and pair[0] in firsts)


# --- tables as one value ----------------------------------------------------------------------------------------------


def test_tables_are_what_they_were() -> None:
    tables = [
        pa.table({"a": [1, None], "b": ["x", "ü"]}),
        pa.table({"c": pa.array([], pa.struct([("d", pa.binary())]))}),
        pa.concat_tables([pa.table({"e": [[b"1"], None]}), pa.table({"e": [[b"2", b""]]})]),
    ]
    assert [each.to_pylist() for each in unpacked(packed(tables))] == [each.to_pylist() for each in tables]
    assert [each.schema for each in unpacked(packed(tables))] == [each.schema for each in tables]
    assert unpacked(packed([])) == []


@pytest.mark.parametrize("count", [1, 4, 7])
def test_each_row_is_in_the_bucket_of_its_key(count: int) -> None:
    keys = [b"%d" % (number % 50) for number in range(500)]
    table = pa.table({"n": range(500), "key": pa.array(keys, pa.binary())})
    parts = divided(table, "key", count)
    assert len(parts) == count
    assert sorted(n for part in parts for n in part["n"].to_pylist()) == list(range(500))
    for number, part in enumerate(parts):
        assert part["n"].to_pylist() == sorted(part["n"].to_pylist()), "in their order"
        assert set(buckets_of(part["key"], count).tolist()) <= {number}
        assert len(part) < 2 * 500 / count


def test_the_bucket_of_a_key_never_changes() -> None:
    """Files are divided by it."""
    keys = pa.array([b"", b"a", b"order:1", b"\xff"], pa.binary())
    assert buckets_of(keys, 4).tolist() == [0, 3, 1, 0]
    assert buckets_of(keys, 1000).tolist() == [0, 907, 569, 80]
    assert buckets_of(keys, 1).tolist() == [0, 0, 0, 0]


def test_what_was_packed_comes_in_portions() -> None:
    rows = [packed_row(0, [pa.table({"a": list(range(count))})]) for count in (3, 1, 5, 2)]
    batches = [pa.Table.from_batches(rows[:3]).combine_chunks().to_batches()[0], rows[3]]
    for rows_max, expected in ((1, [[3], [1], [5], [2]]), (4, [[3, 1], [5], [2]]), (100, [[3, 1, 5, 2]])):
        found = [[len(table) for tables in some for table in tables] for some in portions(batches, rows_max)]
        assert found == expected
    assert list(portions([], 1)) == []
