"""What only the real disk can show: modes, descriptors, the kernel's limits, and locks between processes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

import tidelog
from tidelog.ports import Chunk
from tidelog.system.disk import SystemDisk

LOCK_AND_WAIT = """
import sys
from tidelog.system.disk import SystemDisk
lock = SystemDisk().lock(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
lock.release()
"""


@pytest.fixture
def disk() -> SystemDisk:
    return SystemDisk()


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def process_that_locks(path: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until its input ends; it is gone afterwards."""
    environment = {**os.environ, "PYTHONPATH": str(Path(tidelog.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", LOCK_AND_WAIT, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "locked\n"
            yield process
        finally:
            process.kill()


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def open_below(folder: Path) -> list[str]:
    """What this process has open in a folder, once for each descriptor."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the descriptor that listed them is gone
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return sorted(path for path in found if path.startswith(str(folder)))


# --- modes and descriptors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o277, 0o777])
def test_modes_do_not_depend_on_the_umask(disk: SystemDisk, tmp_path: Path, mask: int) -> None:
    folder = f"{tmp_path}/folder"
    with umask(mask):
        disk.make_folder(folder)
        disk.open(f"{folder}/file", "create").close()
        disk.lock(f"{folder}/lock").release()

    assert mode_of(folder) == 0o700
    assert mode_of(f"{folder}/file") == 0o600
    assert mode_of(f"{folder}/lock") == 0o600


def test_a_folder_that_exists_keeps_its_mode(disk: SystemDisk, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o750)

    disk.make_folder(f"{tmp_path}/shared")

    assert mode_of(f"{tmp_path}/shared") == 0o750


def test_no_descriptor_outlives_an_exec(disk: SystemDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/file"
    with closing(disk.open(path, "create")) as created, closing(disk.open(path, "read")) as read:
        lock = disk.lock(f"{tmp_path}/lock")
        for fd in (created._fd, read._fd, lock._fd):
            assert not os.get_inheritable(fd)
        lock.release()


def test_nothing_stays_open(disk: SystemDisk, tmp_path: Path) -> None:
    lock = disk.lock(f"{tmp_path}/lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{tmp_path}/lock")
    with pytest.raises(IsADirectoryError):
        disk.open(str(tmp_path), "read")
    disk.open(f"{tmp_path}/file", "create").close()
    disk.sync_folder(str(tmp_path))
    assert open_below(tmp_path) == [f"{tmp_path}/lock"]

    lock.release()
    assert open_below(tmp_path) == []


def test_repr_tells_the_path_and_whether_it_is_open(disk: SystemDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/file", "create")
    assert "fd " in repr(file)

    file.close()
    assert repr(file) == f"<SystemFile '{tmp_path}/file' closed>"


def test_exists_does_not_deny_what_it_cannot_see(disk: SystemDisk, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    with pytest.raises(OSError, match="symbolic links"):
        disk.exists(f"{tmp_path}/loop")


def test_remove_takes_a_link_and_not_what_it_names(disk: SystemDisk, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")

    disk.remove(f"{tmp_path}/link")

    assert disk.list(str(tmp_path)) == ["folder"]


# --- the kernel's limits ----------------------------------------------------------------------------------------


def test_more_chunks_than_one_call_takes_are_a_short_write(disk: SystemDisk, tmp_path: Path) -> None:
    with closing(disk.open(f"{tmp_path}/file", "create")) as file:
        assert file.write(0, [b"ab"] * 1024) == 2048
        assert file.write(0, [b"ab"] * 1025) == 2048
        assert file.write(0, [b"", b"ab"] * 1025) == 2048
        assert file.size() == 2048


def test_read_goes_on_after_a_short_read(disk: SystemDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(200))
    (tmp_path / "file").write_bytes(data)
    real_pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, position: real_pread(fd, min(length, 7), position))

    with closing(disk.open(f"{tmp_path}/file", "read")) as file:
        assert file.read(0, 200) == data
        assert file.read(10, 15) == data[10:25]
        assert file.read(190, 100) == data[190:]
        assert file.read(200, 100) == b""


def test_a_short_write_is_reported(disk: SystemDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_pwrite = os.pwrite

    def write_three(fd: int, chunk: Chunk, position: int) -> int:
        return real_pwrite(fd, bytes(chunk)[:3], position)

    def write_three_of_several(fd: int, chunks: Sequence[Chunk], position: int) -> int:
        return write_three(fd, b"".join(chunks), position)

    monkeypatch.setattr(os, "pwrite", write_three)
    monkeypatch.setattr(os, "pwritev", write_three_of_several)

    with closing(disk.open(f"{tmp_path}/file", "create")) as file:
        assert file.write(0, [b"abcdef"]) == 3
        assert file.write(3, [b"ab", b"cdef"]) == 3
        assert file.read(0, 10) == b"abcabc"


def test_free_bytes_is_what_the_file_system_says(disk: SystemDisk, tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)

    free = disk.free_bytes(str(tmp_path))

    assert abs(free - status.f_bavail * status.f_frsize) < 2**30  # others write too


# --- locks ------------------------------------------------------------------------------------------------------


def test_a_lock_names_its_process(disk: SystemDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/lock"
    lock = disk.lock(path)

    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    with pytest.raises(BlockingIOError, match=f"held by process {os.getpid()}: "):
        disk.lock(path)
    lock.release()


def test_a_longer_old_process_id_is_replaced(disk: SystemDisk, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("12345678901234567890\n")

    disk.lock(f"{tmp_path}/lock").release()

    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_a_lock_whose_file_names_nobody_is_still_a_lock(disk: SystemDisk, tmp_path: Path) -> None:
    lock = disk.lock(f"{tmp_path}/lock")
    (tmp_path / "lock").write_text("")

    with pytest.raises(BlockingIOError, match="held by another process"):
        disk.lock(f"{tmp_path}/lock")
    lock.release()


def test_another_process_holds_a_lock_until_it_is_killed(disk: SystemDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/lock"
    with process_that_locks(path) as process:
        with pytest.raises(BlockingIOError, match=f"held by process {process.pid}: "):
            disk.lock(path)

        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        disk.lock(path).release()


def test_another_process_releases_a_lock(disk: SystemDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/lock"
    with process_that_locks(path) as process:
        process.communicate(timeout=30)
        assert process.returncode == 0
        disk.lock(path).release()


def test_release_frees_the_lock_although_a_child_has_its_descriptor(disk: SystemDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/lock"
    lock = disk.lock(path)
    inherited = os.dup(lock._fd)  # what a fork would leave in the child: another descriptor of the same open file
    try:
        lock.release()
        disk.lock(path).release()
    finally:
        os.close(inherited)
