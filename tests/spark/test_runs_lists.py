"""Lists of runs: what was committed last counts, for everybody, and nobody commits what is out of date."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.integration.s3_server import S3Bucket
from tidelog import limits
from tidelog.errors import EnvironmentFault
from tidelog.spark.delta.faults import TableFault, TableTaken
from tidelog.spark.delta.storage import Storage, find_storage
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.runs.run_files import RunName
from tidelog.spark.runs.run_lists import RunLists, RunLog

FOLDER = "_state/v/lists"


def run(name: str, rows: int = 1) -> RunName:
    return RunName(name, rows, 10 * rows)


@pytest.fixture(params=["folder", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return find_storage(str(tmp_path))
    bucket: S3Bucket = request.getfixturevalue("s3_bucket")
    return Storage(bucket.folder(), dict(bucket.env))


def loaded(storage: Storage) -> tuple[HistoryPoint, RunLists]:
    found = RunLog(storage, FOLDER).load()
    assert found is not None
    return found


# --- lists ------------------------------------------------------------------------------------------------------------


def test_more_runs_lie_over_those_that_were_there() -> None:
    one = RunLists(2).with_more([("rows", 1, run("a")), ("rows", 1, run("b")), ("groups", 0, run("c", 5))], {"n": 3})
    other = one.with_more([("rows", 1, run("d")), ("rows", 0, run("e"))], {"m": 1})
    assert one.of("rows") == ((), (run("a"), run("b")))
    assert other.of("rows") == ((run("e"),), (run("a"), run("b"), run("d")))
    assert other.of("groups") == ((run("c", 5),), ())
    assert other.of("values") == ((), ())
    assert other.facts == {"n": 3, "m": 1}
    assert other.names() == set("abcde")
    assert other.size_bytes == 90


@pytest.mark.parametrize(
    ("merged", "expected"), [("abc", "md"), ("bc", "amd"), ("bcd", "am"), ("d", "abcm"), ("abcd", "m")]
)
def test_a_run_takes_the_place_of_those_that_were_merged(merged: str, expected: str) -> None:
    lists = RunLists(2).with_more([("rows", 1, run(each)) for each in "abcd"], {"n": 1})
    lists = lists.with_more([("rows", 0, run("x")), ("groups", 1, run("y"))], {})
    made = lists.with_merged("rows", 1, [run(each) for each in merged], run("m"))
    assert made.of("rows") == ((run("x"),), tuple(map(run, expected)))
    assert made.of("groups") == lists.of("groups")
    assert made.facts == {"n": 1}
    nothing = lists.with_merged("rows", 1, [run(each) for each in merged], None)
    assert nothing.of("rows")[1] == tuple(map(run, expected.replace("m", "")))


def test_lists_are_what_they_were_after_packing() -> None:
    lists = RunLists(3).with_more([("rows", 2, run("a")), ("ö", 0, run("b", 2**40))], {"n": -(2**62)})
    assert RunLists.unpacked(lists.packed()) == lists
    with pytest.raises(ValueError, match="its format is 0"):
        RunLists.unpacked(json.dumps({**json.loads(lists.packed()), "format": 0}))


# --- where they are committed -----------------------------------------------------------------------------------------


def test_what_was_committed_last_counts(storage: Storage) -> None:
    log, lists = RunLog(storage, FOLDER), RunLists(2)
    assert log.load() is None
    for ts in range(1, 5):
        lists = lists.with_more([("rows", ts % 2, run(f"run-{ts}", ts))], {"n": ts})
        log.commit(lists, HistoryPoint(ts, 7))
        assert loaded(storage) == (HistoryPoint(ts, 7), lists)
        if ts == 2:  # another process goes on
            log = RunLog(storage, FOLDER)
            log.load()
    log.commit(RunLists(8), HistoryPoint(1, 8))
    assert loaded(storage) == (HistoryPoint(1, 8), RunLists(8)), "a view that is built anew"


def test_who_comes_second_is_told(storage: Storage) -> None:
    RunLog(storage, FOLDER).commit(RunLists(1), HistoryPoint(1, 1))
    one, other = RunLog(storage, FOLDER), RunLog(storage, FOLDER)
    for log in (one, other):
        log.load()
    lists = RunLists(1).with_more([("rows", 0, run("a"))], {})
    one.commit(lists, HistoryPoint(2, 1))
    for _ in range(2):
        with pytest.raises(TableTaken, match="another job wrote to this table"):
            other.commit(RunLists(1), HistoryPoint(3, 1))
    assert loaded(storage) == (HistoryPoint(2, 1), lists)
    one.commit(RunLists(1), HistoryPoint(4, 1))
    assert loaded(storage)[0] == HistoryPoint(4, 1)


def test_of_two_that_begin_one_is_told(storage: Storage) -> None:
    one, other = RunLog(storage, FOLDER), RunLog(storage, FOLDER)
    assert (one.load(), other.load()) == (None, None)
    one.commit(RunLists(1), HistoryPoint(2, 1))
    with pytest.raises(EnvironmentFault, match="already exists"):
        other.commit(RunLists(5), HistoryPoint(3, 1))
    assert loaded(storage) == (HistoryPoint(2, 1), RunLists(1))


def test_old_versions_go_and_the_point_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = find_storage(str(tmp_path))
    monkeypatch.setattr(limits, "RUN_LOG_TEND_S", -1.0)
    log, lists = RunLog(storage, FOLDER), RunLists(1)
    for ts in range(1, 12):
        lists = lists.with_more([("rows", 0, run(f"run-{ts}"))], {})
        log.commit(lists, HistoryPoint(ts, 1))
        assert loaded(storage) == (HistoryPoint(ts, 1), lists)
        assert len(list((tmp_path / FOLDER).glob("*.parquet"))) <= 2
    other = RunLog(storage, FOLDER)
    other.load()
    other.commit(lists, HistoryPoint(12, 1))
    with pytest.raises(TableTaken):
        log.commit(RunLists(1), HistoryPoint(13, 1))


def harmed(folder: Path, harm: str) -> None:
    [file] = folder.glob("*.parquet")
    if harm == "is missing":
        file.unlink()
    else:
        file.write_bytes(b"x" * file.stat().st_size)


@pytest.mark.parametrize("harm", ["is missing", "is no Parquet"])
def test_what_cannot_be_read_is_told(tmp_path: Path, harm: str) -> None:
    storage = find_storage(str(tmp_path))
    RunLog(storage, FOLDER).commit(RunLists(1), HistoryPoint(9, 1))
    harmed(tmp_path / FOLDER, harm)
    with pytest.raises(TableFault, match=FOLDER):
        RunLog(storage, FOLDER).load()


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "{}", '{"format": 99}', '{"format": 1, "buckets": 1}'])
def test_lists_of_another_kind_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    storage = find_storage(str(tmp_path))

    def packed(_self: Any) -> str:
        return text

    with monkeypatch.context() as patch:
        patch.setattr(RunLists, "packed", packed)
        RunLog(storage, FOLDER).commit(RunLists(1), HistoryPoint(9, 1))
    with pytest.raises(TableFault, match=FOLDER):
        RunLog(storage, FOLDER).load()
    assert len(DeltaTable(str(tmp_path / FOLDER)).to_pyarrow_table()) == 1
