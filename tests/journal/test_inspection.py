"""Segments, frames and snapshots as `inspection` describes them, whole, live and damaged."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.cli.directories import GEOMETRY, SHARDS, Written, fill, first_segment, flip_bit, open_journal
from tidelog.errors import Corruption, DataDirectoryError
from tidelog.ids import ShardId
from tidelog.journal.control import mark_bytes
from tidelog.journal.inspection import FrameInfo, SegmentInfo, ShardInspection, list_snapshots, locate
from tidelog.journal.segment import list_segments
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

FOLDER = "/data"
FRAME = GEOMETRY.frame_bytes


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(1)


@pytest.fixture
def written(disk: SimulatedDisk) -> list[Written]:
    return fill(disk, FOLDER, snapshot=True)


def inspections(disk: SimulatedDisk, path: str = FOLDER) -> list[ShardInspection]:
    place = locate(disk, path)
    return [ShardInspection(disk, place, shard) for shard in place.shards]


def all_segments(disk: SimulatedDisk) -> list[SegmentInfo]:
    return [segment for shard in inspections(disk) for segment in shard.segments()]


def frames_of(disk: SimulatedDisk, shard: int) -> tuple[list[FrameInfo], ShardInspection]:
    inspection = inspections(disk)[shard]
    return list(inspection.frames()), inspection


def append_to(disk: SimulatedDisk, path: str, data: bytes) -> int:
    """Returns where the file ended before."""
    file = disk.open(path, "write")
    size = file.size()
    file.write(size, [data])
    file.close()
    return size


# --- what a path is ---------------------------------------------------------------------------------------------------


def test_a_path_is_a_data_directory_a_snapshot_or_a_shard(disk: SimulatedDisk, written: list[Written]) -> None:
    place = locate(disk, f"{FOLDER}/")
    assert (place.kind, place.folder, place.shards, place.is_shard) == ("data", FOLDER, (0, 1, 2), False)
    [snapshot] = list_snapshots(disk, FOLDER)
    path = f"{FOLDER}/snapshots/{snapshot.name}"
    assert locate(disk, path).kind == "snapshot"
    for folder, kind in ((FOLDER, "data"), (path, "snapshot")):
        shard = locate(disk, f"{folder}/shard-1")
        assert (shard.kind, shard.folder, shard.shards, shard.is_shard) == (kind, folder, (1,), True)


@pytest.mark.parametrize("path", ["/nowhere", "/other", "/data/shard-7", "/data/meta.json", "/data/snapshots"])
def test_any_other_path_is_refused(disk: SimulatedDisk, written: list[Written], path: str) -> None:
    disk.make_folder("/other")
    disk.make_folder("/data/shard-7")
    with pytest.raises(DataDirectoryError, match=path):
        locate(disk, path)


def test_a_damaged_meta_file_is_damage(disk: SimulatedDisk, written: list[Written]) -> None:
    flip_bit(disk, f"{FOLDER}/meta.json", 20)
    with pytest.raises(Corruption, match=r"meta\.json"):
        locate(disk, FOLDER)


# --- segments ---------------------------------------------------------------------------------------------------------


def test_segments_say_what_the_files_are(disk: SimulatedDisk, written: list[Written]) -> None:
    for inspection in inspections(disk):
        segments = list(inspection.segments())
        firsts = list_segments(disk, f"{FOLDER}/shard-{inspection.shard}")
        assert [segment.first_lsn for segment in segments] == firsts
        assert len(firsts) > 1
        assert [segment.is_sealed for segment in segments] == [True] * (len(firsts) - 1) + [False]
        for segment in segments:
            file = disk.open(f"{FOLDER}/shard-{inspection.shard}/{segment.file}", "read")
            assert segment.size_bytes == file.size()
            assert segment.frames == -(-file.size() // FRAME)
            first = next(record for record in written if record[:2] == (inspection.shard, segment.first_lsn))
            assert segment.first_ts is not None
            assert segment.first_ts <= first.ts
            assert segment.last_frame_ts is not None
            assert segment.first_ts <= segment.last_frame_ts
        assert sum(segment.blob_bytes for segment in segments) == sum(
            len(record.payload) for record in written if record.shard == inspection.shard and len(record.payload) > 1024
        )
        assert not inspection.damage


def test_segments_read_heads_only(disk: SimulatedDisk, written: list[Written]) -> None:
    flip_bit(disk, f"{FOLDER}/{first_segment(0)}", FRAME + 200)
    [inspection, *_] = inspections(disk)
    list(inspection.segments())
    assert not inspection.damage


def test_a_new_directory_and_an_empty_file_are_fine(disk: SimulatedDisk) -> None:
    open_journal(disk, FOLDER, SimulatedClock()).close()
    assert [segment.frames for segment in all_segments(disk)] == [1] * SHARDS
    disk.open(f"{FOLDER}/shard-0/journal-00000000000000ff.dj0", "create").close()
    last = all_segments(disk)[1]
    assert (last.frames, last.size_bytes, last.first_ts, last.last_frame_ts) == (0, 0, None, None)


def test_a_cut_segment_that_another_follows_is_damage(disk: SimulatedDisk, written: list[Written]) -> None:
    path = f"{FOLDER}/{first_segment(2)}"
    file = disk.open(path, "write")
    file.truncate(5000)
    for look in (ShardInspection.segments, ShardInspection.frames):
        inspection = inspections(disk)[2]
        list(look(inspection))
        assert [(error.path, error.position) for error in inspection.damage] == [(path, 5000)]


def test_a_missing_folder_is_damage(disk: SimulatedDisk, written: list[Written]) -> None:
    folder = f"{FOLDER}/shard-1"
    for name in disk.list(folder):
        disk.remove(f"{folder}/{name}")
    disk.remove(folder)
    inspection = inspections(disk)[1]
    assert list(inspection.segments()) == []
    assert [error.path for error in inspection.damage] == [folder]


def test_a_head_that_cannot_be_read_is_damage_and_the_rest_is_described(
    disk: SimulatedDisk, written: list[Written]
) -> None:
    flip_bit(disk, f"{FOLDER}/{first_segment(0)}", 0)
    [inspection, *_] = inspections(disk)
    segments = list(inspection.segments())
    assert segments[0].first_ts is None
    assert all(segment.first_ts for segment in segments[1:])
    assert [(error.frame, error.position) for error in inspection.damage] == [(0, 0)]


def test_a_segment_under_a_wrong_name_is_damage(disk: SimulatedDisk, written: list[Written]) -> None:
    disk.rename(f"{FOLDER}/{first_segment(0)}", f"{FOLDER}/shard-0/journal-0000000000000001.dj0")
    [inspection, *_] = inspections(disk)
    list(inspection.segments())
    assert "begins at lsn 0, not at 1" in str(inspection.damage[0])


# --- frames -----------------------------------------------------------------------------------------------------------


def test_frames_count_every_record_once(disk: SimulatedDisk, written: list[Written]) -> None:
    expected = Counter(record.shard for record in written)
    for shard in range(SHARDS):
        frames, inspection = frames_of(disk, shard)
        assert sum(frame.records for frame in frames) == expected[ShardId(shard)]
        assert [frame.checksum for frame in frames] == ["ok"] * (len(frames) - 1) + ["open"]
        assert any(frame.prev_record_offset is not None for frame in frames)
        assert all(24 <= frame.used_bytes <= FRAME - 4 for frame in frames)
        assert [frame.last_ts for frame in frames if frame.records] == [
            max(
                r.ts
                for r in written
                if r.shard == shard and (frame.lsn or 0) <= r.lsn < (frame.lsn or 0) + frame.records
            )
            for frame in frames
            if frame.records
        ]
        assert not inspection.damage
        assert inspection.tail is None


def test_a_flipped_bit_is_found_in_its_frame_and_no_other(disk: SimulatedDisk, written: list[Written]) -> None:
    path = f"{FOLDER}/{first_segment(1)}"
    flip_bit(disk, path, 2 * FRAME + 1000)
    frames, inspection = frames_of(disk, 1)
    assert [frame.frame for frame in frames if frame.checksum == "BAD"] == [2]
    [error] = inspection.damage
    assert (error.path, error.frame) == (path, 2)
    # The marks before it narrow it down.
    assert error.position is not None
    assert 2 * FRAME <= error.position <= 2 * FRAME + 1000


def test_a_damaged_head_does_not_hide_the_frames_after_it(disk: SimulatedDisk, written: list[Written]) -> None:
    flip_bit(disk, f"{FOLDER}/{first_segment(1)}", FRAME)
    frames, inspection = frames_of(disk, 1)
    assert [frame.lsn is None for frame in frames[:4]] == [False, True, False, False]
    assert (frames[1].checksum, frames[1].ts, frames[1].used_bytes) == ("BAD", None, 0)
    assert len(inspection.damage) == 1


@pytest.mark.parametrize("tail", [b"\x01", b"\x01\x11\x07half", b"\0" * 100 + b"\x01\x11", b"\xff" * 50])
def test_what_follows_the_last_mark_is_a_tail(disk: SimulatedDisk, written: list[Written], tail: bytes) -> None:
    path = f"{FOLDER}/shard-0/{all_segments_of(disk, 0)[-1].file}"
    end = append_to(disk, path, tail)
    frames, inspection = frames_of(disk, 0)
    assert frames[-1].checksum == "open"
    assert inspection.tail == (path, end, len(tail))
    assert not inspection.damage


def test_zeros_after_the_last_mark_are_nothing(disk: SimulatedDisk, written: list[Written]) -> None:
    append_to(disk, f"{FOLDER}/shard-0/{all_segments_of(disk, 0)[-1].file}", bytes(40))
    _, inspection = frames_of(disk, 0)
    assert inspection.tail is None
    assert not inspection.damage


def test_a_torn_head_at_the_end_is_a_tail(disk: SimulatedDisk, written: list[Written]) -> None:
    last = all_segments_of(disk, 0)[-1]
    path = f"{FOLDER}/shard-0/{last.file}"
    append_to(disk, path, bytes(-last.size_bytes % FRAME) + b"DJ")
    inspection = inspections(disk)[0]
    assert list(inspection.segments())[-1].last_frame_ts is None
    assert inspection.tail is not None
    assert inspection.tail.size_bytes == 2
    assert not inspection.damage


def all_segments_of(disk: SimulatedDisk, shard: int) -> list[SegmentInfo]:
    return [segment for segment in all_segments(disk) if segment.shard == shard]


def test_damage_before_a_valid_mark_of_the_open_frame_is_no_tail(disk: SimulatedDisk, written: list[Written]) -> None:
    last = all_segments_of(disk, 0)[-1]
    path = f"{FOLDER}/shard-0/{last.file}"
    # The closing mark of a clean stop is the last thing; the one before it vouches for what is hit here.
    position = last.size_bytes - 2 * mark_bytes(SHARDS) - 5
    flip_bit(disk, path, position)
    frames, inspection = frames_of(disk, 0)
    assert frames[-1].checksum == "BAD"
    [error] = inspection.damage
    assert error.path == path
    assert error.position is not None
    assert error.position <= position


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_snapshots_are_listed_with_their_points(disk: SimulatedDisk, written: list[Written]) -> None:
    [snapshot] = list_snapshots(disk, FOLDER)
    assert snapshot.state == "complete"
    assert snapshot.point is not None
    covered = [record for record in written if record.ts <= snapshot.point.ts]
    assert list(snapshot.point.lsns) == [sum(record.shard == shard for record in covered) for shard in range(SHARDS)]
    assert snapshot.name == f"snapshot-{snapshot.point.ts:016x}"
    assert snapshot.size_bytes > 0


def test_a_snapshot_has_frames_like_a_journal_and_no_tail(disk: SimulatedDisk, written: list[Written]) -> None:
    [snapshot] = list_snapshots(disk, FOLDER)
    path = f"{FOLDER}/snapshots/{snapshot.name}"
    for inspection in inspections(disk, path):
        assert all(segment.is_sealed for segment in inspection.segments())
        assert sum(frame.records for frame in inspection.frames()) == 1
        assert not inspection.damage
    append_to(disk, f"{path}/{first_segment(0)}", b"more")
    [inspection, *_] = inspections(disk, path)
    list(inspection.frames())
    assert inspection.damage
    assert inspection.tail is None


def test_half_written_and_damaged_snapshots_are_listed_too(disk: SimulatedDisk, written: list[Written]) -> None:
    [snapshot] = list_snapshots(disk, FOLDER)
    parent = f"{FOLDER}/snapshots"
    flip_bit(disk, f"{parent}/{snapshot.name}/meta.json", 30)
    disk.make_folder(f"{parent}/snapshot-{1:016x}.partial")
    disk.make_folder(f"{parent}/snapshot-{2:016x}")
    disk.make_folder(f"{parent}/something-else")
    found = list(list_snapshots(disk, FOLDER))
    assert [each.state for each in found] == ["partial", "damaged", "damaged"]
    assert [each.damage is not None for each in found] == [False, True, True]
