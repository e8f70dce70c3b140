"""A server whose nodes and node files are small, so that a test has many: run as `tidelog` is.

Its object store is slow or down, for reads of node files, while there is a file "slow" or "down" in $FAR_STORE.
"""

from __future__ import annotations

import os
import runpy
import time
from pathlib import Path
from typing import Any

READ_S = 0.7


def make_small() -> None:
    from tidelog import limits

    limits.NODE_ENTRIES_MAX = 10
    limits.HOT_NODES_KEPT = 1
    limits.OPENED_NODES_BYTES_MAX = 1  # nothing stays open
    limits.NODE_FILE_BYTES_MAX = 20 * limits.KIB
    limits.SHIP_EVERY_S = 0.2
    limits.SHIP_BEAT_US = 500_000
    limits.HISTORY_LOOK_US = 300_000
    limits.HISTORY_RETRY_US = 1_000_000
    limits.HISTORY_DOWN_US = 300_000
    if os.environ.get("HISTORY_STAYS_AWAY"):
        limits.HISTORY_FREE_BYTES_MIN = 2**60  # nothing is fetched back, nor cached


class FarStore:
    """Another store, with reads that take long, or fail."""

    def __init__(self, store: Any, control: Path) -> None:
        self._store = store
        self._control = control

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, name: str, position: int, length: int) -> bytes:
        if "/nodes/" in name:
            if (self._control / "slow").exists():
                time.sleep(READ_S)
            if (self._control / "down").exists():
                time.sleep(READ_S)
                raise TimeoutError(f"{name}: no answer")
        found: bytes = self._store.read(name, position, length)
        return found


def put_far_away() -> None:
    from tidelog.system import object_store, ship_store

    control = Path(os.environ["FAR_STORE"])
    vars(ship_store)["open_object_store"] = lambda url, is_new=True: FarStore(
        object_store.open_object_store(url, is_new=is_new), control
    )


if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).parents[1] / "from_sources" / "sitecustomize.py"))
    make_small()
    put_far_away()
    from tidelog.cli import main

    main()
