"""What changes come to: against a dict that is changed one after the other, and against the server's own answers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.lake_check import Here
from tidelog.spark.delta.storage import find_storage
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.lake.current import Current
from tidelog.spark.lake.fold import DeletedRange, fold, reduced
from tidelog.spark.lake.layout import CHANGES, CURRENT, SCHEMAS, SEQ_INITIAL, file_schema
from tidelog.spark.lake.part_files import PartFiles
from tidelog.spark.lake.tables import open_table
from tidelog.spark.lake.upsert import Upsert

Change = dict[str, Any]

KEYS = [b"a", b"b", b"ba", b"c\xff", b"\xff"]
FIELDS = [b"", b"f", b"g\x00"]


def changed(kind: str, key: bytes, number: int) -> list[Change]:
    """What a feed says of something that happens to a key."""
    plain: Change = {"kind": "value", "key": key, "type": None, "field": None, "value": None, "end": None}
    field, value = FIELDS[number % len(FIELDS)], b"%d" % number
    match kind:
        case "set":
            return [plain | {"type": "none"}, plain | {"type": "string", "value": value}]
        case "hset":
            return [plain | {"type": "hash", "field": field, "value": value}]
        case "hdel":
            return [plain | {"type": "hash", "field": field}]
        case "xadd":
            return [plain | {"type": "none"}, plain | {"type": "stream"}]
        case "copy":
            return [
                plain | {"type": "none"},
                plain | {"type": "stream", "field": b"copy", "value": b"1,2,5-0,0-0,2,0,a"},
            ]
        case "evict":
            return [plain | {"type": "stream", "field": b"evict", "value": b"3"}]
        case "lpush":
            return [plain | {"type": "none"}, plain | {"type": "list", "field": b"lpush", "value": b'["a"]'}]
        case "rpop":
            return [plain | {"type": "list", "field": b"rpop", "value": b'["a"]'}]
        case "del":
            return [plain | {"type": "none"}]
        case _:
            end = KEYS[number % len(KEYS)] if number % 2 else b""
            return [plain | {"kind": "deleterange", "end": end}]


happenings = st.lists(
    st.tuples(
        st.sampled_from(
            ["set", "hset", "hset", "hdel", "xadd", "copy", "evict", "lpush", "rpop", "del", "deleterange"]
        ),
        st.sampled_from(KEYS),
        st.integers(0, 5),
        st.integers(0, 1),
    ),
    max_size=30,
)


def rows_of(happened: list[tuple[str, bytes, int, int]], first_ts: int = 1) -> list[Change]:
    """A key is always in the same shard; a range is of one."""
    rows = []
    for ts, (kind, key, number, shard) in enumerate(happened, start=first_ts):
        shard = shard if kind == "deleterange" else len(key) % 2
        rows += [{**row, "shard": shard, "ts": ts, "seq": seq} for seq, row in enumerate(changed(kind, key, number))]
    return rows


def is_in(span: DeletedRange, key: bytes) -> bool:
    return len(key) % 2 == span.shard and span.start <= key and (not span.end or key < span.end)


def naive(rows: list[Change], held: dict[Any, Any]) -> dict[Any, Any]:
    held = dict(held)
    for row in rows:
        point = row["key"], row["field"]
        if row["kind"] == "deleterange":
            span = DeletedRange(row["shard"], row["key"], row["end"], 0, 0)
            held = {its: value for its, value in held.items() if not is_in(span, its[0])}
        elif row["type"] == "none":
            held = {its: value for its, value in held.items() if its[0] != row["key"]}
        elif row["type"] == "list":
            pass
        elif row["type"] == "stream":
            if row["field"] in (None, b"copy"):
                held[row["key"], None] = ("stream", None)
        elif row["value"] is None:
            held.pop(point, None)
        else:
            held[point] = row["type"], row["value"]
    return held


def table_of(rows: list[Change]) -> pa.Table:
    schema = SCHEMAS[CHANGES]
    return pa.Table.from_pylist(
        rows, schema=pa.schema([schema.field(n) for n in schema.names if n not in ("timestamp", "day")])
    )


def applied(before: pa.Table, changes: pa.Table, parts: int = 1) -> pa.Table:
    """What a pass makes of what held before, if changes come in so many parts, and the state in two files."""
    draw = random.Random(parts)
    chosen = pa.array([draw.randrange(parts) for _ in range(changes.num_rows)], pa.int32())
    left = pa.concat_tables([reduced(changes.filter(pc.equal(chosen, part))) for part in range(parts)])
    upsert = Upsert(fold(left), 2)
    files = [before.slice(0, before.num_rows // 2), before.slice(before.num_rows // 2)]
    stay = [file.filter(pa.array(upsert.stays(file))) for file in files]
    held = pa.concat_tables([*stay, upsert.added().select(before.schema.names).cast(before.schema)])
    assert len({(row["key"], row["field"]) for row in held.to_pylist()}) == held.num_rows
    return held


def held_in(table: pa.Table) -> dict[Any, Any]:
    return {(row["key"], row["field"]): (row["type"], row["value"]) for row in table.to_pylist()}


@settings(max_examples=300)
@given(first=happenings, second=happenings, seed=st.integers(0, 2**32), parts=st.integers(1, 4))
def test_a_fold_is_what_is_left_when_changes_are_applied_in_order(
    first: Any, second: Any, seed: int, parts: int
) -> None:
    """In one pass and in two, in whatever order the rows come, and reduced in however many parts."""
    rows = rows_of(first)
    more = rows_of(second, len(first) + 1)
    expected = naive(rows + more, {})
    shuffled = random.Random(seed).sample(rows + more, len(rows + more))
    empty = SCHEMAS[CURRENT].empty_table()
    assert held_in(applied(empty, table_of(shuffled), parts)) == expected
    assert held_in(applied(applied(empty, table_of(rows)), table_of(more), parts)) == expected


@settings(max_examples=200)
@given(first=happenings, second=happenings, data=st.data())
def test_values_that_are_newer_than_changes_stay(first: Any, second: Any, data: st.DataObject) -> None:
    """Each value is read at a ts of its own: changes up to it are in it already."""
    rows = rows_of(first) + rows_of(second, len(first) + 1)
    begin, last = len(first), len(first) + len(second)
    read_at = {key: data.draw(st.integers(begin, last)) for key in KEYS}
    values = []
    for key, ts in read_at.items():
        held = naive([row for row in rows if row["ts"] <= ts], {})
        values += [
            {
                "shard": len(key) % 2,
                "key": key,
                "field": field,
                "type": its,
                "value": value,
                "ts": ts,
                "seq": SEQ_INITIAL,
            }
            for (of, field), (its, value) in held.items()
            if of == key
        ]
    before = pa.Table.from_pylist(values, schema=SCHEMAS[CURRENT])
    after = applied(before, table_of([row for row in rows if row["ts"] > begin]))
    assert held_in(after) == naive(rows, {})


# --- the table --------------------------------------------------------------------------------------------------------


def test_what_decides_nothing_is_dropped() -> None:
    """Ten times the same key, and only the last removal of each range: so little goes from task to task."""
    happened = [("hset", b"a", 1, 0)] * 10 + [("deleterange", b"b", 2, 0)] * 5 + [("del", b"b", 0, 0)] * 5
    happened += [("lpush", b"c", 0, 0), ("rpop", b"c", 0, 0), ("evict", b"c", 0, 0)]
    left = reduced(table_of(rows_of(happened))).to_pylist()
    assert sorted((row["kind"], row["key"], row["type"], row["ts"]) for row in left) == [
        ("deleterange", b"b", None, 15),
        ("value", b"a", "hash", 10),
        ("value", b"b", "none", 20),
        ("value", b"c", "none", 21),
    ]


def test_a_range_takes_rows_of_shards_that_are_no_more() -> None:
    """A server was restored with one shard instead of two."""
    row = {"kind": "deleterange", "key": b"", "end": b"", "shard": 0, "ts": 9, "seq": 0}
    folded = fold(table_of([row]))
    times = {"ts": pa.array([1, 2]), "seq": pa.array([0, 0], pa.int32())}
    before = pa.table({"shard": pa.array([0, 1], pa.int32()), "key": [b"a", b"bb"], "field": [b"f", b"f"], **times})
    assert Upsert(folded, 1).stays(before).tolist() == [False, False]
    assert Upsert(folded, 2).stays(before).tolist() == [False, True]


def test_the_table_follows_in_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of a few changes each, through real Delta tables, against the same dict."""
    monkeypatch.setattr("tidelog.limits.LAKE_PASS_CHANGES", 12)
    draw = random.Random(5)
    storage = find_storage(str(tmp_path))
    changes, current = open_table(storage, CHANGES, "{}"), open_table(storage, CURRENT, "{}")
    following = Current(current, changes, 2, Here())
    expected: dict[Any, Any] = {}
    kinds = ["set", "hset", "hset", "hset", "hdel", "xadd", "evict", "del", "deleterange"]
    ts, caught_up = 1, 1
    for _ in range(12):
        happened = [(draw.choice(kinds), draw.choice(KEYS), draw.randrange(6), draw.randrange(2)) for _ in range(20)]
        rows = rows_of(happened, ts)
        ts += len(happened)
        expected = naive(rows, expected)
        commit_changes(changes, table_of(rows), ts - 1)
        if draw.random() < 0.5:
            following.refresh()
            following.catch_up()
            caught_up += 1
            assert held_in(current.delta.to_pyarrow_table()) == expected
            assert current.point == changes.point == HistoryPoint(ts - 1, 7)
    following.catch_up()
    assert held_in(current.delta.to_pyarrow_table()) == expected
    assert following.passes > caught_up + 3
    assert following.changes == changes.delta.to_pyarrow_dataset().count_rows()


def test_a_pass_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = find_storage(str(tmp_path))
    changes, current = open_table(storage, CHANGES, "{}"), open_table(storage, CURRENT, "{}")
    for ts in range(1, 5):
        commit_changes(changes, table_of(rows_of([("hset", b"a", ts, 0)], ts)), ts)
    sizes = pa.table(changes.delta.get_add_actions()).column("size_bytes").to_pylist()
    monkeypatch.setattr("tidelog.limits.LAKE_PASS_BYTES", 2 * max(sizes))
    following = Current(current, changes, 2, Here())
    following.run_pass()
    assert current.ts == 2
    following.catch_up()
    assert (following.passes, current.ts) == (2, 4)


def test_a_file_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is what is collected for it."""
    monkeypatch.setattr("tidelog.limits.LAKE_ROW_GROUP_BYTES", 50_000)
    monkeypatch.setattr("tidelog.limits.LAKE_FILE_BYTES", 150_000)
    changes = open_table(find_storage(str(tmp_path)), CHANGES, "{}")
    files, draw = PartFiles(changes.storage), random.Random(6)
    for ts in range(1, 41):
        rows = rows_of([("hset", b"a", ts, 0)], ts)
        rows[0] |= {"value": draw.randbytes(10_000), "timestamp": None}
        files.write(CHANGES, pa.RecordBatch.from_pylist(rows, schema=file_schema(CHANGES)))
    made = files.close()
    assert [file.rows for file in made] == [15, 15, 10]
    groups = [pq.ParquetFile(tmp_path / CHANGES / file.path).metadata.num_row_groups for file in made]
    assert groups == [3, 3, 2]
    changes.commit(made, HistoryPoint(40, 7))
    assert changes.delta.to_pyarrow_dataset().count_rows() == 40


def test_columns_may_have_any_name_that_a_member_can_have(tmp_path: Path) -> None:
    """Also those that were the names of what a pass adds for itself, and words of SQL."""
    names = ["gone", "_order", "order", "s", "t", "select"]
    storage = find_storage(str(tmp_path))
    changes, current = open_table(storage, CHANGES, "{}"), open_table(storage, CURRENT, "{}")
    changes.add_columns(dict.fromkeys(names, pa.string()))
    following = Current(current, changes, 2, Here())
    for ts, happened in enumerate([("set", b"a"), ("set", b"b"), ("set", b"a"), ("del", b"b")], start=1):
        rows = table_of(rows_of([(*happened, ts, 0)], ts))
        for name in names:
            rows = rows.append_column(name, pa.array([f"{name}{ts}"] * rows.num_rows))
        commit_changes(changes, rows, ts)
        following.refresh()
        following.catch_up()
    held = current.delta.to_pyarrow_table().to_pylist()
    assert [(row["key"], row["value"], *(row[name] for name in names)) for row in held] == [
        (b"a", b"3", *(f"{name}3" for name in names))
    ]


def commit_changes(changes: Any, rows: pa.Table, ts: int) -> None:
    files = PartFiles(changes.storage)
    for shard in (0, 1):
        part = rows.filter(pc.equal(rows.column("shard"), shard)).append_column(
            "timestamp",
            pa.nulls(rows.filter(pc.equal(rows.column("shard"), shard)).num_rows, pa.timestamp("us", "UTC")),
        )
        for batch in part.combine_chunks().to_batches():
            files.write(CHANGES, batch)
    changes.commit(files.close(), HistoryPoint(ts, 7))
