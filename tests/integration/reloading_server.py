"""A server that loads its data again on SIGUSR1: run as `tidelog` is, with `NEXT` in the environment naming a folder.

What is in that folder then takes the place of the data directory, if there is something. With `FEED_ERROR` in the
environment, feeds end with that. When the old data is gone from memory, and the directory is about to be opened, a line
in `<NEXT>.log` says whether anything still holds the old store, and how large the process is.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import weakref
from pathlib import Path
from typing import Any, Final

from tidelog.cli import main
from tidelog.server.memory import resident_bytes
from tidelog.server.runtime import Runtime

COMMAND: Final = [sys.executable, "-P", str(Path(__file__).resolve()), "serve"]


def reload_on_signal(following: Path) -> None:
    start = Runtime.start

    async def start_and_listen(self: Any) -> None:
        def reload() -> None:
            journal = weakref.ref(self.served.store.journal)  # a store that is compiled takes none
            data = Path(self._config.data)

            def prepare() -> None:
                is_held = journal() is not None
                with following.with_suffix(".log").open("a") as log:
                    log.write(f"{'held' if is_held else 'freed'} {resident_bytes()}\n")
                if following.exists():
                    data.rename(data.with_suffix(".before"))
                    following.rename(data)

            self.reload(prepare, os.environ.get("FEED_ERROR", ""))

        await start(self)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, reload)

    Runtime.start = start_and_listen  # type: ignore[method-assign]


if __name__ == "__main__":
    reload_on_signal(Path(os.environ["NEXT"]))
    main()
