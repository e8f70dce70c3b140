"""Files that lie only in an object store, as a disk shows them, and how they go and come back, over crashes."""

from __future__ import annotations

import random

import pytest

from tests.shipping.tiers import CACHE, DATA, EXTENT, FOLDER, ID, PATH, Tiers, shipped, with_file
from tidelog import limits
from tidelog.errors import Corruption, HistoryAway, ShippingError
from tidelog.journal.file_copies import link_or_copy
from tidelog.journal.layout import shard_folder
from tidelog.journal.node_format import encode_file_header, encode_node, node_file_id, read_node
from tidelog.journal.snapshot import remove_tree
from tidelog.ports import is_remote
from tidelog.shipping.dropping import drop_file
from tidelog.shipping.hydration import Hydration
from tidelog.shipping.remote_file import fetching_path, remote_files, remote_path, settle_remote_files, write_remote
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import CRASH_STYLES, CrashStyle, SimulatedCrash, SimulatedDisk
from tidelog.testing.object_store import SimulatedBucket, SimulatedObjectStore


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SHIPPED_BLOCK_BYTES", 1000)


@pytest.fixture
def objects() -> SimulatedObjectStore:
    return SimulatedBucket(SimulatedClock(), random.Random(1)).client("server")


def require_sound(disk: SimulatedDisk, objects: SimulatedObjectStore) -> None:
    """The file is there or described, and a start clears the rest away."""
    assert Tiers(disk, objects).read() == DATA
    settle_remote_files(disk, FOLDER, 1)
    assert Tiers(disk, objects).read() == DATA
    assert disk.exists(PATH) != disk.exists(remote_path(PATH))
    assert Tiers(disk, objects).disk.list(f"{FOLDER}/shard-0") == [PATH.rpartition("/")[2]]


@pytest.mark.parametrize("style", CRASH_STYLES)
def test_a_crash_while_a_file_goes_leaves_it_here_or_there(objects: SimulatedObjectStore, style: CrashStyle) -> None:
    remote = shipped(objects)
    operations = 0
    while True:
        operations += 1
        disk = with_file(operations)
        disk.crash_after(operations)
        try:
            drop_file(disk, PATH, remote, objects)
        except SimulatedCrash:
            disk.crash(style)
        else:
            break
        require_sound(disk, objects)
    assert operations > 5
    assert not disk.exists(PATH)
    disk.crash_after(1_000_000)
    require_sound(disk, objects)


@pytest.mark.parametrize("style", CRASH_STYLES)
def test_a_crash_while_a_file_comes_back_leaves_it_here_or_there(
    objects: SimulatedObjectStore, style: CrashStyle
) -> None:
    remote = shipped(objects)
    operations = 0
    while True:
        operations += 1
        disk = with_file(operations, None)
        write_remote(disk, PATH, remote)
        disk.crash_after(operations)
        try:
            hydrate(disk, objects)
        except SimulatedCrash:
            disk.crash(style)
        else:
            break
        require_sound(disk, objects)
        if not disk.exists(PATH):
            hydrate(disk, objects)
        require_sound(disk, objects)
        assert disk.exists(PATH)
    assert operations > 10
    assert not disk.exists(remote_path(PATH))
    assert not disk.exists(fetching_path(PATH))


def hydrate(disk: SimulatedDisk, objects: SimulatedObjectStore) -> int:
    hydration = Hydration(disk, PATH, Tiers(disk, objects).disk.describe(PATH), objects)
    came = 0
    while not hydration.is_whole:
        came += hydration.step()
    return came


@pytest.mark.parametrize("style", CRASH_STYLES)
def test_a_cache_that_a_crash_has_torn_gives_nothing_wrong(objects: SimulatedObjectStore, style: CrashStyle) -> None:
    remote = shipped(objects)
    for operations in range(1, 60):
        disk = with_file(operations, None)
        write_remote(disk, PATH, remote)
        disk.crash_after(operations)
        try:
            tiers = Tiers(disk, objects, cache_bytes=4000)
            assert tiers.read() == DATA
            assert tiers.read() == DATA
        except SimulatedCrash:
            disk.crash(style)
        again = Tiers(disk, objects, cache_bytes=4000)
        assert again.read() == DATA
        assert sum(disk.open(f"{CACHE}/{name}", "read").size() for name in disk.list(CACHE)) <= 4000


def test_what_has_come_is_not_fetched_again(objects: SimulatedObjectStore) -> None:
    disk = with_file(1, None)
    write_remote(disk, PATH, shipped(objects))
    first = Hydration(disk, PATH, Tiers(disk, objects).disk.describe(PATH), objects)
    for _ in range(3):
        first.step()

    assert hydrate(disk, objects) == len(DATA) - 2 * EXTENT


def test_a_file_that_is_stopped_or_damaged_does_not_come_back(objects: SimulatedObjectStore) -> None:
    disk = with_file(1, None)
    remote = shipped(objects)
    write_remote(disk, PATH, remote)
    stopped = Hydration(disk, PATH, remote, objects, lambda: True)
    assert [stopped.step() for _ in range(3)] == [0, 0, 0]
    assert not stopped.is_whole

    wrong = remote._replace(extents=(remote.extents[0]._replace(digest="0" * 16), *remote.extents[1:]))
    damaged = Hydration(disk, PATH, wrong, objects)
    damaged.step()
    with pytest.raises(Corruption, match="not what was put there"):
        damaged.step()
    assert not disk.exists(PATH)


def test_a_file_stays_unless_all_of_it_is_shipped(objects: SimulatedObjectStore) -> None:
    remote = shipped(objects)
    disk = with_file(1)
    last = remote.extents[-1]
    with pytest.raises(ShippingError, match=r"only \d+ of \d+ bytes"):
        drop_file(disk, PATH, remote._replace(extents=remote.extents[:-1]), objects)
    with pytest.raises(ShippingError, match="not what was shipped"):
        drop_file(disk, PATH, remote._replace(extents=(*remote.extents[:-1], last._replace(digest="0"))), objects)
    objects.delete(f"{ID}/{last.object}")
    with pytest.raises(FileNotFoundError):
        drop_file(disk, PATH, remote, objects)
    assert disk.list(f"{FOLDER}/shard-0") == [PATH.rpartition("/")[2]]


def test_it_looks_as_if_it_were_there(objects: SimulatedObjectStore) -> None:
    disk = with_file(1)
    drop_file(disk, PATH, shipped(objects), objects)
    tiers = Tiers(disk, objects)
    tiered = tiers.disk

    assert tiered.exists(PATH)
    assert is_remote(tiered, PATH)
    assert not is_remote(disk, PATH)
    assert tiered.open(PATH, "read").size() == len(DATA)
    rng = random.Random(1)
    for _ in range(200):
        start = rng.randrange(len(DATA))
        length = rng.randrange(len(DATA))
        assert tiers.read(start, length) == DATA[start : start + length]
    with pytest.raises(OSError, match="cannot be changed"):
        tiered.open(PATH, "write")
    with pytest.raises(OSError, match="cannot be changed"):
        tiered.rename(PATH, f"{FOLDER}/another")
    assert list(remote_files(disk, FOLDER, 1)) == list(remote_files(tiered, FOLDER, 1)) == [PATH[len(FOLDER) + 1 :]]

    moved = PATH.replace("7.bin", "8.bin")
    tiered.rename(PATH, moved)
    assert tiered.list(f"{FOLDER}/shard-0") == [moved.rpartition("/")[2]]
    tiered.rename(moved, PATH)
    tiered.remove(PATH)
    assert not disk.list(f"{FOLDER}/shard-0")
    with pytest.raises(FileNotFoundError):
        tiered.remove(PATH)
    with pytest.raises(FileNotFoundError):
        tiered.open(PATH, "read")


def test_a_folder_of_it_is_removed_with_all_that_is_beside(objects: SimulatedObjectStore) -> None:
    disk = with_file(1)
    drop_file(disk, PATH, shipped(objects), objects)
    Hydration(disk, PATH, Tiers(disk, objects).disk.describe(PATH), objects).step()
    remove_tree(Tiers(disk, objects).disk, shard_folder(FOLDER, 0))
    assert not disk.exists(shard_folder(FOLDER, 0))


def test_a_second_name_inside_is_a_description_and_elsewhere_a_copy(objects: SimulatedObjectStore) -> None:
    disk = with_file(1)
    drop_file(disk, PATH, shipped(objects), objects)
    tiers = Tiers(disk, objects)
    name = PATH.rpartition("/")[2]
    for folder in (f"{FOLDER}/aside", "backup"):
        disk.make_folder(folder)
        link_or_copy(tiers.disk, PATH, f"{folder}/{name}", None, lambda _: None)
    assert is_remote(tiers.disk, f"{FOLDER}/aside/{name}")
    assert disk.read_file(f"backup/{name}") == DATA


def test_a_store_that_is_down_fails_all_reads_at_once_for_a_moment(objects: SimulatedObjectStore) -> None:
    disk = with_file(1)
    drop_file(disk, PATH, shipped(objects), objects)
    tiers = Tiers(disk, objects)
    assert tiers.read(0, 10) == DATA[:10]
    objects.faults.read = 1.0
    with pytest.raises(HistoryAway, match=f"{PATH} lies in the object store"):
        tiers.read()
    objects.faults.clear()
    with pytest.raises(HistoryAway):
        tiers.read()
    assert tiers.read(0, 10) == DATA[:10], "the cache has it"
    tiers.clock.advance(limits.HISTORY_DOWN_US)
    assert tiers.read() == DATA
    assert tiers.blocks.failure_count == 2


def test_an_object_that_is_gone_is_damage(objects: SimulatedObjectStore) -> None:
    disk = with_file(1)
    remote = shipped(objects)
    drop_file(disk, PATH, remote, objects)
    objects.delete(f"{ID}/{remote.extents[1].object}")
    with pytest.raises(Corruption, match="is gone"):
        Tiers(disk, objects).read()


def test_a_thread_that_may_not_wait_gets_it_later(objects: SimulatedObjectStore) -> None:
    disk = with_file(1)
    drop_file(disk, PATH, shipped(objects), objects)
    tiers = Tiers(disk, objects)
    tiers.may_wait = False
    for _ in range(2):
        with pytest.raises(HistoryAway, match="try again"):
            tiers.read(1500, 10)
    tiers.run_later()
    tiers.may_wait = False
    assert tiers.read(1500, 10) == DATA[1500:1510]
    assert tiers.read(2500, 10) == DATA[2500:2510], "what follows came with it"


def test_the_cache_is_bounded_and_survives(objects: SimulatedObjectStore) -> None:
    disk = with_file(1)
    drop_file(disk, PATH, shipped(objects), objects)
    tiers = Tiers(disk, objects, cache_bytes=5000)
    assert tiers.read() == DATA
    assert tiers.cache.size_bytes <= 5000
    again = Tiers(disk, objects, cache_bytes=5000)
    assert again.read(len(DATA) - 10, 10) == DATA[-10:]
    assert again.blocks.fetched_count == 0
    smaller = Tiers(disk, objects, cache_bytes=2100)
    assert smaller.read(0, 10) == DATA[:10]
    assert smaller.cache.size_bytes <= 2100
    disk.make_folder(CACHE)
    for name in disk.list(CACHE):  # damaged blocks are fetched anew
        file = disk.open(f"{CACHE}/{name}", "write")
        file.write(50, [b"damage"])
        file.close()
    assert Tiers(disk, objects, cache_bytes=2100).read() == DATA


def test_a_node_whose_bytes_came_damaged_is_fetched_once_more(objects: SimulatedObjectStore) -> None:
    node = bytes(range(250)) * 12
    size, crc, parts = encode_node(node)
    file_id = node_file_id(PATH.rpartition("/")[2])
    assert file_id is not None
    data = encode_file_header(file_id) + b"".join(parts)
    position = len(encode_file_header(file_id))
    disk = with_file(1, data)
    remote = shipped(objects, data)
    drop_file(disk, PATH, remote, objects)
    bucket, name = objects.bucket, f"{ID}/{remote.extents[0].object}"
    right = bucket.contents(name)
    assert right is not None
    tiers = Tiers(disk, objects)
    file = tiers.disk.open(PATH, "read")

    bucket.damage(name, right[:1500] + b"#" + right[1501:])
    file.read(0, len(data))  # in the cache now, with the wrong byte
    bucket.damage(name, right)
    assert read_node(file, position, size, crc) == node
    fetched = tiers.blocks.fetched_count
    assert read_node(file, position, size, crc) == node
    assert tiers.blocks.fetched_count == fetched

    bucket.damage(name, right[:1500] + b"#" + right[1501:])
    again = Tiers(with_cache_of(disk), objects)
    file = again.disk.open(PATH, "read")
    for _ in range(3):
        with pytest.raises(Corruption, match="checksum"):
            read_node(file, position, size, crc)
    assert again.blocks.fetched_count <= 2 * 4, "it is damaged there: that is not asked again and again"


def with_cache_of(disk: SimulatedDisk) -> SimulatedDisk:
    """The disk without its cache."""
    for name in disk.list(CACHE):
        disk.remove(f"{CACHE}/{name}")
    return disk


def test_a_description_that_is_damaged_is_named(objects: SimulatedObjectStore) -> None:
    disk = with_file(1)
    drop_file(disk, PATH, shipped(objects), objects)
    file = disk.open(remote_path(PATH), "write")
    file.write(30, [b"damage"])
    file.close()
    with pytest.raises(Corruption, match="remote"):
        Tiers(disk, objects).read()
