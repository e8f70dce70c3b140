"""Files of runs: whole or not there, in a folder and in an object store, and as many in the cache as fit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.integration.s3_server import S3Bucket
from tests.spark.sorted_runs import SCHEMA, files_in, rows_of, table_of
from tidelog import limits
from tidelog.errors import EnvironmentFault
from tidelog.spark.delta.storage import Storage
from tidelog.spark.runs import run_files
from tidelog.spark.runs.run_files import RunFiles, RunLost, RunName

ROWS = {b"%03d" % number: number for number in range(100)}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs of an object store are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tidelog" / "spark" / "runs"


@pytest.fixture(params=["folder", "s3"])
def files(request: pytest.FixtureRequest, tmp_path: Path, cache: Path) -> RunFiles:
    if request.param == "folder":
        return files_in(tmp_path / "lake")
    return files_at(request.getfixturevalue("s3_bucket"))


def files_at(bucket: S3Bucket) -> RunFiles:
    return RunFiles(Storage(bucket.folder(), dict(bucket.env)), "state/runs")


def written(files: RunFiles, name: str, first: int = 0) -> RunName:
    found = files.write(name, [table_of({b"%03d" % number: number for number in range(first, first + 100)})])
    assert found is not None
    return found


def read(files: RunFiles, run: RunName) -> list[tuple[bytes, int | None]]:
    return rows_of([pa.Table.from_batches(files.open(run), SCHEMA)])


# --- in a folder and in an object store -------------------------------------------------------------------------------


def test_rows_are_read_as_they_were_written(files: RunFiles) -> None:
    table = table_of(ROWS)
    run = files.write("one", [table.slice(0, 30), table.slice(30, 0), table.slice(30)])
    assert run is not None
    assert run == RunName("one", 100, run.size_bytes)
    assert read(files, run) == list(ROWS.items())
    assert read(files, run) == list(ROWS.items()), "and again"
    assert files.names() == ["one"]


def test_a_run_may_be_large(files: RunFiles) -> None:
    rows = {b"%0200d" % number: number for number in range(20_000)}
    run = files.write("one", [table_of(rows)])
    assert run is not None
    assert run.size_bytes > 4_000_000
    assert read(files, run) == list(rows.items())


def test_nothing_is_no_run(files: RunFiles) -> None:
    assert files.names() == []
    assert files.write("one", []) is None
    assert files.write("one", [SCHEMA.empty_table()]) is None
    assert files.names() == []


def test_a_second_attempt_replaces_the_first(files: RunFiles) -> None:
    first = written(files, "one")
    assert written(files, "one") == first
    assert read(files, first) == list(ROWS.items())
    assert files.names() == ["one"]


def test_a_run_that_was_removed_is_lost(files: RunFiles) -> None:
    one, other = written(files, "one"), written(files, "other")
    files.remove(["one", "never"])
    assert files.names() == ["other"]
    with pytest.raises(RunLost, match=r"one.* is missing"):
        files.open(one)
    assert read(files, other) == list(ROWS.items())


def test_batches_are_no_larger_than_they_may_be(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RUN_BATCH_ROWS", 9)
    run = written(files, "rows")
    assert max(len(batch) for batch in files.open(run)) == 9
    assert read(files, run) == list(ROWS.items())
    monkeypatch.setattr(limits, "RUN_BATCH_BYTES", 80)
    run = written(files, "bytes")
    assert max(batch.nbytes for batch in files.open(run)) <= 80
    monkeypatch.setattr(limits, "RUN_BATCH_BYTES", 1)
    assert {len(batch) for batch in files.open(written(files, "least"))} == {1}


def test_a_run_of_tables_in_chunks_has_large_batches(files: RunFiles) -> None:
    table = table_of(ROWS)
    run = files.write("one", [pa.concat_tables([table.slice(number, 1) for number in range(100)])])
    assert run is not None
    assert len(files.open(run)) == 1


def test_a_task_that_fails_leaves_no_run(files: RunFiles) -> None:
    def parts() -> Iterator[pa.Table]:
        yield table_of(ROWS)
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        files.write("one", parts())
    assert files.names() == []


# --- in a folder ------------------------------------------------------------------------------------------------------


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    written(files, "one")
    with pytest.raises(pa.ArrowInvalid):
        files.write("two", [table_of(ROWS), pa.table({"other": [1]})])
    assert [each.name for each in (tmp_path / "state/runs").iterdir()] == ["one.run"]


@pytest.mark.parametrize("harm", ["longer", "shorter", "empty", "other bytes", "a folder"])
def test_a_run_that_is_damaged_is_lost(tmp_path: Path, harm: str) -> None:
    files = files_in(tmp_path)
    run = written(files, "one")
    path = tmp_path / "state/runs/one.run"
    data = path.read_bytes()
    path.unlink()
    if harm == "a folder":
        path.mkdir()
    else:
        made = {"longer": data + b"x", "shorter": data[:-1], "empty": b"", "other bytes": b"x" * len(data)}
        path.write_bytes(made[harm])
    with pytest.raises(RunLost, match=r"one\.run"):
        files.open(run)


def test_what_is_being_written_is_no_run(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    written(files, "one")
    (tmp_path / "state/runs/two.run.1234.part").write_bytes(b"x")
    assert files.names() == ["one"]


def test_a_process_keeps_some_runs_open_and_not_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RUNS_OPEN_MAX", 3)
    monkeypatch.setattr(run_files, "_OPENED", run_files._Opened())
    files = files_in(tmp_path)
    one, *others = [written(files, f"run-{number}") for number in range(4)]
    batches = files.open(one)
    for other in others:
        files.open(other)
    (tmp_path / "state/runs/run-0.run").unlink()
    (tmp_path / "state/runs/run-3.run").unlink()
    assert read(files, others[-1]) == list(ROWS.items()), "it is open"
    with pytest.raises(RunLost):
        files.open(one)
    assert rows_of([pa.Table.from_batches(batches)]) == list(ROWS.items()), "what was given stays readable"


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(EnvironmentFault, match="state/runs"):
        written(files_in(tmp_path), "one")


# --- in an object store -----------------------------------------------------------------------------------------------


def test_a_run_is_fetched_once_for_each_machine(s3_bucket: S3Bucket, cache: Path) -> None:
    files = files_at(s3_bucket)
    run = written(files, "fetched-once")
    assert read(files, run) == list(ROWS.items())
    assert [each.name for each in cache.iterdir()] == ["fetched-once.run"]
    files.remove(["fetched-once"])
    assert read(files, run) == list(ROWS.items())


def test_what_is_damaged_in_the_cache_is_fetched_again(s3_bucket: S3Bucket, cache: Path) -> None:
    files = files_at(s3_bucket)
    run = written(files, "fetched-again")
    cache.mkdir(parents=True)
    (cache / "fetched-again.run").write_bytes(b"cut off")
    assert read(files, run) == list(ROWS.items())


def test_an_object_of_another_size_is_lost(s3_bucket: S3Bucket) -> None:
    files = files_at(s3_bucket)
    run = written(files, "resized")
    with pytest.raises(RunLost, match="resized"):
        files.open(run._replace(size_bytes=run.size_bytes + 1))


def test_what_was_not_used_for_longest_leaves_the_cache(
    s3_bucket: S3Bucket, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_at(s3_bucket)
    runs = [written(files, f"room-{number}") for number in range(5)]
    size_bytes = runs[0].size_bytes
    monkeypatch.setattr(limits, "RUN_CACHE_BYTES", 3 * size_bytes + 1)
    for number, run in enumerate(runs[:3]):
        files.open(run)
        os.utime(cache / f"room-{number}.run", (number, number))
    files.open(runs[0])  # used last
    files.open(runs[3])
    assert sorted(each.name for each in cache.iterdir()) == ["room-0.run", "room-2.run", "room-3.run"]
    files.open(runs[4])
    assert sorted(each.name for each in cache.iterdir()) == ["room-0.run", "room-3.run", "room-4.run"]
    assert all(read(files, run) == list(ROWS.items()) for run in runs), "all can be read, as often as one likes"
    assert sum(each.stat().st_size for each in cache.iterdir()) <= 3 * size_bytes + 1


def test_a_store_that_cannot_be_reached_is_told(s3_bucket: S3Bucket) -> None:
    files = RunFiles(Storage("s3://no-such-bucket/lake", dict(s3_bucket.env)), "state/runs")
    with pytest.raises(EnvironmentFault, match="no-such-bucket"):
        written(files, "one")
    with pytest.raises(EnvironmentFault, match="no-such-bucket"):
        files.open(RunName("one", 1, 1))
