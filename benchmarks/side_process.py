"""A function in a process of its own: what loads or measures must not wait for the interpreter of what it measures.

The function is given its arguments and a pipe. It says over the pipe that it is ready, with whatever the caller needs
to know; works until the pipe has something for it; and sends back what it has found.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

SPAWNING: Final = multiprocessing.get_context("spawn")
"""For what is shared with such a process, too."""


class SideProcess:
    """Leaving the block ends it, whatever it takes."""

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        self._name = work.__name__
        self._pipe, theirs = SPAWNING.Pipe()
        self._process = SPAWNING.Process(target=_run, args=(work, arguments, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.ready: Any = None
        """What it said when it was ready."""

    def __enter__(self) -> SideProcess:
        try:
            self.ready = self._receive()
        except BaseException:
            self.__exit__()
            raise
        return self

    def finish(self, message: Any = None) -> Any:
        """Tell it to stop; returns what it has found."""
        try:
            self._pipe.send(message)
        except BrokenPipeError:
            raise SystemExit(f"{self._name} has ended") from None
        return self._receive()

    def _receive(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError:
            raise SystemExit(f"{self._name} has ended") from None

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.kill()
        self._process.join()


def _run(work: Callable[..., None], arguments: tuple[Any, ...], pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches everyone: whoever started this one ends it
    work(*arguments, pipe)
