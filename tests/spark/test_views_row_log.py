"""Rows in a log: what was added last counts, also when it is read again by another process."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.spark.changed_rows import COLUMNS, random_steps, table_of
from tidelog import limits
from tidelog.spark.delta.faults import TableFault, TableTaken
from tidelog.spark.delta.storage import find_storage
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.views.keeping.changes import compose
from tidelog.spark.views.keeping.row_log import RowLog
from tidelog.spark.views.keeping.source_rows import SourceRows


def log_in(folder: Path) -> RowLog:
    return RowLog(find_storage(str(folder)), "_state/v/source", COLUMNS)


def loaded(folder: Path) -> tuple[HistoryPoint, SourceRows]:
    found = log_in(folder).load()
    assert found is not None
    return found[0], SourceRows(COLUMNS, found[1])


def sorted_rows(rows: SourceRows) -> list[object]:
    return sorted(rows.table.to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("least", [10, 100_000])
def test_rows_are_what_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int) -> None:
    """With few rows at least before the log is written anew, and with so many that it never is."""
    monkeypatch.setattr(limits, "VIEW_LOG_ROWS_MIN", least)
    chance = random.Random(least)
    log, rows = log_in(tmp_path), SourceRows(COLUMNS)
    assert log.load() is None
    log.begin(rows, HistoryPoint(1, 7))
    assert loaded(tmp_path)[0] == HistoryPoint(1, 7)
    for ts in range(2, 14):
        done = rows.apply(compose(table_of(random_steps(chance))))
        log.add(done, rows, HistoryPoint(ts, 7))
        place, found = loaded(tmp_path)
        assert place == HistoryPoint(ts, 7)
        assert sorted_rows(found) == sorted_rows(rows)
        if chance.random() < 0.3:  # another process goes on
            log = log_in(tmp_path)
            log.load()
        logged = len(DeltaTable(str(tmp_path / "_state/v/source")).to_pyarrow_table())
        assert logged <= max(2 * len(rows), least)


def test_that_nothing_has_changed_is_noted(tmp_path: Path) -> None:
    rows = SourceRows(COLUMNS)
    rows.apply(compose(table_of(random_steps(random.Random(3)))))
    log = log_in(tmp_path)
    log.begin(rows, HistoryPoint(1, 1))
    log.add(None, rows, HistoryPoint(5, 1))
    place, found = loaded(tmp_path)
    assert place == HistoryPoint(5, 1)
    assert sorted_rows(found) == sorted_rows(rows)


def test_many_small_files_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VIEW_LOG_FILES_MAX", 4)
    chance, rows, log, most = random.Random(5), SourceRows(COLUMNS), log_in(tmp_path), 0
    log.begin(rows, HistoryPoint(1, 1))
    for ts in range(2, 14):
        log.add(rows.apply(compose(table_of(random_steps(chance)))), rows, HistoryPoint(ts, 1))
        most = max(most, len(list((tmp_path / "_state/v/source").glob("*.parquet"))))
        place, found = loaded(tmp_path)
        assert (place, sorted_rows(found)) == (HistoryPoint(ts, 1), sorted_rows(rows))
        if ts % 3 == 0:  # another process goes on
            log = log_in(tmp_path)
            log.load()
    assert 2 <= most <= 4


def test_who_comes_second_is_told(tmp_path: Path) -> None:
    rows = SourceRows(COLUMNS)
    log_in(tmp_path).begin(rows, HistoryPoint(1, 1))
    one, other = log_in(tmp_path), log_in(tmp_path)
    for log in (one, other):
        log.load()
    one.add(None, rows, HistoryPoint(2, 1))
    with pytest.raises(TableTaken, match="another job wrote to this table"):
        other.add(None, rows, HistoryPoint(3, 1))
    assert loaded(tmp_path)[0] == HistoryPoint(2, 1)


def test_a_log_that_begins_anew_forgets_the_former(tmp_path: Path) -> None:
    rows = SourceRows(COLUMNS)
    rows.apply(compose(table_of(random_steps(random.Random(3)))))
    log_in(tmp_path).begin(rows, HistoryPoint(9, 1))
    log = log_in(tmp_path)
    log.load()
    log.begin(SourceRows(COLUMNS), HistoryPoint(4, 2))
    place, found = loaded(tmp_path)
    assert (place, len(found)) == (HistoryPoint(4, 2), 0)
    files = list((tmp_path / "_state/v/source").glob("*.parquet"))
    assert len(files) <= 1


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    rows = SourceRows(COLUMNS)
    rows.apply(compose(table_of(random_steps(random.Random(3)))))
    log_in(tmp_path).begin(rows, HistoryPoint(9, 1))
    for file in (tmp_path / "_state/v/source").glob("*.parquet"):
        file.unlink()
    with pytest.raises(TableFault, match="_state/v/source"):
        log_in(tmp_path).load()
