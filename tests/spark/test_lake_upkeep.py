"""Small files are put together, and old ones removed: the tables have the same rows before and after."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.server_process import ServerProcess
from tests.spark.lake_check import Here, InProcess, Lake, check
from tidelog import limits
from tidelog.spark.lake.layout import CHANGES, CURRENT, ENTRIES
from tidelog.spark.lake.upkeep import compact, vacuum

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(120)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", has_flight=True) as running:
        yield running


def files_of(folder: Path, table: str) -> list[Path]:
    return sorted((folder / table).rglob("*.parquet"))


def test_small_files_are_put_together_and_old_ones_removed(server: ServerProcess, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    with server.client() as client:
        run = InProcess(server.port, folder)
        for number in range(12):
            client.set(f"k{number % 3}", number)
            client.xadd("x", {"n": number})
            run.take()
            run.fold()
        (folder / CHANGES / "part-left-behind.parquet").write_bytes(b"of a task that was killed")
        assert len(files_of(folder, CHANGES)) == 13
        folded = run.current.table.ts
        assert compact(run.tables[CHANGES], folded - 1, Here(), small_files_max=11) == 0
        assert compact(run.tables[CHANGES], folded, Here(), small_files_max=12) == 0
        assert compact(run.tables[CHANGES], folded, Here(), small_files_max=5) == 11
        assert compact(run.tables[ENTRIES], folded, Here(), small_files_max=5) == 11
        check(server.port, client, folder)
        assert vacuum(run.tables[CHANGES], None) == 0
        for path in folder.rglob("*.parquet"):
            os.utime(path, (time.time() - 7200,) * 2)
        assert vacuum(run.tables[CHANGES], 0) == 13
        assert len(files_of(folder, CHANGES)) == 1
        assert vacuum(run.tables[ENTRIES], 0) == 12
        run.current.table.refresh()
        vacuum(run.current.table, 0)
        assert len(files_of(folder, CURRENT)) == len(run.current.table.delta.file_uris())
        client.set("k0", "after")
        InProcess(server.port, folder).run()
        check(server.port, client, folder)
        assert len(Lake(folder).entries()) == 12


def test_what_holds_is_not_kept_for_long(server: ServerProcess, tmp_path: Path) -> None:
    """Files of `current` go after a quarter of an hour, unless a time is given."""
    with server.client() as client:
        run = InProcess(server.port, tmp_path)
        for number in range(3):
            client.set("k", number)
            run.take()
            run.fold()
    assert len(files_of(tmp_path, CURRENT)) == 3
    run.current.table.refresh()
    assert vacuum(run.current.table, None) == 0
    assert (
        run.current.table.delta.metadata().configuration["delta.deletedFileRetentionDuration"] == "interval 15 minutes"
    )


def test_passes_wait_for_as_long_as_they_rewrite(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        run = InProcess(server.port, tmp_path)
        client.set("k", 1)
        run.run()
        client.set("k", 2)
        run.take()
        run.current.refresh()
        assert run.current.is_behind
        run.current.last_s = 1000.0
        assert not run.current.is_due
        run.current.last_s = 0.0
        run.current._rewritten_bytes = 1000 * limits.LAKE_REWRITTEN_BYTES_PER_S
        assert not run.current.is_due
        run.current._rewritten_bytes = 0
        assert run.current.is_due
