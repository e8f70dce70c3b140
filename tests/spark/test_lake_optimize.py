"""`optimize`: the same rows in few sorted files, beside a job that writes the same tables."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as pa_dataset
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.integration.server_process import ServerProcess
from tests.spark.lake_check import Here, InProcess, Lake, check
from tests.spark.test_lake import write
from tidelog.errors import ClientError
from tidelog.spark.delta.storage import find_storage
from tidelog.spark.jobs.job_lease import Stop
from tidelog.spark.lake.compaction import is_sorted, sortings
from tidelog.spark.lake.current_pass import PassOutcome, PassWork
from tidelog.spark.lake.job import LakeOptions
from tidelog.spark.lake.layout import BAD, CHANGES, CURRENT, ENTRIES
from tidelog.spark.lake.optimize import OptimizeJob, TableTotals
from tidelog.spark.lake.rewrite import SORTED_BY, Rewrite
from tidelog.spark.lake.tables import LakeTable, find_table

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", "--shards", "2", has_flight=True) as running:
        yield running


def optimize(spark: SparkSession, folder: Path, **options: Any) -> dict[str, TableTotals]:
    job = OptimizeJob(find_storage(str(folder)), **options)
    job.run(lambda: spark, Stop())
    assert not job.failed, job.last_error
    return {each.table: each for each in job.totals}


def opened(folder: Path, name: str) -> LakeTable:
    found = find_table(find_storage(str(folder)), name)
    assert found is not None
    return found


def all_rows(folder: Path) -> dict[str, list[str]]:
    return {name: sorted(map(repr, Lake(folder).rows(name))) for name in (CHANGES, CURRENT, ENTRIES, BAD)}


def test_files_are_put_together_and_sorted(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    """Maps and JSON columns, too; a table in order is left alone, and the lake goes on."""
    folder, draw, options = tmp_path / "lake", random.Random(1), LakeOptions(is_json=True)
    with server.client() as client:
        run = InProcess(server.port, folder, options)
        for number in range(6):
            write(client, draw, 60)
            client.set(f"j:{number}", f'{{"a": {number}, "b{number}": "x"}}')
            run.take()
            run.fold()
        before = all_rows(folder)
        planned = OptimizeJob(find_storage(str(folder))).plan()
        assert {each.table: each.to_rewrite for each in planned} == {
            name: len(opened(folder, name).files()) for name in (CHANGES, CURRENT, ENTRIES, BAD)
        }
        done = optimize(spark, folder)
        assert all_rows(folder) == before
        assert {name: each.files for name, each in done.items()} == {CHANGES: 1, CURRENT: 1, ENTRIES: 1, BAD: 1}
        assert all(
            each.rewritten == each.to_rewrite == each.files_before > 1
            for each in done.values()
            if each.table != CURRENT
        )
        for name, columns in SORTED_BY.items():
            [file] = opened(folder, name).files()
            assert is_sorted(file)
            rows = pq.read_table(folder / name / file.path, columns=list(columns), partitioning=None).to_pylist()
            order = [tuple((row[column] is None, row[column]) for column in columns) for row in rows]
            assert order == sorted(order)
        again = optimize(spark, folder)
        assert [each.to_rewrite for each in again.values()] == [0, 0, 0, 0]
        write(client, draw, 60)
        InProcess(server.port, folder, options).run()
        check(server.port, client, folder)


def test_readers_of_one_key_skip_the_rest(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the statistics of the groups of rows in each file."""
    folder = tmp_path / "lake"
    with server.client() as client:
        client.mset({f"k:{number * 7919 % 1000}": number for number in range(1000)})
        InProcess(server.port, folder).run()
    wanted = pa_dataset.field("key") == b"k:500"

    def groups() -> tuple[int, int]:
        """Of one key, and all."""
        found = DeltaTable(str(folder / CURRENT)).to_pyarrow_dataset()
        assert found.to_table(filter=wanted).num_rows == 1
        files: Any = list(found.get_fragments())
        return sum(len(file.subset(wanted).row_groups) for file in files), sum(len(file.row_groups) for file in files)

    monkeypatch.setattr("tidelog.limits.LAKE_SORTED_GROUP_ROWS", 100)
    table = opened(folder, CURRENT)
    assert table.replace(Here().each(list(sortings(table, 0)), Rewrite.run))
    assert groups() == (1, 10)


def test_what_is_too_large_to_sort_becomes_several_files(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.limits.LAKE_SORTED_BYTES", 20_000)
    with server.client() as client:
        client.mset({f"k:{number}": "x" * 100 for number in range(1000)})
        InProcess(server.port, tmp_path / "lake").run()
        table = opened(tmp_path / "lake", CURRENT)
        table.replace(Here().each(list(sortings(table, 0)), Rewrite.run))
        assert len(table.files()) > 3
        assert all(map(is_sorted, table.files()))
        assert list(sortings(table, 0)) == []
        check(server.port, client, tmp_path / "lake")


def test_changes_that_were_not_folded_are_left_alone(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    """A pass finds them by the ts of their files."""
    folder = tmp_path / "lake"
    with server.client() as client:
        run = InProcess(server.port, folder)
        for number in range(4):
            client.set("k", number)
            run.take()
            if number == 1:
                run.fold()
        done = optimize(spark, folder, names=[CHANGES])
        assert (done[CHANGES].rewritten, done[CHANGES].files) == (2, 3)
        run.fold()
        check(server.port, client, folder)


# --- beside the lake --------------------------------------------------------------------------------------------------


def test_what_the_lake_replaces_first_is_skipped(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    """And where it only adds files, the commit is tried again."""
    folder = tmp_path / "lake"
    with server.client() as client:
        run = InProcess(server.port, folder)
        for number in range(3):
            client.set(f"k{number}", number)
            run.take()
            run.fold()
        job = OptimizeJob(find_storage(str(folder)), [CHANGES, CURRENT])

        def alter(_table: str, done: int, _all: int) -> None:
            if done:  # the files are written, and not yet committed
                client.set("k0", f"{_table} now")
                run.take()
                run.fold()

        job.run(lambda: spark, Stop(), alter)
        changes, current = job.totals
        assert (changes.rewritten, changes.skipped) == (3, 0)
        assert (current.rewritten, current.skipped) == (0, current.to_rewrite)
        check(server.port, client, folder)


class Interrupted(Here):
    """Something happens when a pass has written its files, and the driver does not know yet."""

    def __init__(self, table: LakeTable) -> None:
        self._table = table
        self.passes = 0

    def fold(self, work: PassWork, groups: Sequence[Sequence[str]]) -> PassOutcome:
        done = super().fold(work, groups)
        self.passes += 1
        if self.passes == 1:
            self._table.refresh()
            assert self._table.replace(self.each(list(sortings(self._table, 0)), Rewrite.run))
        return done


def test_a_pass_whose_files_were_replaced_is_done_again(server: ServerProcess, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    with server.client() as client:
        client.mset({f"k:{number}": number for number in range(50)})
        InProcess(server.port, folder).run()
        client.mset({f"k:{number}": "new" for number in range(10)})
        client.delete("k:11")
        run = InProcess(server.port, folder)
        run.take()
        run.current._executors = executors = Interrupted(opened(folder, CURRENT))
        run.fold()
        assert executors.passes == 2
        check(server.port, client, folder)


def test_both_jobs_run_at_the_same_time(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    """Neither fails, and nothing is lost or there twice."""
    folder, draw, ends = tmp_path / "lake", random.Random(5), threading.Event()
    problems: list[BaseException] = []
    run = InProcess(server.port, folder)

    def keep() -> None:
        with server.client() as client:
            try:
                while not ends.is_set():
                    write(client, draw, 10)
                    run.take()
                    run.fold()
            except BaseException as error:
                problems.append(error)

    with server.client() as client:
        write(client, draw, 200)
        run.run()
        thread = threading.Thread(target=keep)
        thread.start()
        try:
            rewritten = sum(each.rewritten for _ in range(4) for each in optimize(spark, folder).values())
        finally:
            ends.set()
            thread.join(60)
        assert not problems, problems
        assert rewritten
        run.run()
        check(server.port, client, folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ["chnages"]}, "give one of changes, current, entries, bad"),
        ({"keep_hours": 0}, "--keep is less than 1 hour"),
        ({"names": [BAD]}, "there is no such table"),
        ({}, "there is no lake"),
    ],
)
def test_what_cannot_be_is_refused(options: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=message):
        OptimizeJob(find_storage(str(tmp_path)), **options).plan()
