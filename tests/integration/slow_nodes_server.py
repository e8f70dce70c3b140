"""A server whose disk takes 0.7 s to read a node of a stream: run as `tidelog` is.

Nodes have ten entries, and are cold as soon as they are sealed.
"""

from __future__ import annotations

import runpy
import time
from pathlib import Path

READ_S = 0.7


def slow_down() -> None:
    from tidelog import limits

    limits.NODE_ENTRIES_MAX = 10
    limits.HOT_NODES_KEPT = 1
    limits.OPENED_NODES_BYTES_MAX = 1  # nothing stays open
    from tidelog.system.disk import SystemFile

    read = SystemFile.read

    def read_slowly(self: SystemFile, position: int, length: int) -> bytes:
        if "/nodes-" in self.path:
            time.sleep(READ_S)
        return read(self, position, length)

    SystemFile.read = read_slowly  # type: ignore[method-assign]


if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).parents[1] / "from_sources" / "sitecustomize.py"))
    slow_down()
    from tidelog.cli import main

    main()
