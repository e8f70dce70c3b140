"""What `ports.Disk`, `ports.File` and `ports.Lock` promise, for all disks: real, in memory, simulated."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tidelog.ports import Chunk, Disk, File, OpenMode
from tidelog.system.disk import SystemDisk
from tidelog.system.memory_disk import MemoryDisk
from tidelog.testing.disk import SimulatedDisk


class Machine:
    """A disk, and a folder on it that is empty."""

    def __init__(self, disk: Disk, root: str) -> None:
        self.disk = disk
        self.root = root

    def at(self, name: str) -> str:
        return f"{self.root}/{name}"

    def put(self, name: str, data: bytes) -> str:
        path = self.at(name)
        with closing(self.disk.open(path, "create")) as file:
            write_all(file, 0, data)
        return path

    def get(self, name: str) -> bytes:
        with closing(self.disk.open(self.at(name), "read")) as file:
            return file.read(0, file.size())


def write_all(file: File, position: int, data: bytes) -> None:
    while data:
        count = file.write(position, [data])
        assert count > 0
        position, data = position + count, data[count:]


@pytest.fixture(params=["system", "memory", "simulated"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    if request.param == "system":
        return Machine(SystemDisk(), str(tmp_path))
    disk = MemoryDisk() if request.param == "memory" else SimulatedDisk()
    disk.make_folder("/data")
    return Machine(disk, "/data")


@pytest.fixture
def file(machine: Machine) -> Iterator[File]:
    with closing(machine.disk.open(machine.at("file"), "create")) as opened:
        yield opened


# --- opening ----------------------------------------------------------------------------------------------------


def test_a_created_file_is_empty_and_there(machine: Machine, file: File) -> None:
    assert file.path == machine.at("file")
    assert file.size() == 0
    assert file.read(0, 10) == b""
    assert machine.disk.exists(file.path)


def test_create_refuses_what_exists(machine: Machine, file: File) -> None:
    write_all(file, 0, b"precious")

    with pytest.raises(FileExistsError):
        machine.disk.open(file.path, "create")

    assert file.read(0, 100) == b"precious"


@pytest.mark.parametrize("mode", ["read", "write"])
def test_read_and_write_refuse_what_does_not_exist(machine: Machine, mode: OpenMode) -> None:
    with pytest.raises(FileNotFoundError):
        machine.disk.open(machine.at("missing"), mode)

    assert not machine.disk.exists(machine.at("missing"))


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_folder_is_not_opened(machine: Machine, mode: OpenMode) -> None:
    with pytest.raises(IsADirectoryError):
        machine.disk.open(machine.root, mode)


def test_create_needs_the_folder(machine: Machine) -> None:
    with pytest.raises(FileNotFoundError):
        machine.disk.open(machine.at("missing/file"), "create")


def test_nothing_lies_below_a_file(machine: Machine, file: File) -> None:
    with pytest.raises(NotADirectoryError):
        machine.disk.open(f"{file.path}/below", "create")

    assert not machine.disk.exists(f"{file.path}/below")


def test_write_mode_keeps_contents_and_writes(machine: Machine) -> None:
    path = machine.put("file", b"abcdef")

    with closing(machine.disk.open(path, "write")) as file:
        write_all(file, 2, b"XY")

    assert machine.get("file") == b"abXYef"


def test_read_mode_does_not_change_the_file(machine: Machine) -> None:
    path = machine.put("file", b"abc")

    with closing(machine.disk.open(path, "read")) as file:
        with pytest.raises(OSError, match=r".") as wrote:
            file.write(0, [b"x"])
        with pytest.raises(OSError, match=r".") as truncated:
            file.truncate(0)

    assert (wrote.value.errno, truncated.value.errno) == (errno.EBADF, errno.EINVAL)
    assert machine.get("file") == b"abc"


# --- reading and writing ----------------------------------------------------------------------------------------


def test_write_returns_how_much_and_read_finds_it(file: File) -> None:
    assert file.write(0, [b"hello"]) == 5
    assert file.read(0, 5) == b"hello"
    assert file.size() == 5


def test_chunks_of_every_kind_follow_each_other(file: File) -> None:
    chunks: list[Chunk] = [b"one ", bytearray(b"two "), memoryview(b"...three...")[3:8], b""]

    assert file.write(0, chunks) == 13
    assert file.read(0, 100) == b"one two three"


def test_written_chunks_are_not_held_on_to(file: File) -> None:
    buffer = bytearray(b"before")
    file.write(0, [buffer])

    buffer[:] = b"after, and longer"

    assert file.read(0, 100) == b"before"


def test_read_is_short_only_at_the_end(file: File) -> None:
    write_all(file, 0, b"0123456789")

    assert file.read(2, 3) == b"234"
    assert file.read(8, 100) == b"89"
    assert file.read(10, 1) == b""
    assert file.read(1000, 1) == b""
    assert file.read(0, 0) == b""


def test_read_returns_bytes_that_later_writes_do_not_change(file: File) -> None:
    write_all(file, 0, b"aaaa")
    data = file.read(0, 4)

    write_all(file, 0, b"bbbb")

    assert isinstance(data, bytes)
    assert data == b"aaaa"


def test_overwriting_changes_only_what_it_covers(file: File) -> None:
    write_all(file, 0, b"0123456789")
    write_all(file, 3, b"abc")
    assert file.read(0, 100) == b"012abc6789"

    write_all(file, 8, b"WXYZ")
    assert file.read(0, 100) == b"012abc67WXYZ"
    assert file.size() == 12


def test_a_gap_reads_as_zeros(file: File) -> None:
    write_all(file, 0, b"ab")
    write_all(file, 5, b"z")

    assert file.read(0, 100) == b"ab\0\0\0z"


@pytest.mark.parametrize("chunks", [[], [b""], [b"", b""]])
def test_writing_nothing_does_nothing(file: File, chunks: list[bytes]) -> None:
    assert file.write(10, chunks) == 0
    assert file.size() == 0


def test_no_position_is_negative(file: File) -> None:
    for attempt in (lambda: file.read(-1, 1), lambda: file.write(-1, [b"x"]), lambda: file.truncate(-1)):
        with pytest.raises(OSError, match=r".") as refused:
            attempt()
        assert refused.value.errno == errno.EINVAL


def test_many_chunks_are_written_in_several_calls(file: File) -> None:
    chunks = [b"%05d" % i for i in range(5000)]
    whole = b"".join(chunks)

    first = file.write(0, chunks)
    assert 0 < first <= len(whole)
    write_all(file, first, whole[first:])

    assert file.read(0, len(whole) + 1) == whole


def test_only_writing_nothing_returns_0(file: File) -> None:
    assert file.write(0, [b""] * 5000 + [b"x"]) == 1


def test_a_few_megabytes_come_back_whole(file: File) -> None:
    data = bytes(range(256)) * (4096 * 3)

    write_all(file, 0, data)

    assert file.read(0, len(data)) == data


def test_two_files_see_each_other(machine: Machine, file: File) -> None:
    with closing(machine.disk.open(file.path, "read")) as reader:
        write_all(file, 0, b"seen at once")
        assert reader.read(0, 100) == b"seen at once"
        file.truncate(4)
        assert reader.size() == 4


# --- truncate, sync, close --------------------------------------------------------------------------------------


def test_truncate_cuts_and_grows_with_zeros(file: File) -> None:
    write_all(file, 0, b"0123456789")

    file.truncate(4)
    assert file.read(0, 100) == b"0123"

    file.truncate(6)
    assert file.read(0, 100) == b"0123\0\0"

    file.truncate(6)
    assert file.size() == 6


def test_what_was_cut_does_not_come_back(file: File) -> None:
    write_all(file, 0, b"0123456789")
    file.truncate(2)

    write_all(file, 5, b"x")

    assert file.read(0, 100) == b"01\0\0\0x"


def test_sync_changes_nothing_that_is_read(machine: Machine) -> None:
    path = machine.put("file", b"abc")
    for mode in ("read", "write"):
        with closing(machine.disk.open(path, mode)) as file:
            file.sync()
            assert file.read(0, 100) == b"abc"


def test_close_twice_is_fine_and_use_afterwards_is_a_mistake(machine: Machine) -> None:
    file = machine.disk.open(machine.at("file"), "create")
    file.close()
    file.close()

    uses: list[Callable[[], object]] = [
        file.size,
        file.sync,
        lambda: file.read(0, 1),
        lambda: file.write(0, [b"x"]),
        lambda: file.truncate(0),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="file is closed"):
            use()
    assert file.path == machine.at("file")


# --- names ------------------------------------------------------------------------------------------------------


def test_list_is_sorted_and_complete(machine: Machine) -> None:
    for name in ("b", "a", "c10", "c9", "B"):
        machine.put(name, b"")
    machine.disk.make_folder(machine.at("folder"))
    machine.put("folder/below", b"")

    assert machine.disk.list(machine.root) == ["B", "a", "b", "c10", "c9", "folder"]
    assert machine.disk.list(machine.at("folder")) == ["below"]


def test_list_needs_a_folder(machine: Machine) -> None:
    machine.put("file", b"")

    with pytest.raises(FileNotFoundError):
        machine.disk.list(machine.at("missing"))
    with pytest.raises(NotADirectoryError):
        machine.disk.list(machine.at("file"))


def test_make_folder_is_fine_if_it_exists(machine: Machine) -> None:
    machine.disk.make_folder(machine.at("folder"))
    machine.put("folder/file", b"x")

    machine.disk.make_folder(machine.at("folder"))

    assert machine.get("folder/file") == b"x"


def test_make_folder_makes_one_only(machine: Machine) -> None:
    with pytest.raises(FileNotFoundError):
        machine.disk.make_folder(machine.at("missing/folder"))

    assert machine.disk.list(machine.root) == []


def test_make_folder_does_not_take_a_file_for_one(machine: Machine) -> None:
    machine.put("file", b"")

    with pytest.raises(FileExistsError):
        machine.disk.make_folder(machine.at("file"))
    with pytest.raises(NotADirectoryError):
        machine.disk.make_folder(machine.at("file/below"))


def test_exists_knows_files_and_folders(machine: Machine) -> None:
    machine.put("file", b"")

    assert machine.disk.exists(machine.root)
    assert machine.disk.exists(machine.at("file"))
    assert not machine.disk.exists(machine.at("missing"))
    assert not machine.disk.exists(machine.at("missing/file"))


def test_a_link_is_a_second_name_of_a_file(machine: Machine) -> None:
    disk = machine.disk
    disk.make_folder(machine.at("a"))
    file = disk.open(machine.at("one"), "create")
    write_all(file, 0, b"first")
    disk.link(machine.at("one"), machine.at("a/two"))
    write_all(file, 5, b" second")
    other = disk.open(machine.at("a/two"), "read")
    assert other.read(0, 100) == b"first second"
    other.close()
    disk.remove(machine.at("one"))
    other = disk.open(machine.at("a/two"), "read")
    assert other.read(0, 100) == b"first second"
    other.close()
    file.close()


def test_a_link_takes_no_name_that_is_taken_and_none_of_a_folder(machine: Machine) -> None:
    disk = machine.disk
    for name in ("one", "two"):
        disk.open(machine.at(name), "create").close()
    disk.make_folder(machine.at("a"))
    with pytest.raises(FileExistsError):
        disk.link(machine.at("one"), machine.at("two"))
    with pytest.raises(FileNotFoundError):
        disk.link(machine.at("none"), machine.at("three"))
    with pytest.raises(OSError, match=r"EPERM|not permitted"):
        disk.link(machine.at("a"), machine.at("three"))


def test_rename_moves_a_file(machine: Machine) -> None:
    machine.disk.make_folder(machine.at("folder"))
    machine.put("old", b"contents")

    machine.disk.rename(machine.at("old"), machine.at("folder/new"))

    assert machine.disk.list(machine.root) == ["folder"]
    assert machine.get("folder/new") == b"contents"


def test_rename_replaces_a_file(machine: Machine) -> None:
    machine.put("old", b"old")
    machine.put("new", b"newer")

    machine.disk.rename(machine.at("new"), machine.at("old"))

    assert machine.disk.list(machine.root) == ["old"]
    assert machine.get("old") == b"newer"


def test_rename_to_itself_does_nothing(machine: Machine) -> None:
    machine.put("file", b"x")

    machine.disk.rename(machine.at("file"), machine.at("file"))

    assert machine.get("file") == b"x"


def test_rename_moves_a_folder_with_all_below_it(machine: Machine) -> None:
    machine.disk.make_folder(machine.at("old"))
    machine.put("old/file", b"x")
    machine.disk.make_folder(machine.at("empty"))

    machine.disk.rename(machine.at("old"), machine.at("empty"))

    assert machine.disk.list(machine.root) == ["empty"]
    assert machine.get("empty/file") == b"x"


def test_rename_refuses_what_does_not_fit(machine: Machine) -> None:
    machine.put("file", b"x")
    for name in ("folder", "full", "full/below"):
        machine.disk.make_folder(machine.at(name))

    refused: list[tuple[str, str, int]] = [
        ("missing", "new", errno.ENOENT),
        ("file", "missing/new", errno.ENOENT),
        ("file", "folder", errno.EISDIR),
        ("folder", "file", errno.ENOTDIR),
        ("folder", "full", errno.ENOTEMPTY),
        ("full", "full/below/full", errno.EINVAL),
    ]
    for old, new, number in refused:
        with pytest.raises(OSError, match=r".") as error:
            machine.disk.rename(machine.at(old), machine.at(new))
        assert (old, new, error.value.errno) == (old, new, number)
    assert machine.disk.list(machine.root) == ["file", "folder", "full"]


def test_an_open_file_follows_its_rename(machine: Machine, file: File) -> None:
    machine.disk.rename(file.path, machine.at("renamed"))

    write_all(file, 0, b"still it")

    assert machine.get("renamed") == b"still it"


def test_remove_takes_a_file_or_an_empty_folder(machine: Machine) -> None:
    machine.put("file", b"")
    machine.disk.make_folder(machine.at("folder"))

    machine.disk.remove(machine.at("file"))
    machine.disk.remove(machine.at("folder"))

    assert machine.disk.list(machine.root) == []


def test_remove_refuses_what_is_full_or_missing(machine: Machine) -> None:
    machine.disk.make_folder(machine.at("folder"))
    machine.put("folder/file", b"")

    with pytest.raises(OSError, match=r".") as full:
        machine.disk.remove(machine.at("folder"))
    with pytest.raises(FileNotFoundError):
        machine.disk.remove(machine.at("missing"))

    assert full.value.errno == errno.ENOTEMPTY
    assert machine.disk.list(machine.at("folder")) == ["file"]


def test_an_open_file_outlives_its_name(machine: Machine, file: File) -> None:
    write_all(file, 0, b"old")
    machine.disk.remove(file.path)

    machine.put("file", b"another")
    write_all(file, 3, b" and alive")
    file.sync()

    assert file.read(0, 100) == b"old and alive"
    assert machine.get("file") == b"another"


def test_sync_folder_changes_nothing_that_is_seen(machine: Machine) -> None:
    machine.put("file", b"x")

    machine.disk.sync_folder(machine.root)

    assert machine.disk.list(machine.root) == ["file"]
    assert machine.get("file") == b"x"


def test_sync_folder_needs_a_folder(machine: Machine) -> None:
    machine.put("file", b"")

    with pytest.raises(FileNotFoundError):
        machine.disk.sync_folder(machine.at("missing"))
    with pytest.raises(NotADirectoryError):
        machine.disk.sync_folder(machine.at("file"))


# --- locks and space --------------------------------------------------------------------------------------------


def test_a_lock_is_held_by_one(machine: Machine) -> None:
    lock = machine.disk.lock(machine.at("lock"))

    for _ in range(2):
        with pytest.raises(BlockingIOError, match=r"held by process \d+") as refused:
            machine.disk.lock(machine.at("lock"))
        assert refused.value.filename == machine.at("lock")

    lock.release()
    machine.disk.lock(machine.at("lock")).release()


def test_release_twice_frees_only_what_it_held(machine: Machine) -> None:
    first = machine.disk.lock(machine.at("lock"))
    first.release()
    second = machine.disk.lock(machine.at("lock"))

    first.release()

    with pytest.raises(BlockingIOError):
        machine.disk.lock(machine.at("lock"))
    second.release()


def test_locks_on_different_files_are_apart(machine: Machine) -> None:
    one, other = machine.disk.lock(machine.at("one")), machine.disk.lock(machine.at("other"))

    one.release()
    other.release()


def test_a_lock_makes_its_file_and_leaves_it(machine: Machine) -> None:
    machine.disk.lock(machine.at("lock")).release()

    assert machine.disk.list(machine.root) == ["lock"]


def test_a_lock_needs_its_folder_and_is_not_one(machine: Machine) -> None:
    with pytest.raises(FileNotFoundError):
        machine.disk.lock(machine.at("missing/lock"))
    with pytest.raises(IsADirectoryError):
        machine.disk.lock(machine.root)


def test_free_bytes_is_a_number_for_what_exists(machine: Machine, file: File) -> None:
    assert machine.disk.free_bytes(machine.root) > 0
    assert machine.disk.free_bytes(file.path) > 0

    with pytest.raises(FileNotFoundError):
        machine.disk.free_bytes(machine.at("missing"))
