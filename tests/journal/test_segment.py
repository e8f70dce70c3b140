"""Names and order of segments."""

from __future__ import annotations

import pytest

from tidelog.ids import U64_MAX, Lsn
from tidelog.journal import segment
from tidelog.journal.segment import FilePosition
from tidelog.testing.disk import SimulatedCrash, SimulatedDisk


def disk_with(*names: str) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_folder("/shard")
    for name in names:
        disk.write_file(f"/shard/{name}", b"x")
    return disk


def test_names_are_the_first_lsn_in_16_hex_digits() -> None:
    assert segment.journal_name(Lsn(0xAB)) == "journal-00000000000000ab.dj0"
    assert segment.blob_name(Lsn(U64_MAX)) == "blob-ffffffffffffffff.bin"
    assert segment.sidecar_name(Lsn(0)) == "sidecar-0000000000000000.idx"


def test_segments_are_listed_in_order_of_their_lsns_and_nothing_else_is() -> None:
    disk = disk_with(
        segment.journal_name(Lsn(0x100)),
        segment.journal_name(Lsn(0x20)),
        segment.blob_name(Lsn(1)),
        segment.sidecar_name(Lsn(2)),
        "journal-1.dj0",
        "journal-00000000000000AB.dj0",
        "journal-00000000000000ab.dj0.new",
        "notes.txt",
    )
    assert segment.list_segments(disk, "/shard") == [0x20, 0x100]


@pytest.mark.parametrize(("lsn", "index"), [(0, -1), (9, -1), (10, 0), (19, 0), (20, 1), (10**9, 1)])
def test_the_segment_that_holds_an_lsn(lsn: int, index: int) -> None:
    assert segment.segment_holding([Lsn(10), Lsn(20)], Lsn(lsn)) == index


def test_no_segment_holds_anything_when_there_is_none() -> None:
    assert segment.segment_holding([], Lsn(5)) == -1


def test_positions_compare_in_the_order_of_the_journal() -> None:
    places = [FilePosition(Lsn(2), 0), FilePosition(Lsn(0), 500), FilePosition(Lsn(0), 20), FilePosition(Lsn(10), 1)]
    assert sorted(places) == [places[2], places[1], places[0], places[3]]


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("journal-00000000000000ab.dj0", 0xAB),
        ("blob-0000000000000000.bin", 0),
        ("sidecar-00000000000000ab.idx", 0xAB),
        ("journal-ab.dj0", None),
        ("blob-00000000000000ab.dj0", None),
        ("sidecar-00000000000000ab.idx.new", None),
        ("meta.json", None),
    ],
)
def test_a_file_belongs_to_the_segment_of_its_name(name: str, owner: int | None) -> None:
    assert segment.owner_of(name) == owner


def test_removing_a_segment_removes_what_lies_beside_it_and_nothing_else() -> None:
    others = [segment.journal_name(Lsn(2)), segment.blob_name(Lsn(2))]
    disk = disk_with(segment.journal_name(Lsn(1)), segment.blob_name(Lsn(1)), segment.sidecar_name(Lsn(1)), *others)
    segment.remove_segment(disk, "/shard", Lsn(1))
    assert disk.list("/shard") == sorted(others)


def test_a_segment_without_blobs_can_be_removed() -> None:
    disk = disk_with(segment.journal_name(Lsn(1)))
    segment.remove_segment(disk, "/shard", Lsn(1))
    assert disk.list("/shard") == []


def test_the_journal_file_goes_last() -> None:
    names = [segment.journal_name(Lsn(1)), segment.blob_name(Lsn(1)), segment.sidecar_name(Lsn(1))]
    for stop in (1, 2, 3):
        disk = disk_with(*names)
        disk.crash_after(stop)
        with pytest.raises(SimulatedCrash):
            segment.remove_segment(disk, "/shard", Lsn(1))
        disk.kill()
        if segment.blob_name(Lsn(1)) in disk.list("/shard"):
            assert names[0] in disk.list("/shard")
