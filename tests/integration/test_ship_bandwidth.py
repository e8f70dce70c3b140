"""A server uploads no faster than it is told, and everything arrives."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path
from typing import Final

from tests.integration.server_process import COMMAND, ServerProcess, environment
from tests.integration.test_lost_machines import shipping, wait_until_shipped

RATE: Final = 256 * 1024
SIZE: Final = 1024 * 1024


def test_a_server_ships_as_slowly_as_it_is_told(tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    with ServerProcess(tmp_path / "data", "--ship-to", copy, "--ship-bandwidth", "256kb") as server:
        server.client().set("small", "x")
        wait_until_shipped(server)
        before, began_s = int(shipping(server)["shipping_bytes_put"]), time.monotonic()
        server.client().set("large", random.Random(1).randbytes(SIZE))
        wait_until_shipped(server)
        took_s = time.monotonic() - began_s
        size = int(shipping(server)["shipping_bytes_put"]) - before
        assert size >= SIZE
        # The first object goes out at once, and what was put last is waited for by the next one.
        assert took_s >= (size - 2 * max(RATE * 2, 256 * 1024)) / RATE * 0.5
        assert shipping(server)["shipping_state"] == "shipping"
        assert server.terminate() == 0
    with ServerProcess(tmp_path / "other", "--restore-from", copy, "--restore-wait", "0") as server:
        assert server.client().strlen("large") == SIZE
        assert server.terminate() == 0


def test_a_server_refuses_to_ship_too_slowly(tmp_path: Path) -> None:
    words = [*COMMAND, "--data", str(tmp_path / "data"), "--ship-to", str(tmp_path / "copy"), "--ship-bandwidth", "1kb"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, env=environment(), timeout=60)
    assert ended.returncode == 2
    assert "at least 16kb" in " ".join(ended.stderr.split())
    assert not (tmp_path / "data").exists()
