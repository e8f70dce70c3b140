"""The scrub: it reads all node files, slowly, and tells of damage once."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from tests.store.cold import made, node_paths
from tidelog import limits
from tidelog.ids import ShardId
from tidelog.journal.node_files import NodeFiles
from tidelog.server.scrub import Scrub
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk


async def passed_over(scrub: Scrub, clock: SimulatedClock, step_us: int = 1_000_000) -> int:
    """One pass; returns in how many ticks."""
    goal = scrub.facts.passes + 1
    for count in range(5000):
        scrub.tick()
        while scrub._is_reading:
            await asyncio.sleep(0.0005)
        if scrub.facts.passes == goal:
            return count
        clock.advance(step_us)
    raise AssertionError("it never ended")


def scrubbed(disk: SimulatedDisk, files: NodeFiles, passes: int = 1) -> tuple[Scrub, list[int]]:
    ticks = []

    async def run() -> Scrub:
        clock = SimulatedClock()
        scrub = Scrub(asyncio.get_running_loop(), files, clock)
        for _ in range(passes):
            ticks.append(await passed_over(scrub, clock))
            clock.advance(1_000_000 * limits.SCRUB_REST_S)
        scrub.close()
        return scrub

    return asyncio.run(run()), ticks


def store_files() -> tuple[SimulatedDisk, NodeFiles]:
    disk = SimulatedDisk()
    store = made(disk)
    assert store.cooling is not None
    return disk, store.cooling.files


def test_everything_is_read_at_a_bounded_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, files = store_files()
    monkeypatch.setattr(limits, "SCRUB_BYTES_PER_S", 1000)
    monkeypatch.setattr(limits, "SCRUB_SLICE_BYTES", 500)
    scrub, [ticks] = scrubbed(disk, files)
    total = sum(file.size_bytes for file in files)
    assert scrub.facts.bytes == total - 16 * len(list(files))
    assert (scrub.facts.damaged, scrub.facts.pass_bytes) == (0, 0)
    assert ticks >= total // 1000 - len(list(files)) - 1
    assert not [file for file in files if file.pins]


def test_damage_is_told_once_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    disk, files = store_files()
    path = node_paths(disk)[0]
    disk.flip_bit(path, 8 * 60)
    with caplog.at_level(logging.ERROR, "tidelog"):
        scrub, _ = scrubbed(disk, files, passes=3)
    assert (scrub.facts.passes, scrub.facts.damaged) == (3, 1)
    [told] = [record.getMessage() for record in caplog.records if record.name == "tidelog"]
    assert path in told
    assert "position 16" in told


def test_a_file_that_cannot_be_read_does_not_end_it() -> None:
    disk, files = store_files()
    disk.remove(node_paths(disk)[0])
    scrub, _ = scrubbed(disk, files)
    assert scrub.facts.damaged == 1


def test_a_file_that_could_not_be_made_is_no_damage() -> None:
    disk, files = store_files()
    files.close()
    before = len(list(files))
    disk.fail("write", errno.EIO, path_contains="nodes-")
    disk.fail("remove", errno.EIO, path_contains="nodes-")
    with pytest.raises(OSError, match="EIO"):
        files.append(ShardId(0), [b"lost"])
    assert len(list(files)) == before + 1
    scrub, _ = scrubbed(disk, files)
    assert scrub.facts.damaged == 0
