"""Which node files may go from disk, and which need not come back: what snapshots in the copy prove, and no more."""

from __future__ import annotations

import random

import pytest

from tidelog import limits
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.frame import Geometry
from tidelog.journal.layout import NodeFileLength, SnapshotPoint
from tidelog.journal.node_format import inner_path
from tidelog.shipping.archive import Archive
from tidelog.shipping.copied_files import CopiedFiles, copied_files
from tidelog.shipping.lineage import Lineage, ShippedExtent, ShippedFile
from tidelog.shipping.upkeep import Upkeep
from tidelog.shipping.uploads import Uploads
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.object_store import SimulatedBucket

HOUR = limits.HOUR_US
FULL = NodeFileLength(ShardId(0), 7, 100)
PATH = inner_path(FULL)


class Copy:
    """A lineage with one node file, which some of its snapshots list."""

    def __init__(self) -> None:
        self.archive = Archive(None)
        self.lineage = Lineage("1.0", Geometry(4096, 4), 1, begins_ts=Ts(0))
        self.archive.add(self.lineage)

    def has(self, size: int = 100) -> None:
        self.archive.set_file(self.lineage, PATH, ShippedFile((ShippedExtent(0, size, "o", "d"),)))

    def save(self, ts: int, *listed: NodeFileLength) -> None:
        self.lineage.snapshots[Ts(ts)] = SnapshotPoint(Ts(ts), (Lsn(0),), node_files=listed)
        self.archive.confirm()

    def look(self, before: int) -> tuple[bool, bool]:
        """Whether the file may go, and whether it may stay away."""
        found = copied_files(self.archive, Ts(max(0, before)))
        assert found is not None
        return PATH in found.old, PATH in found.may_stay_away


def test_a_snapshot_before_proves_age_and_one_after_youth() -> None:
    copy = Copy()
    copy.has()
    copy.save(10)
    copy.save(20, FULL._replace(length=60))
    copy.save(30, FULL)

    assert copy.look(35) == (True, True)
    assert copy.look(30) == (True, True)
    assert copy.look(29) == (False, True), "it may be as old as that, or not"
    assert copy.look(20) == (False, True)
    assert copy.look(19) == (False, False), "at 20 it was shorter"


def test_without_a_snapshot_that_a_manifest_names_nothing_is_known() -> None:
    copy = Copy()
    copy.has()
    assert copied_files(copy.archive, Ts(50)) is None
    copy.lineage.snapshots[Ts(30)] = SnapshotPoint(Ts(30), (Lsn(0),), node_files=(FULL,))
    assert copied_files(copy.archive, Ts(50)) is None, "it is there, and no manifest says so"
    copy.archive.confirm()
    assert copied_files(copy.archive, Ts(50)) == CopiedFiles(
        {PATH: copy.lineage.files[PATH]}, {PATH: copy.lineage.files[PATH]}
    )


def test_a_file_that_is_not_all_there_is_not_named() -> None:
    copy = Copy()
    copy.archive.set_file(copy.lineage, PATH, ShippedFile((ShippedExtent(50, 50, "o", "d"),)))
    copy.save(30, FULL)
    assert copy.look(50) == (False, False)


@pytest.mark.parametrize("local_hours", [0.5, 2, 6, 20, 30])
@pytest.mark.parametrize("sweep_minute", [0, 20, 50])
def test_a_file_that_went_does_not_come_back_when_snapshots_are_thinned_out(
    local_hours: float, sweep_minute: int
) -> None:
    copy, clock = Copy(), SimulatedClock()
    bucket = SimulatedBucket(clock, random.Random(1)).client("server")
    keep_us = 30 * 24 * HOUR
    is_away, moves = False, []
    upkeep = Upkeep(
        bucket,
        "db",
        copy.archive,
        Uploads(bucket, "db", 0, clock),
        keep_us,
        (),
        (),
        lambda: iter(()),
        lambda _path: is_away,
    )
    for minute in range(0, 60 * 60, 10):
        now = minute * 60 * limits.SECOND_US
        if minute == 320:
            copy.has()
        copy.save(now + 1, *([FULL] if minute >= 320 else []))
        if minute % 60 == sweep_minute:
            upkeep._thin_out(copy.lineage, Ts(0))
            copy.archive.confirm()
        may_go, may_stay_away = copy.look(now - round(local_hours * HOUR))
        if (may_go and not is_away) or (is_away and not may_stay_away):
            is_away = not is_away
            moves.append(minute)
    assert len(moves) == 1, "it went, once"
