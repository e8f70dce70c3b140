"""Objects in a folder: power cuts, other processes, file systems that lack something."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from random import Random

import pytest

from tidelog.system.folder_store import UNFINISHED, FolderStore
from tidelog.system.memory_disk import MemoryDisk
from tidelog.testing.disk import CRASH_STYLES, SimulatedDisk
from tidelog.testing.faults import SimulatedCrash

ROOT = "/objects"
NAMES = ["a", "b/c", "b/d/e", "b/d/f", "g/h/i"]


def empty(disk: SimulatedDisk | MemoryDisk) -> FolderStore:
    disk.make_folder(ROOT)
    disk.sync_folder("/")
    return FolderStore(disk, ROOT)


def contents(name: str) -> bytes:
    return name.encode() * 3000


@pytest.mark.parametrize("seed", range(300))
def test_a_power_cut_takes_no_object_and_leaves_no_half_of_one(seed: int) -> None:
    """Objects that were put are there; the one that was on its way is there as a whole or not at all."""
    rng = Random(seed)
    disk = SimulatedDisk(seed)
    store = empty(disk)
    names = rng.sample(NAMES, len(NAMES))
    put: list[str] = []
    disk.crash_after(rng.randrange(1, 40))
    with contextlib.suppress(SimulatedCrash):
        for name in names:
            data = contents(name)
            store.put(name, [data[:1000], data[1000:]])
            put.append(name)
    disk.crash(rng.choice(CRASH_STYLES))

    after = FolderStore(disk, ROOT)
    found = [entry.name for entry in after.list("")]

    assert set(put) <= set(found) <= {*put, *names[len(put) : len(put) + 1]}
    for name in found:
        assert after.get(name) == contents(name)
    for name in set(names) - set(found):
        after.put(name, [contents(name)])
    assert [entry.name for entry in after.list("")] == sorted(names)


def test_a_failed_put_leaves_nothing_behind() -> None:
    disk = SimulatedDisk()
    store = empty(disk)
    store.put("first", [b"x"])
    disk.fail("write", errno.ENOSPC)

    with pytest.raises(OSError, match="ENOSPC"):
        store.put("second", [b"y"])

    assert disk.list(f"{ROOT}/{UNFINISHED}") == []
    assert [entry.name for entry in store.list("")] == ["first"]


def test_a_disk_that_does_not_sync_fails_the_put() -> None:
    disk = SimulatedDisk()
    store = empty(disk)
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="EIO"):
        store.put("object", [b"x"])
    with pytest.raises(FileNotFoundError):
        store.get("object")


def test_short_writes_are_continued() -> None:
    disk = SimulatedDisk(7)
    disk.short_writes = 0.9
    store = empty(disk)
    store.put("object", [contents("x"), b"", contents("y")])
    assert store.get("object") == contents("x") + contents("y")


def test_without_hard_links_a_put_says_so() -> None:
    disk = SimulatedDisk()
    store = empty(disk)
    disk.fail("link", errno.EPERM)
    with pytest.raises(OSError, match="this file system has no hard links") as error:
        store.put("object", [b"x"])
    assert error.value.errno == errno.EIO
    assert disk.list(f"{ROOT}/{UNFINISHED}") == []


class Pruned(MemoryDisk):
    """Each folder is removed once before the link comes, as another process does that deletes the last object."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def link(self, old: str, new: str) -> None:
        if self.times:
            self.times -= 1
            self.remove(new.rpartition("/")[0])
        super().link(old, new)


def test_a_folder_that_is_removed_meanwhile_is_made_again() -> None:
    store = empty(Pruned(3))
    store.put("a/b", [b"x"])
    assert store.get("a/b") == b"x"


def test_a_put_does_not_try_forever() -> None:
    store = empty(Pruned(1000))
    with pytest.raises(OSError, match="others remove its folder") as error:
        store.put("a/b", [b"x"])
    assert error.value.errno == errno.EIO


def test_a_name_is_an_object_or_a_folder() -> None:
    store = empty(MemoryDisk())
    store.put("a/b", [b"x"])
    for name in ("a", "a/b/c"):
        with pytest.raises(OSError, match="folder") as error:
            store.put(name, [b"y"])
        assert error.value.errno == errno.EIO
    assert [entry.name for entry in store.list("")] == ["a/b"]


def test_a_folder_that_is_gone_is_not_an_empty_store() -> None:
    """As when a disk is not mounted."""
    store = FolderStore(MemoryDisk(), ROOT)
    attempts: list[Callable[[], object]] = [
        lambda: store.list(""),
        lambda: store.list("a/"),
        lambda: store.folders(""),
        lambda: store.get("a"),
        lambda: store.size("a"),
        lambda: store.read("a", 0, 1),
        lambda: store.put("a", [b"x"]),
    ]
    for attempt in attempts:
        with pytest.raises(OSError, match="folder of the object store is missing") as error:
            attempt()
        assert error.value.errno == errno.EIO


def test_what_is_hidden_is_not_listed() -> None:
    disk = MemoryDisk()
    store = empty(disk)
    disk.open(f"{ROOT}/.hidden", "create").close()
    store.put("a", [b"x"])
    assert [entry.name for entry in store.list("")] == ["a"]
    assert store.folders("") == []
