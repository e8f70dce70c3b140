"""Node files: what is given out is durable and proved, and files go when nobody needs them."""

from __future__ import annotations

import errno
from itertools import count

import pytest

from tidelog import limits
from tidelog.errors import Corruption
from tidelog.ids import ShardId
from tidelog.journal.layout import NodeFileLength, make_shard_folders
from tidelog.journal.node_files import NodeFiles, NodePlace
from tidelog.journal.node_format import FoundNode, node_file_id, node_file_name, walk_nodes
from tidelog.ports import Disk
from tidelog.testing.disk import SimulatedDisk

FIRST = ShardId(0)


def made(disk: SimulatedDisk | None = None, shards: int = 1) -> NodeFiles:
    disk = disk if disk is not None else SimulatedDisk()
    make_shard_folders(disk, "data", shards)
    disk.sync_folder("data")
    return NodeFiles(disk, "data", count(7).__next__)


def found_again(files: NodeFiles, shards: int = 1) -> NodeFiles:
    """As the next process finds them."""
    again = NodeFiles(files.disk, "data", count(1000).__next__)
    again.find(shards)
    return again


def noted(place: NodePlace) -> tuple[int, int, int, int]:
    return place.file.id, place.position, place.size, place.crc


def walked_nodes(disk: Disk, path: str, length: int) -> list[FoundNode]:
    found: list[FoundNode] = []
    walk_nodes(disk, path, length, found.append)
    return found


def test_names() -> None:
    assert node_file_name(255) == "nodes-00000000000000ff.bin"
    assert node_file_id("nodes-00000000000000ff.bin") == 255
    assert node_file_id("journal-00000000000000ff.dj0") is None


def test_what_was_written_is_read() -> None:
    files = made(shards=2)
    nodes = [bytes([at]) * at for at in range(1, 40)]
    places = files.append(FIRST, nodes[:20]) + files.append(ShardId(1), nodes[20:])
    assert [place.read() for place in places] == nodes
    assert {place.file.path for place in places} == {
        "data/shard-0/nodes-0000000000000007.bin",
        "data/shard-1/nodes-0000000000000008.bin",
    }
    again = found_again(files, 2)
    assert [again.place(*noted(place)).read() for place in places] == nodes
    for file in files:
        walked = [each[:3] for each in walked_nodes(files.disk, file.path, file.size_bytes)]
        assert walked == [noted(place)[1:] for place in places if place.file is file]


def test_a_place_is_durable() -> None:
    disk = SimulatedDisk()
    files = made(disk)
    places = files.append(FIRST, [b"one", b"two"])
    known = [noted(place) for place in places]
    disk.crash("lose_all")
    again = found_again(files)
    assert [again.place(*each).read() for each in known] == [b"one", b"two"]


def test_a_full_file_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NODE_FILE_BYTES_MAX", 100)
    files = made()
    places = [files.append(FIRST, [bytes(40)])[0] for _ in range(5)]
    assert [place.file.id for place in places] == [7, 7, 8, 8, 9]
    assert [file.is_written_to for file in files] == [False, False, True]
    assert [place.read() for place in places] == [bytes(40)] * 5


def test_every_flipped_bit_is_found() -> None:
    disk = SimulatedDisk()
    files = made(disk)
    first, second = files.append(FIRST, [b"first node", b"second node"])
    path = first.file.path
    for bit in range(8 * first.position, 8 * (second.position + 8 + second.size)):
        if bit in range(8 * (first.position + 8 + first.size), 8 * second.position):
            continue  # padding
        disk.flip_bit(path, bit)
        hurt = first if bit < 8 * second.position else second
        with pytest.raises(Corruption, match=r"nodes-0000000000000007\.bin"):
            hurt.read()
        with pytest.raises(Corruption):
            walked_nodes(disk, path, first.file.size_bytes)
        disk.flip_bit(path, bit)
    assert (first.read(), second.read()) == (b"first node", b"second node")


def test_a_wrong_reference_is_refused() -> None:
    files = made()
    first, second = files.append(FIRST, [b"first node", b"second node"])
    file = first.file
    for position, size, crc in (
        (second.position, first.size, first.crc),
        (first.position, first.size, second.crc),
        (first.position, first.size - 1, first.crc),
        (first.position + 8, first.size, first.crc),
    ):
        with pytest.raises(Corruption):
            NodePlace(file, position, size, crc).read()
    with pytest.raises(Corruption, match="missing"):
        files.place(99, 16, 1, 1)
    with pytest.raises(Corruption, match="ends at"):
        files.place(7, second.position, 1000, second.crc)


def test_walking_finds_what_is_wrong_with_a_file() -> None:
    disk = SimulatedDisk()
    files = made(disk)
    (place,) = files.append(FIRST, [b"a node"])
    path = place.file.path
    with pytest.raises(Corruption, match="ends before"):
        walked_nodes(disk, path, place.end + 8)
    disk.rename(path, "data/shard-0/nodes-0000000000000001.bin")
    with pytest.raises(Corruption, match="name"):
        walked_nodes(disk, "data/shard-0/nodes-0000000000000001.bin", place.end)
    with pytest.raises(Corruption, match="missing"):
        place.read()


@pytest.mark.parametrize("operation", ["write", "sync", "create", "sync_folder"])
def test_what_fails_has_no_place_and_the_next_begins_anew(operation: str) -> None:
    disk = SimulatedDisk()
    files = made(disk)
    before = files.append(FIRST, [b"before"]) if operation in ("write", "sync") else []
    disk.fail(operation, errno.ENOSPC, path_contains="shard-0")  # type: ignore[arg-type]
    with pytest.raises(OSError, match="ENOSPC"):
        files.append(FIRST, [b"lost"])
    (after,) = files.append(FIRST, [b"after"])
    assert after.read() == b"after"
    for place in before:
        assert place.read() == b"before"
        assert place.file is not after.file
        assert disk.read_file(place.file.path)[place.end :] == b""


@pytest.mark.parametrize("operation", ["write", "sync_folder"])
def test_a_file_that_could_be_neither_made_nor_removed_goes_with_the_next_removal(operation: str) -> None:
    disk = SimulatedDisk()
    files = made(disk)
    disk.fail(operation, errno.ENOSPC, path_contains="shard-0")  # type: ignore[arg-type]
    disk.fail("remove", errno.EIO, path_contains="shard-0")
    with pytest.raises(OSError, match="ENOSPC"):
        files.append(FIRST, [b"lost"])
    (after,) = files.append(FIRST, [b"after"])
    left = files.unneeded()
    assert [file.id for file in left] == [7]
    files.forget(files.remove(left, []))
    assert disk.list("data/shard-0") == [node_file_name(after.file.id)]
    assert list(files) == [after.file]


def test_files_go_when_nobody_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NODE_FILE_BYTES_MAX", 1)
    files = made()
    places = [files.append(FIRST, [b"node"])[0] for _ in range(5)]
    ids = [place.file.id for place in places]
    assert files.unneeded() == []
    pinned = files.pin([NodeFileLength(FIRST, ids[1], 10)])
    kept = places[4]
    del places[:]
    unneeded = files.unneeded()
    assert [file.id for file in unneeded] == [ids[0], ids[2], ids[3]]
    removed = files.remove(unneeded, [NodeFileLength(FIRST, ids[2], 10)])
    assert [file.id for file in removed] == [ids[0], ids[3]]
    files.forget(removed)
    assert [file.id for file in files] == [ids[1], ids[2], ids[4]]
    assert [file.id for file in found_again(files)] == [ids[1], ids[2], ids[4]]
    for file in pinned:
        file.pins -= 1
    assert [file.id for file in files.unneeded()] == [ids[1], ids[2]]
    assert kept.read() == b"node"
    with pytest.raises(Corruption, match="missing"):
        files.pin([NodeFileLength(FIRST, 99, 10)])


def test_the_file_that_is_written_to_stays() -> None:
    files = made()
    files.append(FIRST, [b"node"])
    assert files.unneeded() == []
    files.close()
    assert [file.id for file in files.unneeded()] == [7]


def test_a_file_with_little_that_is_needed_is_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NODE_FILE_BYTES_MAX", 1000)
    files = made()
    places = files.append(FIRST, [bytes(200)] * 5)
    (file,) = files
    found = [file.is_sparse]
    del places[3:]
    found.append(file.is_sparse)
    places[0] = places[0].part(1, 4)
    found.append(file.is_sparse)
    assert found == [False, False, True]
    assert file.live_bytes == 450
    assert file.garbage_bytes == 2 * 208 + 150
    assert places[0].read() == bytes(200)
