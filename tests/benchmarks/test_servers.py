"""The servers of the benchmarks are gone when they should be, and what talks to them notices."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from benchmarks import servers
from benchmarks.loads import Link
from benchmarks.servers import running

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs a redis-server to compare with")


def test_a_server_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "STOP_S_MAX", 0.1)
    with running("redis", str(tmp_path)) as server:
        os.kill(server.pid, signal.SIGSTOP)
    assert not Path(f"/proc/{server.pid}").exists()


@pytest.mark.timeout(20)
def test_a_link_notices_that_its_server_is_gone(tmp_path: Path) -> None:
    with running("redis", str(tmp_path)) as server:
        link = Link(server)
        link.call(b"PING")
        os.kill(server.pid, signal.SIGKILL)
        time.sleep(0.1)
        with link, pytest.raises(ConnectionError):
            link.call(b"PING")
