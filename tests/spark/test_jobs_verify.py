"""The audit side by side agrees with the one that goes through everything by itself."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from tests.cli.command_line import invoke
from tests.cli.directories import fill
from tests.store.cold import fill as fill_cold
from tests.store.cold import made as made_cold
from tidelog.journal.verify import VerifyReport, verify
from tidelog.spark.copies.address import HistoryAddress
from tidelog.spark.jobs.verify import FrameRun, NeededFile, Proof, Task, TimeRange, audit_in_parallel, prove
from tidelog.store.type_table import operation_table
from tidelog.system.disk import SystemDisk

pytestmark = pytest.mark.xdist_group("spark")

SHARD_COUNTS: Final = (1, 3)
DAMAGES: Final = 30


class Here:
    """Runs tasks in this process, and keeps them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.tasks: list[Task] = []

    def __call__(self, tasks: Sequence[Task]) -> list[Proof]:
        self.tasks += tasks
        return [prove(task, HistoryAddress(self._url)) for task in tasks]


@pytest.fixture(scope="module")
def with_nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Streams in node files, and two snapshots that refer to them."""
    folder = tmp_path_factory.mktemp("nodes") / "data"
    store = made_cold(SystemDisk(), 2, str(folder))
    fill_cold(store, 1)
    store.save()
    store.journal.close()
    return folder


@pytest.fixture(scope="module", params=SHARD_COUNTS)
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "data"
    fill(SystemDisk(), str(folder), shards=request.param, snapshot=True, sidecars=True, is_newer=False)
    return folder


def alone(folder: Path) -> VerifyReport:
    return verify(SystemDisk(), str(folder), operation_table())


def side_by_side(folder: Path, frames: int = 1) -> tuple[VerifyReport, list[Task]]:
    here = Here(str(folder))
    return audit_in_parallel(HistoryAddress(str(folder)), here, frames=frames), here.tasks


def as_told(report: VerifyReport) -> tuple[object, ...]:
    problems = [(each.path, each.frame, each.position, each.problem) for each in report.problems]
    nodes = report.nodes, report.lost_nodes
    cycles = report.cycle, report.synced_cycle, report.last_ts
    return report.shards, problems, report.notes, report.snapshots, nodes, cycles


@pytest.mark.parametrize("frames", [1, 3, 100])
def test_a_sound_journal_is_proved_by_tasks_alone(sound: Path, frames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = alone(sound)
    monkeypatch.setattr("tidelog.spark.jobs.verify.verify", None)  # the audit on the driver is not needed
    report, tasks = side_by_side(sound, frames)
    assert as_told(report) == as_told(expected)
    assert report.tail_bytes == expected.tail_bytes
    runs = [task for task in tasks if isinstance(task, FrameRun)]
    assert sum(run.end is None for run in runs) == len(report.shards)
    ranges = [task for task in tasks if isinstance(task, TimeRange)]
    if frames == 1:
        assert len(runs) == sum(shard.frames for shard in report.shards)
        assert len(ranges) > 3


def test_nodes_are_proved_by_tasks_alone(with_nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = alone(with_nodes)
    monkeypatch.setattr("tidelog.spark.jobs.verify.verify", None)
    report, tasks = side_by_side(with_nodes, 3)
    assert as_told(report) == as_told(expected)
    assert report.is_sound
    assert report.nodes == 9
    assert len([task for task in tasks if isinstance(task, NeededFile)]) == 2, "each file once, for both snapshots"


@pytest.mark.parametrize("seed", range(DAMAGES))
def test_damage_of_node_files_is_told_in_the_same_words(with_nodes: Path, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    folder = tmp_path / "data"
    shutil.copytree(with_nodes, folder)
    damaged = draw.choice(sorted(folder.glob("shard-*/nodes-*.bin")))
    data = bytearray(damaged.read_bytes())
    way = draw.randrange(4)
    if way == 0:
        damaged.unlink()
    elif way == 1:
        damaged.write_bytes(data[: draw.randrange(len(data))])
    else:
        for _ in range(draw.choice([1, 1, 5])):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        damaged.write_bytes(data)
    expected = alone(folder)
    report, _ = side_by_side(folder, 3)
    assert as_told(report) == as_told(expected)
    assert all(problem.path == str(damaged) for problem in report.problems)


@pytest.mark.parametrize("seed", range(DAMAGES))
def test_damage_is_told_in_the_same_words(sound: Path, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    folder = tmp_path / "data"
    shutil.copytree(sound, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "meta.json")
    damaged = draw.choice(files)
    data = bytearray(damaged.read_bytes())
    way = draw.randrange(4)
    if way == 0 or not data:
        damaged.unlink()
    elif way == 1:
        damaged.write_bytes(data[: draw.randrange(len(data))])
    elif way == 2:
        damaged.write_bytes(data + draw.randbytes(draw.randrange(1, 5000)))
    else:
        for _ in range(draw.choice([1, 1, 20])):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        damaged.write_bytes(data)
    try:
        expected = alone(folder)
    except Exception as error:
        with pytest.raises(type(error)):
            side_by_side(folder)
        return
    report, _ = side_by_side(folder, draw.choice([1, 2, 5]))
    assert as_told(report) == as_told(expected), f"{damaged}, way {way}"


def test_a_snapshot_is_audited_as_a_whole(sound: Path) -> None:
    [snapshot] = (sound / "snapshots").iterdir()
    report, tasks = side_by_side(snapshot)
    assert as_told(report) == as_told(alone(snapshot))
    assert not tasks


@pytest.mark.usefixtures("spark")
def test_the_command_says_what_journal_verify_says(sound: Path, tmp_path: Path) -> None:
    expected = invoke("journal", "verify", sound, "--json")
    assert expected.status == 0
    for target in (str(sound), f"file://{sound}"):
        found = invoke("pipeline", "verify", target, "--frames", "2", "--json")
        assert (found.status, found.stderr) == (0, "")
        assert found.objects == expected.objects
    copied = tmp_path / "data"
    shutil.copytree(sound, copied)
    path = next((copied / "shard-0").glob("journal-*"))
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    expected = invoke("journal", "verify", copied, "--json")
    found = invoke("pipeline", "verify", copied, "--json")
    assert (found.status, found.objects, found.stderr) == (1, expected.objects, expected.stderr)
    assert expected.of_kind("problem")


def test_what_is_no_journal_is_said(tmp_path: Path, spark: SparkSession) -> None:
    found = invoke("pipeline", "verify", tmp_path)
    assert (found.status, len(found.stderr.splitlines())) == (2, 1)
    assert spark.range(3).count() == 3, "the session was not the command's to end"
