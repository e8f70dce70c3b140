"""A disk that is really full: a small one of its own, which only the server sees."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.integration.server_process import COMMAND, ServerProcess

DISK: Final = "size=24m"
UNSHARE: Final = ["unshare", "--user", "--map-root-user", "--mount"]


def can_mount(folder: Path) -> bool:
    mount = [*UNSHARE, "mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(folder)]
    return (
        shutil.which("unshare") is not None and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not can_mount(disk):
        pytest.skip("this machine lets nobody mount a file system of his own")
    script = f'mount -t tmpfs -o {DISK} tmpfs "$0" && head -c 16M /dev/zero >"$0/ballast" && exec "$@"'
    command = [*UNSHARE, "sh", "-c", script, str(disk), *COMMAND]
    with ServerProcess(disk / "data", "--fsync", "always", command=command) as made:
        yield made


def fill(client: Any, value: bytes) -> int:
    """Write until there is no answer; returns how many were answered."""
    for number in range(1000):
        try:
            client.set(f"filler:{number}", value)
        except redis.TimeoutError:
            return number
    raise AssertionError("the disk is never full")


def test_only_what_may_be_lost_waits_for_space(server: ServerProcess) -> None:
    client: Any = server.client()
    client.set("kept", "durable")
    monitor: Any = server.client()
    assert monitor.ping()
    value = b"x" * 100_000
    impatient: dict[str, Any] = {"retry": Retry(NoBackoff(), 0), "socket_timeout": 1}
    written = fill(redis.Redis(port=server.port, **impatient), value)
    for _ in range(3):
        assert (client.ping(), client.get("kept"), monitor.get("filler:0")) == (True, b"durable", value)
        assert client.info("persistence")["aof_last_write_status"] == "err"
        with pytest.raises(redis.ResponseError, match="MISCONF no space is left"):
            client.set("kept", "other")
    reader: Any = redis.Redis(port=server.port, **impatient)
    for question in (("GET", f"filler:{written}"), ("DBSIZE",)):
        with pytest.raises(redis.TimeoutError):
            reader.execute_command(*question)
    Path(f"/proc/{server.pid}/root{server.data.parent}/ballast").unlink()  # only the server's process sees it
    deadline = time.monotonic() + 30
    while client.info("persistence")["aof_last_write_status"] == "err":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert client.get(f"filler:{written}") == value
    assert client.set("kept", "other")
    assert client.dbsize() == written + 2
