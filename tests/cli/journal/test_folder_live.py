"""The journal commands beside a process that is writing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli import live_writer
from tests.cli.command_line import ENVIRONMENT, run
from tidelog.journal.inspection import ShardInspection, locate
from tidelog.journal.operation import core_table
from tidelog.journal.record_inspection import Selection, select_records
from tidelog.system.disk import SystemDisk

ROUNDS = 3
LOOKING_S = 2


@contextmanager
def writing(path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A process that writes to a directory for as long as the block lasts."""
    command = [sys.executable, "-P", live_writer.__file__, str(path), *options]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "writing\n"
            yield process
            assert process.poll() is None, "it must still be writing"
        finally:
            process.kill()


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("ls",), marks=pytest.mark.long),
        ("ls", "--frames"),
        pytest.param(("show", "--limit", "500"), marks=pytest.mark.long),
        pytest.param(("show", "--payload", "--key", "key:7"), marks=pytest.mark.long),
        ("verify",),
    ],
)
def test_a_tail_in_motion_is_no_damage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = tmp_path / "data"
    with writing(path):
        for _ in range(ROUNDS):
            outcome = run("journal", arguments[0], path, "--json", *arguments[1:])
            assert (outcome.status, outcome.stderr) == (0, ""), outcome.of_kind("damage") + outcome.of_kind("problem")
            assert outcome.objects


@pytest.mark.parametrize("arguments", [("ls", "--frames"), ("show", "--payload")])
def test_segments_may_be_erased_meanwhile(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = tmp_path / "data"
    with writing(path, "erase"):
        for _ in range(ROUNDS):
            outcome = run("journal", arguments[0], path, "--json", *arguments[1:])
            assert (outcome.status, outcome.stderr) == (0, ""), outcome.of_kind("damage")


@pytest.mark.parametrize("options", [(), ("erase",)])
def test_many_looks_see_no_damage_and_no_hole(tmp_path: Path, options: tuple[str, ...]) -> None:
    """In this process, so that there are hundreds of them: the moments that matter last a millisecond."""
    path, disk, looks = tmp_path / "data", SystemDisk(), 0
    with writing(path, *options):
        give_up = time.monotonic() + LOOKING_S
        while time.monotonic() < give_up:
            place = locate(disk, str(path))
            for shard in place.shards:
                inspection = ShardInspection(disk, place, shard)
                newest = max(inspection.list_segments()[-3:])
                wanted = Selection(payloads=True) if options else Selection(payloads=True, lsn_first=newest)
                found = [r for r in select_records(inspection, core_table(), wanted) if r.lsn is not None]
                assert [str(error) for error in inspection.damage] == []
                # Whole segments are left out if they are erased meanwhile, and nothing else ever is.
                jumps = [after for before, after in pairwise(found) if after.lsn != (before.lsn or 0) + 1]
                assert [record for record in jumps if not options or record.lsn != record.segment] == []
                inspection.close()
                inspection = ShardInspection(disk, place, shard)
                frames = list(inspection.frames()) if options else list(inspection.segments())
                assert frames or options
                assert [str(error) for error in inspection.damage] == []
                inspection.close()
            looks += 1
    assert looks > 10


def test_it_cannot_be_repaired_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with writing(path) as process:
        outcome = run("journal", "repair", path)
        assert outcome.status == 2
        assert f"in use by another process (held by process {process.pid})" in outcome.stderr
    # Killed, it leaves a tail at most: that needs no repair.
    assert run("journal", "verify", path).status == 0
    assert run("journal", "repair", path).stdout == f"{path} needs no repair\n"
