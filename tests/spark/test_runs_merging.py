"""Merging: few runs, each row written again a few times only, and nothing that is looked for comes out otherwise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.sorted_runs import KEYS, SCHEMA, files_in, overlay_of, rows_of, table_of
from tests.spark.test_runs_multisets import Entry, counted, in_order, read
from tests.spark.test_runs_multisets import table_of as entries_table
from tidelog import limits
from tidelog.spark.runs.merging import merge, to_merge
from tidelog.spark.runs.multisets import Multiset, multiset_schema
from tidelog.spark.runs.run_files import RunFiles, RunName
from tidelog.spark.runs.sorted_rows import Overlay

# --- which runs are merged --------------------------------------------------------------------------------------------

SIZES: dict[str, Callable[[random.Random], int]] = {
    "one row": lambda _: 1,
    "small": lambda chance: chance.randrange(1, 300),
    "more than small": lambda _: 5000,
    "large": lambda chance: chance.randrange(50_000, 200_000),
    "of all sizes": lambda chance: int(10 ** chance.uniform(0, 6)),
    "large at times": lambda chance: 100_000 if chance.random() < 0.05 else chance.randrange(1, 50),
}


@pytest.mark.parametrize("name", SIZES)
def test_there_are_few_runs_and_rows_are_written_some_times_only(name: str) -> None:
    chance, runs = random.Random(name), list[RunName]()
    added = written = merges = most = 0
    for number in range(2000):
        run = RunName(str(number), SIZES[name](chance), 0)
        runs.append(run)
        added += run.rows
        if chance.random() < 0.1:
            continue  # merging takes its time
        found = to_merge(runs)
        if found:
            assert runs[len(runs) - len(found) :] == list(found), "runs that follow each other"
            made = RunName(f"merged-{number}", sum(each.rows for each in found), 0)
            written += made.rows
            merges += 1
            runs[len(runs) - len(found) :] = [made]
        most = max(most, len(runs))
    levels = math.log2(max(2, added / limits.RUN_SMALL_ROWS))
    assert most <= limits.RUNS_MERGED_MIN + limits.RUNS_MERGED_MIN * levels
    # Runs that are small are merged whatever comes of it.
    assert written <= added * (2 + 2 * levels) + merges * limits.RUN_SMALL_ROWS


def test_what_is_in_order_is_left_alone() -> None:
    assert to_merge([]) == ()
    least = limits.RUNS_MERGED_MIN
    small = [RunName(str(number), 1, 0) for number in range(least - 1)]
    assert to_merge(small) == ()
    large = RunName("large", 100 * limits.RUN_SMALL_ROWS, 0)
    assert to_merge([large, *small]) == (), "one that is much larger is not written again for a few rows"
    assert list(to_merge([large, *small, small[0]])) == [*small, small[0]]


# --- what comes of it -------------------------------------------------------------------------------------------------


def some_of(runs: Sequence[RunName], chance: random.Random) -> tuple[int, int]:
    begin = chance.randrange(len(runs))
    return begin, chance.randrange(begin + 1, len(runs) + 1)


def opened(files: RunFiles, runs: Sequence[RunName]) -> Overlay:
    return Overlay([files.open(run) for run in runs], SCHEMA)


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_the_same_after_merging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(limits, "RUN_BATCH_ROWS", 3)
    chance, files, runs = random.Random(seed), files_in(tmp_path), list[RunName]()
    expected: dict[bytes, int | None] = {}
    for number in range(30):
        change = {key: chance.choice([None, number]) for key in chance.sample(KEYS, chance.randrange(1, len(KEYS) + 1))}
        expected = overlay_of([expected, change])
        made = files.write(f"run-{number}", [table_of(change)])
        assert made is not None
        runs.append(made)
        if chance.random() < 0.5:
            begin, end = some_of(runs, chance)
            merged = merge(files, runs[begin:end], f"merged-{number}", is_oldest=begin == 0)
            if merged is not None:
                assert merged.rows <= sum(run.rows for run in runs[begin:end])
            runs[begin:end] = [] if merged is None else [merged]
        there = [(key, value) for key, value in sorted(expected.items()) if value is not None]
        assert rows_of(opened(files, runs).windows()) == there
        places, rows = opened(files, runs).newest(pa.array(KEYS, pa.binary()))
        assert [(KEYS[place], row["n"]) for place, row in zip(places, rows.to_pylist(), strict=True)] == there


def test_what_hides_other_rows_goes_with_the_oldest_run_only(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    changes: list[dict[bytes, int | None]] = [{b"a": 1, b"b": 2}, {b"a": None, b"c": 3}, {b"c": None, b"d": None}]
    runs = [run for n, change in enumerate(changes) if (run := files.write(f"run-{n}", [table_of(change)]))]
    newer = merge(files, runs[1:], "newer", is_oldest=False)
    assert newer is not None
    hidden = [pa.Table.from_batches(files.open(newer))]
    assert rows_of(hidden) == [(b"a", None), (b"c", None), (b"d", None)]
    every = merge(files, [runs[0], newer], "every", is_oldest=True)
    assert every is not None
    assert rows_of([pa.Table.from_batches(files.open(every))]) == [(b"b", 2)]
    gone = files.write("gone", [table_of({b"b": None})])
    assert gone is not None
    assert merge(files, [every, gone], "nothing", is_oldest=True) is None
    assert "nothing" not in files.names()


def test_of_rows_that_say_how_often_something_is_there_the_newest_counts(tmp_path: Path) -> None:
    """A column of weights does not make a table one in which they are added up."""
    files, schema = files_in(tmp_path), pa.schema([("key", pa.binary()), ("gone", pa.bool_()), ("weight", pa.int64())])
    changes = [[(b"a", False, 1), (b"b", False, 2)], [(b"a", False, 3), (b"b", True, 0)]]
    runs = []
    for number, change in enumerate(changes):
        rows = [dict(zip(schema.names, row, strict=True)) for row in change]
        run = files.write(f"run-{number}", [pa.Table.from_pylist(rows, schema)])
        assert run is not None
        runs.append(run)
    for is_oldest, expected in ((False, changes[1]), (True, changes[1][:1])):
        made = merge(files, runs, f"merged-{is_oldest}", is_oldest=is_oldest)
        assert made is not None
        found = pa.Table.from_batches(files.open(made)).to_pylist()
        assert [tuple(row.values()) for row in found] == expected


@pytest.mark.parametrize("seed", range(20))
def test_weights_are_the_same_after_merging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(limits, "RUN_BATCH_ROWS", 3)
    chance, files, runs = random.Random(seed), files_in(tmp_path), list[RunName]()
    kinds, said = [pa.int64(), pa.string()], list[Entry]()
    for number in range(30):
        change: list[Entry] = [
            (chance.choice(KEYS[:4]), (chance.choice([None, 1, 2]), chance.choice([None, "", "a"])), 1)
            for _ in range(chance.randrange(1, 8))
        ]
        # Some of what is there goes again, until a group has nothing.
        there = [(key, values) for (key, values), weight in counted(said).items() if weight > 0]
        change += [(key, values, -1) for key, values in chance.sample(there, chance.randrange(len(there) + 1))]
        said += change
        made = files.write(f"run-{number}", [entries_table(change, kinds)])
        runs += [] if made is None else [made]
        if runs and chance.random() < 0.5:
            begin, end = some_of(runs, chance)
            merged = merge(files, runs[begin:end], f"merged-{number}", is_oldest=begin == 0)
            runs[begin:end] = [] if merged is None else [merged]
        found = Multiset([files.open(run) for run in runs], multiset_schema(kinds))
        expected = in_order((key, values, weight) for (key, values), weight in counted(said).items() if weight)
        assert [entry for window in found.windows(5) for entry in read(window)] == expected
    everything = [(key, values, -weight) for (key, values), weight in counted(said).items()]
    last = files.write("last", [entries_table(everything, kinds)])
    assert last is not None
    assert merge(files, [*runs, last], "nothing", is_oldest=True) is None
