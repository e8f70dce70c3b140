"""The data directory: its files, who may open it, and what is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final

import pytest
from crc32c import crc32c

from tests.journal.machine import FOLDER
from tidelog import limits
from tidelog.errors import Corruption, DataDirectoryError, DirectoryInUse, LimitExceeded
from tidelog.ids import Lsn, Ts
from tidelog.journal import layout
from tidelog.journal.frame import Geometry
from tidelog.journal.layout import Meta, SnapshotPoint
from tidelog.testing.disk import SimulatedCrash, SimulatedDisk

PATH = f"{FOLDER}/meta.json"
GEOMETRY = Geometry(2048, 8)


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    return disk


def put_json(disk: SimulatedDisk, members: dict[str, Any]) -> None:
    """A file with a right checksum, whatever it says."""
    crc = crc32c(json.dumps(members, sort_keys=True).encode())
    disk.write_file(PATH, json.dumps({**members, "crc32c": f"{crc:08x}"}).encode())


DATABASE_ID: Final = "0123456789abcdef" * 2
GOOD: dict[str, Any] = {
    "format": 1,
    "shards": 2,
    "slots": [[0, 8191], [8192, 16383]],
    "frame_bytes": 2048,
    "frames_per_segment": 8,
    "database_id": DATABASE_ID,
}


# --- meta.json --------------------------------------------------------------------------------------------------


def test_meta_says_shards_slots_and_sizes_and_carries_a_checksum() -> None:
    disk = new_disk()
    layout.create_directory(disk, FOLDER, GEOMETRY, 2, DATABASE_ID)
    members = json.loads(disk.read_file(PATH))
    crc = members.pop("crc32c")
    assert members == GOOD
    assert crc == f"{crc32c(json.dumps(GOOD, sort_keys=True).encode()):08x}"


@pytest.mark.parametrize("point", [None, SnapshotPoint(Ts(2**60), (Lsn(7), Lsn(2**40)))])
def test_meta_is_read_as_it_was_written(point: SnapshotPoint | None) -> None:
    disk = new_disk()
    meta = Meta(GEOMETRY, ((0, 8191), (8192, 16383)), point, DATABASE_ID)
    layout.write_meta(disk, FOLDER, meta)
    assert layout.read_meta(disk, FOLDER) == meta
    assert meta.shard_count == 2


def test_a_directory_of_an_earlier_version_has_no_id() -> None:
    disk = new_disk()
    put_json(disk, {name: value for name, value in GOOD.items() if name != "database_id"})
    assert layout.read_meta(disk, FOLDER).database_id == ""


@pytest.mark.parametrize("database_id", ["a", "A" * 32, "g" * 32, "0" * 33, 7, None, ["0" * 32]])
def test_an_id_that_is_none_is_refused(database_id: object) -> None:
    disk = new_disk()
    put_json(disk, {**GOOD, "database_id": database_id})
    if database_id is None:
        assert not layout.read_meta(disk, FOLDER).database_id
        return
    with pytest.raises(Corruption, match="does not describe a journal"):
        layout.read_meta(disk, FOLDER)


def test_a_folder_without_meta_is_no_data_directory() -> None:
    with pytest.raises(DataDirectoryError, match=r"is not a data directory of Tidelog: it has no meta\.json"):
        layout.read_meta(new_disk(), FOLDER)


@pytest.mark.parametrize("version", [0, 2, None, "1"])
def test_another_version_of_the_format_is_refused_by_name(version: object) -> None:
    disk = new_disk()
    put_json(disk, {**GOOD, "format": version})
    with pytest.raises(DataDirectoryError, match=f"format {version}, but this version reads only 1") as raised:
        layout.read_meta(disk, FOLDER)
    assert ("made by a newer version of Tidelog?" in str(raised.value)) == (version == 2)


def test_a_directory_that_names_no_version_is_of_the_first() -> None:
    disk = new_disk()
    put_json(disk, {name: value for name, value in GOOD.items() if name != "format"})
    assert layout.read_meta(disk, FOLDER).shard_count == 2


def test_every_flipped_bit_of_meta_is_found() -> None:
    disk = new_disk()
    layout.create_directory(disk, FOLDER, GEOMETRY, 2, DATABASE_ID)
    good = layout.read_meta(disk, FOLDER)
    believed = 0
    for bit in range(8 * len(disk.read_file(PATH))):
        disk.flip_bit(PATH, bit)
        with suppress(Corruption):
            assert layout.read_meta(disk, FOLDER) == good, "a change of white space alone does not matter"
            believed += 1
        disk.flip_bit(PATH, bit)
    assert believed < 20


def test_meta_that_is_cut_anywhere_is_found() -> None:
    disk = new_disk()
    layout.create_directory(disk, FOLDER, GEOMETRY, 2, DATABASE_ID)
    whole = disk.read_file(PATH)
    for size in range(len(whole) - 1):
        disk.write_file(PATH, whole[:size])
        with pytest.raises(Corruption, match="not a file that Tidelog wrote"):
            layout.read_meta(disk, FOLDER)


@pytest.mark.parametrize("text", [b"", b"[]", b"[1]", b"7", b"null", b'"crc32c"', b"{}", b"\xff\xfe", b'{"crc32c": 1}'])
def test_what_is_not_ours_is_a_corruption_and_never_another_error(text: bytes) -> None:
    disk = new_disk()
    disk.write_file(PATH, text)
    with pytest.raises(Corruption):
        layout.read_meta(disk, FOLDER)


@pytest.mark.parametrize(
    "change",
    [
        {"shards": 3},
        {"shards": None},
        {"slots": []},
        {"slots": [[0]]},
        {"slots": 5},
        {"slots": [["a", "b"], [1, 2]]},
        {"frame_bytes": 1000},
        {"frame_bytes": "2048"},
        {"frames_per_segment": 65},
        {"frames_per_segment": None},
        {"point": {"ts": 1}},
        {"point": 7},
    ],
)
def test_a_meta_that_describes_no_journal_is_a_corruption(change: dict[str, Any]) -> None:
    disk = new_disk()
    put_json(disk, {**GOOD, **change})
    with pytest.raises(Corruption):
        layout.read_meta(disk, FOLDER)


@pytest.mark.parametrize("name", [name for name in GOOD if name not in ("format", "database_id")])
def test_a_member_that_is_missing_is_said(name: str) -> None:
    disk = new_disk()
    put_json(disk, {key: value for key, value in GOOD.items() if key != name})
    with pytest.raises((Corruption, DataDirectoryError)):
        layout.read_meta(disk, FOLDER)


# --- making a directory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard_count", [0, -1, limits.SHARDS_MAX + 1])
def test_another_number_of_shards_is_refused_before_anything_is_made(shard_count: int) -> None:
    disk = new_disk()
    with pytest.raises(LimitExceeded, match="1 to 256"):
        layout.create_directory(disk, FOLDER, GEOMETRY, shard_count, DATABASE_ID)
    assert disk.list(FOLDER) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_while_making_leaves_a_whole_directory_or_one_that_can_be_made_again(seed: int) -> None:
    clean = SimulatedDisk(seed)
    layout.create_directory(clean, FOLDER, GEOMETRY, 2, DATABASE_ID)
    for crash_at in range(1, clean.operations + 1):
        disk = SimulatedDisk(seed * 1000 + crash_at)
        disk.crash_after(crash_at)
        with pytest.raises(SimulatedCrash):
            layout.create_directory(disk, FOLDER, GEOMETRY, 2, DATABASE_ID)
        disk.crash()
        if disk.exists(PATH):
            assert layout.read_meta(disk, FOLDER).geometry == GEOMETRY
            assert [disk.exists(layout.shard_folder(FOLDER, shard)) for shard in (0, 1)] == [True, True]
            assert disk.exists(f"{FOLDER}/snapshots")
        else:
            layout.create_directory(disk, FOLDER, GEOMETRY, 2, DATABASE_ID)
            assert layout.read_meta(disk, FOLDER).shard_count == 2


def test_a_directory_that_was_made_is_durable() -> None:
    disk = SimulatedDisk()
    layout.create_directory(disk, FOLDER, GEOMETRY, 3, DATABASE_ID)
    disk.crash("lose_all")
    assert layout.read_meta(disk, FOLDER).shard_count == 3
    assert disk.exists(layout.shard_folder(FOLDER, 2))


# --- files that are put in place --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_a_file_that_is_put_in_place_has_its_old_content_or_the_new(seed: int) -> None:
    for crash_at in range(1, 6):
        disk = SimulatedDisk(seed)
        disk.make_folder(FOLDER)
        disk.sync_folder("/")
        layout.write_file(disk, PATH, b"old" * 300)
        disk.crash_after(crash_at)
        try:
            layout.write_file(disk, PATH, b"new" * 300)
            expected = [b"new" * 300]
        except SimulatedCrash:
            expected = [b"old" * 300, b"new" * 300]
        disk.crash()
        assert layout.read_file(disk, PATH) in expected
        layout.write_file(disk, PATH, b"newest")
        assert layout.read_file(disk, PATH) == b"newest"


def test_short_writes_are_continued() -> None:
    disk = SimulatedDisk(5)
    disk.short_writes = 0.9
    file = disk.open("/file", "create")
    chunks = [bytes([number]) * 50 for number in range(40)]
    layout.write_all(file, 10, chunks)
    assert disk.read_file("/file") == bytes(10) + b"".join(chunks)


def test_a_file_is_closed_although_writing_it_failed() -> None:
    disk = new_disk()
    disk.capacity_bytes = 10
    with pytest.raises(OSError, match="ENOSPC"):
        layout.write_file(disk, PATH, b"x" * 100)
    assert disk.open_paths == []


# --- the lock ---------------------------------------------------------------------------------------------------


def test_a_directory_is_for_one_process() -> None:
    disk = new_disk()
    lock = layout.lock_directory(disk, FOLDER)
    with pytest.raises(DirectoryInUse, match=r"in use by another process \(held by process 1\): stop it first"):
        layout.lock_directory(disk, FOLDER)
    lock.release()
    layout.lock_directory(disk, FOLDER).release()


def test_a_lock_dies_with_its_process() -> None:
    disk = new_disk()
    layout.lock_directory(disk, FOLDER)
    disk.kill()
    layout.lock_directory(disk, FOLDER)
