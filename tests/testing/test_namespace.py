"""What a crash makes of the names of files and folders."""

from __future__ import annotations

from random import Random

import pytest

from tidelog.testing.disk import SimulatedDisk
from tidelog.testing.inode import Inode
from tidelog.testing.namespace import Namespace


def disk_with(*paths: str, seed: int = 0) -> SimulatedDisk:
    """A disk with these files, each holding its own path, and all of it durable."""
    disk = SimulatedDisk(seed)
    for path in paths:
        folder = path.rpartition("/")[0]
        if folder:
            disk.make_folder(folder)
        disk.write_file(path, path.encode())
    return disk


def tree(disk: SimulatedDisk, folder: str = "") -> dict[str, bytes | None]:
    """Every path and its contents; None for a folder."""
    found: dict[str, bytes | None] = {}
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        try:
            found[path] = disk.read_file(path)
        except IsADirectoryError:
            found[path] = None
            found |= tree(disk, path)
    return found


def fates(disk: SimulatedDisk, count: int = 200) -> list[dict[str, bytes | None]]:
    """The different trees that crashes leave."""
    seen: list[dict[str, bytes | None]] = []
    for seed in range(count):
        clone = disk.clone(seed)
        clone.crash()
        if (left := tree(clone)) not in seen:
            seen.append(left)
    return sorted(seen, key=repr)


def in_any_order(*trees: dict[str, bytes | None]) -> list[dict[str, bytes | None]]:
    return sorted(trees, key=repr)


def test_a_created_name_may_be_forgotten_until_its_folder_is_synced() -> None:
    disk = SimulatedDisk()
    file = disk.open("/new", "create")
    file.write(0, [b"x"])
    file.sync()
    assert fates(disk) == in_any_order({}, {"/new": b"x"})

    disk.sync_folder("/")
    assert fates(disk) == [{"/new": b"x"}]


def test_syncing_a_folder_does_not_save_contents() -> None:
    disk = SimulatedDisk()
    disk.open("/new", "create").write(0, [b"x"])
    disk.sync_folder("/")

    assert fates(disk) == in_any_order({"/new": b""}, {"/new": b"\0"}, {"/new": b"x"})


def test_a_removed_file_may_come_back_until_its_folder_is_synced() -> None:
    disk = disk_with("/old")
    disk.remove("/old")
    assert fates(disk) == in_any_order({}, {"/old": b"/old"})

    disk.sync_folder("/")
    assert fates(disk) == [{}]


def test_a_file_that_comes_back_may_have_lost_its_last_writes() -> None:
    disk = disk_with("/old")
    disk.open("/old", "write").write(0, [b"/new"])
    disk.remove("/old")

    assert fates(disk) == in_any_order({}, {"/old": b"/old"}, {"/old": b"/new"})


def test_a_renamed_file_has_one_name() -> None:
    disk = disk_with("/old")
    disk.rename("/old", "/new")
    assert fates(disk) == in_any_order({"/old": b"/old"}, {"/new": b"/old"})

    disk.sync_folder("/")
    assert fates(disk) == [{"/new": b"/old"}]


def test_a_replaced_file_is_the_old_or_the_new_one() -> None:
    disk = disk_with("/meta", "/temporary")
    disk.rename("/temporary", "/meta")
    assert fates(disk) == in_any_order({"/meta": b"/meta", "/temporary": b"/temporary"}, {"/meta": b"/temporary"})

    disk.sync_folder("/")
    assert fates(disk) == [{"/meta": b"/temporary"}]


def test_a_file_renamed_without_a_sync_may_be_empty() -> None:
    disk = disk_with("/meta")
    disk.open("/temporary", "create").write(0, [b"new"])
    disk.rename("/temporary", "/meta")

    assert {"/meta": b""} in fates(disk), "the classic mistake must be found out"


def test_independent_names_are_kept_independently() -> None:
    disk = SimulatedDisk()
    disk.open("/a", "create")
    disk.open("/b", "create")

    assert fates(disk) == in_any_order({}, {"/a": b""}, {"/b": b""}, {"/a": b"", "/b": b""})


def test_a_rename_needs_the_creation_before_it() -> None:
    disk = SimulatedDisk()
    disk.open("/a", "create")
    disk.rename("/a", "/b")
    disk.rename("/b", "/c")

    assert fates(disk) == in_any_order({}, {"/a": b""}, {"/b": b""}, {"/c": b""})


def test_a_name_given_again_does_not_bury_who_had_it() -> None:
    disk = disk_with("/a")
    disk.rename("/a", "/b")
    disk.open("/a", "create")

    assert fates(disk) == in_any_order({"/a": b"/a"}, {"/b": b"/a"}, {"/a": b"", "/b": b"/a"})


def test_a_rename_between_folders_is_durable_by_either() -> None:
    for folder in ("/one", "/other"):
        disk = disk_with("/one/file", "/other/else")
        disk.rename("/one/file", "/other/file")
        assert len(fates(disk)) == 2

        disk.sync_folder(folder)
        assert [set(left) for left in fates(disk)] == [{"/one", "/other", "/other/else", "/other/file"}]


def test_syncing_saves_what_the_names_are_built_on() -> None:
    disk = disk_with("/one/else", "/other/else")
    disk.open("/one/temporary", "create")
    disk.rename("/one/temporary", "/other/file")

    disk.sync_folder("/other")

    assert [set(left) for left in fates(disk)] == [{"/one", "/one/else", "/other", "/other/else", "/other/file"}]


def test_syncing_a_folder_leaves_others_alone() -> None:
    disk = disk_with("/one/else", "/other/else")
    disk.remove("/one/else")
    disk.remove("/other/else")

    disk.sync_folder("/one")

    assert sorted(map(len, fates(disk))) == [2, 3]
    assert all("/one/else" not in left for left in fates(disk))


def test_a_forgotten_folder_takes_all_below_it() -> None:
    disk = SimulatedDisk()
    disk.make_folder("/folder")
    file = disk.open("/folder/file", "create")
    file.write(0, [b"x"])
    file.sync()
    disk.sync_folder("/folder")
    assert fates(disk) == in_any_order({}, {"/folder": None, "/folder/file": b"x"})

    disk.sync_folder("/")
    assert fates(disk) == [{"/folder": None, "/folder/file": b"x"}]


def test_a_file_moved_into_a_forgotten_folder_is_where_it_was() -> None:
    disk = disk_with("/file")
    disk.make_folder("/folder")
    disk.make_folder("/folder/below")
    disk.rename("/file", "/folder/below/file")

    for left in fates(disk):
        assert list(left.values()).count(b"/file") == 1


def test_a_file_moved_out_of_a_removed_folder_is_somewhere() -> None:
    disk = disk_with("/folder/file")
    disk.rename("/folder/file", "/file")
    disk.remove("/folder")
    disk.make_folder("/folder")

    assert all(list(left.values()).count(b"/folder/file") == 1 for left in fates(disk))
    disk.sync_folder("/")
    assert fates(disk) == [{"/file": b"/folder/file", "/folder": None}]


def test_a_file_moved_into_a_new_folder_is_somewhere_whatever_was_synced() -> None:
    for synced in ("/", "/new", "/new/below", "/old"):
        disk = disk_with("/old/file")
        disk.make_folder("/new")
        disk.make_folder("/new/below")
        disk.rename("/old/file", "/new/below/file")
        disk.sync_folder(synced)

        assert all(list(left.values()).count(b"/old/file") == 1 for left in fates(disk)), synced


def test_a_renamed_folder_keeps_what_is_below_it() -> None:
    disk = disk_with("/old/file")
    disk.rename("/old", "/new")

    assert fates(disk) == in_any_order(
        {"/old": None, "/old/file": b"/old/file"}, {"/new": None, "/new/file": b"/old/file"}
    )


def test_write_file_saves_its_own_name_and_the_folders_above() -> None:
    disk = SimulatedDisk()
    disk.make_folder("/a")
    disk.make_folder("/a/b")
    disk.open("/a/other", "create")
    disk.write_file("/a/b/file", b"x")

    durable: dict[str, bytes | None] = {"/a": None, "/a/b": None, "/a/b/file": b"x"}
    assert fates(disk) == in_any_order(durable, durable | {"/a/other": b""})


def test_half_a_folder_sync_saves_some_names() -> None:
    rng = Random(0)
    counts = set()
    for _ in range(200):
        names = Namespace()
        for number, path in enumerate("abc"):
            names.apply(names.plan_create(number, path, Inode()))
        names.sync(names.root, is_reached=lambda: rng.random() < 0.5)
        names.crash(is_kept=lambda _: False)
        counts.add(len(names.root.entries))
    assert counts == {0, 1, 2, 3}


@pytest.mark.parametrize("seed", range(200))
def test_no_file_is_in_two_places_or_lost_by_moving(seed: int) -> None:
    """Random renames, creations and removals; every file holds its own number."""
    rng = Random(seed)
    disk = disk_with("/a/0", "/b/1")
    disk.make_folder("/c")  # may be forgotten
    places = [f"/{folder}/{name}" for folder in "abc" for name in range(4)]
    expendable: set[bytes] = set()
    for number in range(rng.randint(1, 20)):
        taken = [place for place in places if disk.exists(place)]
        roll = rng.random()
        if roll < 0.5 and taken:
            old, new = rng.choice(taken), rng.choice(places)
            if disk.exists(new) and old != new:
                expendable.add(disk.read_file(new))
            disk.rename(old, new)
        elif roll < 0.8 and (free := sorted(set(places) - set(taken))):
            file = disk.open(rng.choice(free), "create")
            file.write(0, [b"created %d" % number])
            file.sync()
            expendable.add(b"created %d" % number)
        elif roll < 0.85 and taken:
            place = rng.choice(taken)
            expendable.add(disk.read_file(place))
            disk.remove(place)
        elif roll < 0.9 and (folder := f"/{rng.choice('abc')}") and disk.list(folder) == []:
            disk.remove(folder)
            disk.make_folder(folder)
        else:
            disk.sync_folder(rng.choice(("/", "/a", "/b", "/c")))

    for fate in range(20):
        clone = disk.clone(fate)
        clone.crash()
        contents = [data for data in tree(clone).values() if data]
        assert len(contents) == len(set(contents))
        missing = {b"/a/0", b"/b/1"} - expendable - set(contents)
        assert not missing, f"fate {fate} lost {missing}"
