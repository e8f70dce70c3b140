"""A server that takes its time to load: run as `tidelog` is, with `HOLD` in the environment naming a file.

It opens its data directory, and says so by making `<file>.held`. It goes on once the file is gone.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from tidelog.cli import main
from tidelog.journal.journal import Journal
from tidelog.shipping.tiered_disk import TieredDisk
from tidelog.system.disk import SystemDisk

COMMAND: Final = [sys.executable, "-P", str(Path(__file__).resolve()), "serve"]


def slow_down(hold: Path) -> None:
    opened = Journal.open.__func__  # type: ignore[attr-defined]

    def open_slowly(cls: type[Journal], disk: Any, *arguments: Any, **more: Any) -> Journal:
        if isinstance(disk, SystemDisk | TieredDisk):
            hold.with_suffix(".held").touch()
            while hold.exists():
                time.sleep(0.01)
        journal: Journal = opened(cls, disk, *arguments, **more)
        return journal

    Journal.open = classmethod(open_slowly)  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    slow_down(Path(os.environ["HOLD"]))
    main()
