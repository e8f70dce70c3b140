"""What can be planned to go wrong: a crash inside an operation, errors, a full disk, short writes."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable

import pytest

from tests.testing.one_file import SECTOR, fates, new_file
from tidelog.testing.disk import Operation, SimulatedCrash, SimulatedDisk
from tidelog.testing.file import SimulatedFile

# --- a crash inside an operation --------------------------------------------------------------------------------


def workload(disk: SimulatedDisk) -> None:
    """One operation of every kind that changes something; 12 in all."""
    disk.make_folder("/folder")
    disk.sync_folder("/")
    file = disk.open("/folder/temporary", "create")
    file.write(0, [b"a" * 1000])
    file.write(1000, [b"b" * 1000])
    file.truncate(1500)
    file.sync()
    disk.rename("/folder/temporary", "/folder/file")
    disk.sync_folder("/folder")
    file.close()
    disk.open("/folder/other", "create").close()
    disk.remove("/folder/other")
    disk.lock("/folder/lock")


def test_operations_are_counted_and_each_can_be_the_last() -> None:
    disk = SimulatedDisk()
    workload(disk)
    disk.open("/folder/file", "read").read(0, 100)
    assert disk.operations == 12

    for n in range(1, 13):
        disk = SimulatedDisk(n)
        disk.crash_after(n)
        with pytest.raises(SimulatedCrash, match=f"operation {n}: "):
            workload(disk)
        assert disk.operations == n
        disk.crash()
        disk.list("/")

    disk.crash_after(13)
    disk.kill()  # calls it off


def test_a_crash_may_be_the_operation_after_next() -> None:
    disk, file = new_file()
    file.write(0, [b"a"])
    disk.crash_after(2)
    file.write(1, [b"b"])

    with pytest.raises(SimulatedCrash):
        file.write(2, [b"c"])

    with pytest.raises(ValueError, match="1st following"):
        disk.crash_after(0)


def test_a_stopped_process_can_do_nothing_more() -> None:
    disk, file = new_file(contents=b"abc")
    lock = disk.lock("/lock")
    disk.crash_after(1)
    with pytest.raises(SimulatedCrash):
        file.sync()
    operations = disk.operations

    attempts: list[Callable[[], object]] = [
        file.size,
        file.sync,
        lambda: file.read(0, 1),
        lambda: file.write(0, [b"x"]),
        lambda: file.truncate(0),
        lambda: disk.open("/file", "read"),
        lambda: disk.open("/new", "create"),
        lambda: disk.exists("/file"),
        lambda: disk.list("/"),
        lambda: disk.make_folder("/folder"),
        lambda: disk.rename("/file", "/new"),
        lambda: disk.remove("/file"),
        lambda: disk.sync_folder("/"),
        lambda: disk.lock("/lock"),
        lambda: disk.free_bytes("/"),
    ]
    for attempt in attempts:
        with pytest.raises(SimulatedCrash):
            attempt()
    file.close()
    lock.release()

    assert disk.operations == operations
    disk.kill()
    assert disk.open("/file", "read").read(0, 3) == b"abc"


def test_a_write_is_stopped_before_after_and_half_way() -> None:
    lengths = set()
    for seed in range(300):
        disk, file = new_file(seed)
        disk.crash_after(1)
        with pytest.raises(SimulatedCrash):
            file.write(0, [b"x" * 10])
        disk.kill()
        lengths.add(len(disk.read_file("/file")))

    assert lengths == set(range(11))


def test_a_sync_is_stopped_before_after_and_half_way() -> None:
    saved = set()
    for seed in range(300):
        disk, file = new_file(seed, contents=b"o" * SECTOR * 3)
        file.write(0, [b"n" * SECTOR * 3])
        disk.crash_after(1)
        with pytest.raises(SimulatedCrash):
            file.sync()
        disk.crash("lose_all")
        saved.add(disk.read_file("/file")[::SECTOR])

    assert saved == {bytes((a, b, c)) for a in b"on" for b in b"on" for c in b"on"}


def test_a_folder_sync_is_stopped_before_after_and_half_way() -> None:
    saved = set()
    for seed in range(100):
        disk = SimulatedDisk(seed)
        disk.open("/a", "create")
        disk.open("/b", "create")
        disk.crash_after(1)
        with pytest.raises(SimulatedCrash):
            disk.sync_folder("/")
        disk.crash("lose_all")
        saved.add("".join(disk.list("/")))

    assert saved == {"", "a", "b", "ab"}


@pytest.mark.parametrize("operation", ["create", "rename", "remove", "make_folder", "truncate"])
def test_other_operations_happen_or_do_not(operation: str) -> None:
    operations: dict[str, Callable[[SimulatedDisk, SimulatedFile], object]] = {
        "create": lambda disk, file: disk.open("/new", "create"),
        "rename": lambda disk, file: disk.rename("/file", "/new"),
        "remove": lambda disk, file: disk.remove("/file"),
        "make_folder": lambda disk, file: disk.make_folder("/new"),
        "truncate": lambda disk, file: file.truncate(1),
    }
    seen = set()
    for seed in range(50):
        disk, file = new_file(seed, contents=b"abc")
        disk.crash_after(1)
        with pytest.raises(SimulatedCrash, match=operation):
            operations[operation](disk, file)
        disk.kill()
        seen.add((tuple(disk.list("/")), disk.used_bytes))

    assert len(seen) == 2


# --- faults -----------------------------------------------------------------------------------------------------


def test_a_fault_strikes_once_at_its_turn() -> None:
    disk, file = new_file()
    disk.fail("write", errno.EIO, after=2)

    assert file.write(0, [b"a"]) == 1
    with pytest.raises(OSError, match="simulated EIO") as error:
        file.write(1, [b"b"])
    assert file.write(1, [b"c"]) == 1

    assert (error.value.errno, error.value.filename) == (errno.EIO, "/file")
    assert disk.read_file("/file") == b"ac"


def test_a_fault_can_last() -> None:
    disk, file = new_file()
    disk.fail("write", errno.EIO, times=3)
    for _ in range(3):
        with pytest.raises(OSError, match="EIO"):
            file.write(0, [b"a"])
    file.write(0, [b"a"])

    disk.fail("write", errno.EIO, times=None)
    for _ in range(10):
        with pytest.raises(OSError, match="EIO"):
            file.write(0, [b"a"])
    disk.clear_faults()
    file.write(0, [b"a"])


def test_a_fault_strikes_only_its_path() -> None:
    disk, file = new_file()
    other = disk.open("/other", "create")
    disk.fail("write", errno.EIO, path_contains="oth")

    file.write(0, [b"a"])
    with pytest.raises(OSError, match="EIO"):
        other.write(0, [b"a"])


@pytest.mark.parametrize(("after", "times"), [(0, 1), (1, 0)])
def test_a_fault_that_never_strikes_is_a_mistake(after: int, times: int) -> None:
    with pytest.raises(ValueError, match="1st matching"):
        SimulatedDisk().fail("write", errno.EIO, after=after, times=times)


def test_every_operation_can_fail_and_then_changes_nothing() -> None:
    disk, file = new_file(contents=b"abc")
    operations: dict[Operation, Callable[[], object]] = {
        "open": lambda: disk.open("/file", "read"),
        "create": lambda: disk.open("/new", "create"),
        "read": lambda: file.read(0, 1),
        "write": lambda: file.write(0, [b"x"]),
        "truncate": lambda: file.truncate(0),
        "sync": file.sync,
        "make_folder": lambda: disk.make_folder("/folder"),
        "rename": lambda: disk.rename("/file", "/new"),
        "remove": lambda: disk.remove("/file"),
        "sync_folder": lambda: disk.sync_folder("/"),
        "lock": lambda: disk.lock("/lock"),
    }
    for operation, attempt in operations.items():
        disk.fail(operation, errno.EACCES)
        with pytest.raises(PermissionError):
            attempt()

    assert disk.list("/") == ["file"]
    assert disk.read_file("/file") == b"abc"


def test_a_failed_sync_dooms_what_it_was_for() -> None:
    disk, file = new_file(contents=b"." * SECTOR)
    file.write(0, [b"d" * SECTOR])
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="EIO"):
        file.sync()

    file.write(SECTOR, [b"safe"])
    file.sync()  # says that all is well

    assert file.read(0, SECTOR) == b"d" * SECTOR, "and reading does not tell either"
    assert set(fates(disk)) == {b"." * SECTOR + b"safe", b"d" * SECTOR + b"safe"}


def test_a_failed_sync_is_forgotten_after_a_crash() -> None:
    disk, file = new_file(contents=b"." * SECTOR)
    file.write(0, [b"d" * SECTOR])
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="EIO"):
        file.sync()
    disk.crash("lose_all")

    file = disk.open("/file", "write")
    file.write(0, [b"e" * SECTOR])
    file.sync()

    assert set(fates(disk, 50)) == {b"e" * SECTOR}


def test_a_failed_folder_sync_saves_nothing() -> None:
    disk = SimulatedDisk()
    disk.open("/new", "create")
    disk.fail("sync_folder", errno.EIO)
    with pytest.raises(OSError, match="EIO"):
        disk.sync_folder("/")

    disk.crash("lose_all")

    assert disk.list("/") == []


# --- space and short writes -------------------------------------------------------------------------------------


def test_a_full_disk_takes_what_fits_and_then_nothing() -> None:
    disk, file = new_file(contents=b"12345")
    disk.capacity_bytes = 8
    assert disk.free_bytes("/") == 3

    assert file.write(5, [b"67", b"89"]) == 3
    assert disk.free_bytes("/") == 0
    with pytest.raises(OSError, match="ENOSPC") as full:
        file.write(8, [b"9"])

    assert full.value.errno == errno.ENOSPC
    assert disk.read_file("/file") == b"12345678"
    assert file.write(0, [b"abcd"]) == 4, "overwriting needs no space"
    assert file.write(6, [b"xyz"]) == 2, "nor does the part that overwrites"


def test_space_is_shared_freed_and_given() -> None:
    disk, file = new_file(contents=b"12345")
    other = disk.open("/other", "create")
    disk.capacity_bytes = 5
    with pytest.raises(OSError, match="ENOSPC"):
        other.write(0, [b"x"])

    file.truncate(4)
    assert other.write(0, [b"xy"]) == 1
    disk.remove("/file")
    assert other.write(1, [b"yz..."]) == 4
    disk.capacity_bytes = None
    assert other.write(5, [b"more"]) == 4
    assert disk.used_bytes == 9


def test_a_gap_that_does_not_fit_is_refused() -> None:
    disk, file = new_file()
    disk.capacity_bytes = 10

    with pytest.raises(OSError, match="ENOSPC"):
        file.write(10, [b"x"])

    assert file.size() == 0


def test_short_writes_do_a_part_and_say_so() -> None:
    disk, file = new_file()
    disk.short_writes = 0.5
    counts = Counter(file.write(0, [b"01", b"23"]) for _ in range(400))

    assert set(counts) == {1, 2, 3, 4}
    assert 120 < counts[4] < 280
    assert file.write(0, [b"x"]) == 1, "one byte cannot be cut"

    disk.short_writes = 0.0
    assert file.write(0, [b"x" * 100]) == 100
