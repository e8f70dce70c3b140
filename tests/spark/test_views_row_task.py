"""Rows of a bucket that changes were applied to are those that dicts have, and what is handed on leads there too."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.spark.changed_rows import COLUMNS, State, Step, applied, living, random_steps, table_of
from tests.spark.kept_rows import KeptRows
from tidelog import limits
from tidelog.spark.views.dataflow import row_task
from tidelog.spark.views.dataflow.changes import CLEAR, GONE, SET, clear, compose, no_changes
from tidelog.spark.views.dataflow.packing import packed_row
from tidelog.spark.views.dataflow.row_task import BucketRows
from tidelog.spark.views.dataflow.told import runs_of

NAMES = tuple(f"name {number}" for number in range(COLUMNS))

Shown = dict[bytes, dict[int, str]]
"""The columns of each row."""


def columns_of(row: dict[str, Any]) -> dict[int, str]:
    return {number: row[f"c{number}"] for number in range(COLUMNS) if row[f"c{number}"] is not None}


def state_of(windows: Iterable[pa.Table]) -> State:
    found: State = {}
    for row in [row for window in windows for row in window.to_pylist()]:
        assert row["key"] not in found
        found[row["key"]] = columns_of(row), frozenset(row["rest"])
    return found


def shown(state: State) -> Shown:
    return {each: columns for each, (columns, _) in state.items()}


def taken(before: Shown, changes: Iterable[tuple[pa.Table, pa.Table]]) -> Shown:
    """The rows that follow from those that were there and from what is handed on."""
    rows = dict(before)
    for olds, news in changes:
        for row in olds.to_pylist():
            assert rows.pop(row["key"]) == columns_of(row), "a row is taken away as it was"
        for row in news.to_pylist():
            assert row["key"] not in rows
            rows[row["key"]] = columns_of(row)
        same = {row["key"]: columns_of(row) for row in olds.to_pylist()}
        assert not any(same.get(row["key"]) == columns_of(row) for row in news.to_pylist()), "it did not change"
    return rows


@pytest.mark.parametrize("run_rows", [1, 4, 1000])
@pytest.mark.parametrize("first", range(0, 40, 20))
def test_rows_are_what_the_changes_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, run_rows: int
) -> None:
    monkeypatch.setattr(limits, "VIEW_RUN_ROWS", run_rows)
    monkeypatch.setattr(limits, "RUN_BATCH_ROWS", 2)
    for seed in range(first, first + 20):
        chance, bucket, expected = random.Random(seed), KeptRows(tmp_path / str(seed), NAMES), State()
        for _ in range(6):
            rows = BucketRows(bucket.task(), 0)
            for _ in range(chance.choice([1, 1, 2])):
                steps = random_steps(chance)
                before = shown(expected)
                expected = living(applied(expected, steps))
                assert taken(before, rows.apply(compose(table_of(steps)))) == shown(expected), seed
                assert state_of(rows.windows()) == expected, seed
            rows.finish()
            bucket.take()
            if bucket.runs and chance.random() < 0.5:
                begin = chance.randrange(len(bucket.runs))
                bucket.merge(begin, chance.randrange(begin, len(bucket.runs)) + 1)
            assert state_of(BucketRows(bucket.task(), 0).windows()) == expected, seed
            assert bucket.grown == len(expected), seed
            found = {row["_row"]["id"]: [row[name] for name in NAMES] for row in bucket.everything()}
            assert found == {each: [row.get(n) for n in range(COLUMNS)] for each, row in shown(expected).items()}


def test_changes_that_are_applied_again_change_nothing(tmp_path: Path) -> None:
    """A batch that was killed is applied again, with what follows."""
    for seed in range(30):
        chance, bucket = random.Random(seed), KeptRows(tmp_path / str(seed), NAMES)
        steps = [random_steps(chance) for _ in range(2)]
        for each in steps:
            bucket.apply(compose(table_of(each)))
        before = shown(state_of(BucketRows(bucket.task(), 0).windows()))
        after = taken(before, bucket.apply(compose(table_of(steps[1]))))
        assert after == before, seed
        assert bucket.grown == len(after), seed


def test_an_attempt_that_is_repeated_writes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VIEW_RUN_ROWS", 3)
    bucket, chance = KeptRows(tmp_path, NAMES), random.Random(7)
    steps = [compose(table_of(random_steps(chance))) for _ in range(5)]
    said = []
    for _ in range(2):
        rows = BucketRows(bucket.task(), 0)
        for each in steps:
            list(rows.apply(each))
        rows.finish()
        files = sorted((tmp_path / "state/runs").iterdir())
        said.append((bucket.told.take(), [(file.name, file.read_bytes()) for file in files]))
    assert said[0] == said[1]
    assert len(runs_of(said[0][0])) > 1


def test_nothing_is_applied_to_nothing(tmp_path: Path) -> None:
    bucket = KeptRows(tmp_path, NAMES)
    assert taken({}, bucket.apply(no_changes(COLUMNS))) == {}
    assert taken({}, bucket.apply(clear(COLUMNS))) == {}
    assert (bucket.runs, bucket.grown) == ([], 0)


def step(op: int, row: bytes, **given: Any) -> Step:
    none = {**dict.fromkeys(["end", "is_reset", "more", "less", "touched"]), **{f"c{n}": None for n in range(COLUMNS)}}
    return {**none, "op": op, "id": row, **given}


def test_a_hash_is_gone_with_its_last_field_and_comes_back_without_what_it_had(tmp_path: Path) -> None:
    bucket = KeptRows(tmp_path, NAMES)
    batches = [
        [step(SET, b"1", more=[b"a", b"b"], touched=1, c0="x")],
        [step(SET, b"1", less=[b"a"], touched=1)],
        [step(SET, b"1", less=[b"b"], touched=0)],
        [step(SET, b"1", more=[b"c"], touched=2, c1="y")],
        [step(SET, b"1", more=[b"c"], is_reset=True, touched=4, c2="z")],
    ]
    found = []
    for steps in batches:
        [(before, after)] = bucket.apply(compose(table_of(steps)))
        found.append([[columns_of(row) for row in each.to_pylist()] for each in (before, after)])
    assert found == [[[], [{0: "x"}]], [[{0: "x"}], [{}]], [[{}], []], [[], [{1: "y"}]], [[{1: "y"}], [{2: "z"}]]]
    assert bucket.grown == 1


def test_a_range_takes_rows_of_all_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VIEW_RUN_ROWS", 2)
    bucket = KeptRows(tmp_path, NAMES)
    rows = BucketRows(bucket.task(), 0)
    ids = [bytes([number]) for number in range(10)]
    for each in ids:
        list(rows.apply(table_of([step(SET, each, more=[b""], touched=1, c0="x")])))
    left = taken({each: {0: "x"} for each in ids}, rows.apply(clear(COLUMNS, b"\2", b"\7")))
    assert sorted(left) == [each for each in ids if not b"\2" <= each < b"\7"]
    assert sorted(state_of(rows.windows())) == sorted(left)
    assert taken(left, rows.apply(clear(COLUMNS))) == {}
    rows.finish()
    bucket.take()
    assert bucket.grown == 0
    assert bucket.everything() == []


# --- in which order rows were changed ---------------------------------------------------------------------------------


def test_keys_are_in_the_order_in_which_they_were_changed(tmp_path: Path) -> None:
    for seed in range(20):
        chance, bucket = random.Random(seed), KeptRows(tmp_path / str(seed), NAMES, has_times=True)
        times, expected, ts = dict[bytes, int](), State(), 2**40
        for _ in range(4):
            steps = []
            for each in random_steps(chance):
                ts += chance.choice([0, 1, 300])
                steps.append({**each, "ts": ts if each["op"] == SET else None})
                if each["op"] == SET:
                    times[each["id"]] = ts
            expected = living(applied(expected, steps))
            bucket.apply(compose(table_of(steps)))
        found = sorted((row["_row"] for row in bucket.everything()), key=lambda row: row["order"])
        assert [row["id"] for row in found] == sorted(expected, key=lambda each: (times[each], each)), seed
        assert len({row["order"] for row in found}) == len(found)


def test_entries_are_in_the_order_of_their_ids(tmp_path: Path) -> None:
    bucket = KeptRows(tmp_path, NAMES)
    steps = [step(SET, bytes([9 - number]), more=[b""], touched=0, ts=number) for number in range(9)]
    bucket.apply(compose(table_of(steps)))
    found = bucket.everything(sign=-1)
    assert [row["_row"]["order"] for row in found] == [row["_row"]["id"] for row in found]
    assert {row["_row"]["sign"] for row in found} == {-1}


# --- whole tasks ------------------------------------------------------------------------------------------------------


class FirstPartition:
    """What a task learns of Spark."""

    @staticmethod
    def get() -> FirstPartition:
        return FirstPartition()

    def partitionId(self) -> int:
        return 0


@pytest.fixture
def in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_task, "TaskContext", FirstPartition)


def rows_in(batches: Iterable[pa.RecordBatch]) -> list[tuple[int, bytes, list[str | None]]]:
    found = [row for batch in batches for row in batch.to_pylist()]
    return [(row["_row"]["sign"], row["_row"]["id"], [row[name] for name in NAMES]) for row in found]


@pytest.mark.usefixtures("in_a_task")
@pytest.mark.parametrize("portion_rows", [1, 1000])
def test_changes_of_several_shards_come_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, portion_rows: int
) -> None:
    """Each shard says that everything was removed, and then what it has set: in whatever portions a task takes that."""
    monkeypatch.setattr(limits, "VIEW_PORTION_ROWS", portion_rows)
    bucket = KeptRows(tmp_path, NAMES)
    old = compose(table_of([step(SET, bytes([n]), more=[b"a"], touched=1, c0="old") for n in range(6)]))
    assert len(rows_in(bucket.task().run([packed_row(0, [old])]))) == 6
    bucket.take()
    shards = [
        compose(table_of([step(CLEAR, b""), *(step(SET, bytes([n]), more=[b"a"], touched=1, c0="new") for n in ids)]))
        for ids in ([0, 2], [1, 7])
    ]
    assert rows_in(bucket.task().run(packed_row(0, [shard]) for shard in shards))
    bucket.take()
    assert [(row["_row"]["id"], row[NAMES[0]]) for row in bucket.everything()] == [
        (bytes([number]), "new") for number in (0, 1, 2, 7)
    ]
    assert bucket.grown == 4


@pytest.mark.usefixtures("in_a_task")
def test_rows_that_are_there_now_are_read_without_being_kept(tmp_path: Path) -> None:
    bucket = KeptRows(tmp_path, NAMES)
    tables = [
        table_of([step(SET, b"1", more=[b"a"], touched=1, c0="x"), step(SET, b"2", more=[b"a"], touched=0)]),
        table_of([step(SET, b"1", more=[b"b"], touched=2, c1="y"), step(GONE, b"2")]),
    ]
    task = replace(bucket.task(), told=None)
    assert rows_in(task.present(packed_row(0, [table]) for table in tables)) == [(1, b"1", ["x", "y", None])]
    assert not (tmp_path / "state/runs").exists()


@pytest.mark.usefixtures("in_a_task")
def test_rows_that_are_touched_are_given_as_if_they_had_changed(tmp_path: Path) -> None:
    bucket = KeptRows(tmp_path, NAMES)
    rows = table_of([step(SET, bytes([n]), more=[b"a"], touched=1, c0=str(n)) for n in range(5)])
    list(bucket.task().run([packed_row(0, [rows])]))
    bucket.take()
    ids = [pa.table([pa.array(each, pa.binary())], names=["id"]) for each in ([b"\3", b"\1"], [b"\1", b"\x09"])]
    found = rows_in(bucket.task().touched(packed_row(0, [each]) for each in ids))
    expected = [(sign, bytes([n]), [str(n), None, None]) for sign in (-1, 1) for n in (1, 3)]
    assert sorted(found) == expected
