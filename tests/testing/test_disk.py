"""The simulated disk as an adversary: what a crash and a kill may do, and what they must not.

What may become of one file's contents is in `test_inode.py`, of names in `test_namespace.py`, and what can be planned
to go wrong in `test_faults.py`.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable

import pytest

from tests.testing.one_file import SECTOR, fates, new_file
from tidelog.testing.disk import CRASH_STYLES, CrashStyle, DeadHandle, SimulatedCrash, SimulatedDisk

# --- a crash ----------------------------------------------------------------------------------------------------


def test_what_was_synced_is_never_lost() -> None:
    for seed in range(2000):
        disk, file = new_file(seed)
        file.write(0, [b"s" * 700])
        file.write(700, [b"S" * 700])
        file.truncate(1300)
        file.sync()
        file.write(1300, [b"u" * 1000])

        disk.crash()

        assert disk.read_file("/file")[:1300] == b"s" * 700 + b"S" * 600


def test_what_was_not_synced_is_kept_or_lost() -> None:
    disk, file = new_file(contents=b"old")
    file.write(0, [b"new"])

    seen = fates(disk)

    assert set(seen) == {b"old", b"new"}
    assert min(seen.values()) > 50


def test_every_style_comes_up_and_is_told() -> None:
    styles = Counter(SimulatedDisk(seed).crash() for seed in range(300))

    assert set(styles) == set(CRASH_STYLES)


@pytest.mark.parametrize(("style", "left"), [("lose_all", b"one"), ("keep_all", b"one two three")])
def test_a_style_can_be_asked_for(style: CrashStyle, left: bytes) -> None:
    disk, file = new_file(contents=b"one")
    file.write(3, [b" two"])
    file.write(7, [b" three"])

    assert disk.crash(style) == style
    assert disk.read_file("/file") == left


def test_later_writes_survive_earlier_ones() -> None:
    disk, file = new_file(contents=b"." * SECTOR * 2)
    file.write(0, [b"1" * SECTOR])
    file.write(SECTOR, [b"2" * SECTOR])

    assert b"." * SECTOR + b"2" * SECTOR in fates(disk)


def test_a_sector_is_any_version_that_it_had_and_no_other() -> None:
    disk, file = new_file(contents=b"....")
    for position, data in enumerate((b"A", b"B", b"C")):
        file.write(position, [data])

    assert set(fates(disk, style="scatter")) == {b"....", b"A...", b"AB..", b"ABC."}


def test_a_lost_sector_inside_the_file_reads_as_zeros() -> None:
    disk, file = new_file(contents=b"")
    file.write(0, [b"a" * SECTOR * 3])

    seen = fates(disk)

    assert b"a" * SECTOR + bytes(SECTOR) + b"a" * SECTOR in seen
    assert bytes(SECTOR * 3) in seen


def test_a_prefix_is_in_order_over_all_files() -> None:
    disk = SimulatedDisk()
    for name in "ab":
        disk.write_file(f"/{name}", b"")
    a, b = disk.open("/a", "write"), disk.open("/b", "write")
    for position in range(10):
        a.write(position, [b"x"])
        b.write(position, [b"x"])

    lengths = set()
    for seed in range(300):
        clone = disk.clone(seed)
        clone.crash("prefix")
        lengths.add((len(clone.read_file("/a")), len(clone.read_file("/b"))))

    assert lengths == {(n, n) for n in range(11)} | {(n + 1, n) for n in range(10)}


def test_a_prefix_is_in_order_over_names_too() -> None:
    disk = SimulatedDisk()
    for name in "ab":
        disk.open(f"/{name}", "create").write(0, [b"x"])

    seen = set()
    for seed in range(100):
        clone = disk.clone(seed)
        clone.crash("prefix")
        seen.add("".join(name + clone.read_file(f"/{name}").decode() for name in clone.list("/")))

    assert seen == {"", "a", "ax", "axb", "axbx"}


def test_files_have_different_fates_when_mixed() -> None:
    disk = SimulatedDisk()
    for name in "ab":
        disk.write_file(f"/{name}", b"0")
        disk.open(f"/{name}", "write").write(0, [b"1"])

    seen = set()
    for seed in range(200):
        clone = disk.clone(seed)
        clone.crash("mixed")
        seen.add(clone.read_file("/a") + clone.read_file("/b"))

    assert seen == {b"00", b"01", b"10", b"11"}


def test_a_truncate_is_kept_or_lost() -> None:
    disk, file = new_file(contents=b"a" * 1000)
    file.truncate(10)

    seen = fates(disk)

    assert {b"a" * 10, b"a" * 1000} <= set(seen)
    assert all(left.startswith(b"a" * 10) and len(left) in (10, 1000) for left in seen)


def test_the_same_seed_gives_the_same_disk() -> None:
    def run(seed: int) -> tuple[str, bytes, bytes, list[str]]:
        disk = SimulatedDisk(seed)
        disk.short_writes = 0.3
        disk.write_file("/one", b"1" * 600)
        disk.write_file("/two", b"")
        one, two = disk.open("/one", "write"), disk.open("/two", "write")
        for step in range(20):
            one.write(step * 100, [b"x" * 300])
            two.write(two.size(), [b"y" * 700])
            disk.open(f"/new-{step}", "create")
            if step == 10:
                one.sync()
        return disk.crash(), disk.read_file("/one"), disk.read_file("/two"), disk.list("/")

    outcomes = [run(seed) for seed in range(50)]

    assert outcomes == [run(seed) for seed in range(50)]
    assert len({repr(outcome) for outcome in outcomes}) > 30


def test_after_a_crash_everything_is_durable() -> None:
    disk, file = new_file()
    file.write(0, [b"x" * 5000])
    disk.open("/other", "create").write(0, [b"y" * 5000])
    disk.crash()
    found = {name: disk.read_file(f"/{name}") for name in disk.list("/")}

    for _ in range(20):
        disk.crash()
        assert {name: disk.read_file(f"/{name}") for name in disk.list("/")} == found


# --- the next process -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("death", [SimulatedDisk.crash, SimulatedDisk.kill])
def test_handles_and_locks_die_with_their_process(death: Callable[[SimulatedDisk], object]) -> None:
    disk, file = new_file(contents=b"abc")
    lock = disk.lock("/lock")
    disk.sync_folder("/")

    death(disk)

    for use in (file.size, file.sync, lambda: file.read(0, 1), lambda: file.write(0, [b"x"])):
        with pytest.raises(DeadHandle, match="process that is dead"):
            use()
    file.close()
    assert disk.open_paths == []

    disk.lock("/lock")
    lock.release()  # the dead cannot free what the living hold
    with pytest.raises(BlockingIOError, match="held by process 2"):
        disk.lock("/lock")
    assert disk.process == 2
    assert disk.open("/file", "read").read(0, 3) == b"abc"


def test_kill_loses_nothing_and_saves_nothing() -> None:
    disk, file = new_file(contents=b"old")
    file.write(0, [b"new"])
    disk.open("/other", "create")

    disk.kill()

    assert disk.read_file("/file") == b"new"
    assert disk.list("/") == ["file", "other"]
    disk.crash("lose_all")
    assert disk.read_file("/file") == b"old"
    assert disk.list("/") == ["file"]


def test_the_next_process_can_sync_what_the_dead_one_wrote() -> None:
    disk, file = new_file(contents=b"old")
    file.write(0, [b"new"])
    disk.kill()

    disk.open("/file", "write").sync()

    assert set(fates(disk, 50)) == {b"new"}


# --- what a test does by itself ---------------------------------------------------------------------------------


def test_bytes_read_are_counted_by_path() -> None:
    disk, file = new_file(contents=b"0123456789")
    file.read(0, 4)
    file.read(8, 100)
    disk.read_file("/file")
    disk.write_file("/other", b"abc")
    disk.open("/other", "read").read(0, 3)

    assert disk.bytes_read == 9
    assert disk.bytes_read_by_path == {"/file": 6, "/other": 3}


def test_open_paths_show_a_leak() -> None:
    disk, file = new_file()
    disk.open("/file", "read")
    file.close()

    assert disk.open_paths == ["/file"]


def test_a_flipped_bit_is_the_one_that_was_named() -> None:
    disk, file = new_file(contents=b"\0\0\0\0")

    disk.flip_bit("/file", 17)
    assert file.read(0, 4) == b"\0\0\2\0"
    disk.flip_bit("/file", 17)
    assert file.read(0, 4) == b"\0\0\0\0"

    with pytest.raises(IndexError):
        disk.flip_bit("/file", 32)


def test_write_file_replaces_durably() -> None:
    disk, file = new_file(contents=b"old")
    file.write(0, [b"un-synced"])
    disk.write_file("/file", b"new")

    assert file.read(0, 10) == b"new"
    assert set(fates(disk, 50)) == {b"new"}


def test_clones_are_independent() -> None:
    disk, file = new_file(contents=b"abc")
    disk.lock("/lock")
    file.write(3, [b"def"])
    clone = disk.clone(1)

    file.write(0, [b"ABC"])
    disk.open("/new", "create")
    assert clone.read_file("/file") == b"abcdef"
    assert clone.list("/") == ["file", "lock"]

    clone.lock("/lock")
    clone.open("/file", "write").truncate(0)
    clone.remove("/file")
    clone.crash()
    assert disk.read_file("/file") == b"ABCdef"
    assert file.read(0, 6) == b"ABCdef"
    assert (disk.operations, disk.process) == (4, 1)


def test_a_clone_without_a_seed_meets_the_same_fate() -> None:
    for seed in range(20):
        disk, file = new_file(seed, contents=b"." * 5000)
        file.write(0, [b"x" * 5000])
        clone = disk.clone()

        assert clone.crash() == disk.crash()
        assert clone.read_file("/file") == disk.read_file("/file")


def test_a_clone_copies_what_is_planned() -> None:
    disk, file = new_file(contents=b"abc")
    disk.fail("read", errno.EIO, times=2)
    with pytest.raises(OSError, match="EIO"):
        file.read(0, 1)
    disk.capacity_bytes = 3
    disk.crash_after(1)
    with pytest.raises(SimulatedCrash):
        file.sync()

    clone = disk.clone(1)
    with pytest.raises(SimulatedCrash):
        clone.list("/")
    clone.kill()
    reader = clone.open("/file", "write")
    with pytest.raises(OSError, match="EIO"):
        reader.read(0, 1)
    assert reader.read(0, 1) == b"a"
    with pytest.raises(OSError, match="ENOSPC"):
        reader.write(3, [b"d"])
