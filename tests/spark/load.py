"""A client that writes without end, beside what reads."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any, Final, Self

from tests.integration.server_process import ServerProcess

PAUSE_S: Final = 0.02


class Load(threading.Thread, ABC):
    """Writes while its block runs, or until it is told to stop, on a thread of its own."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__()
        self._client: Any = server.client()
        self._is_over = threading.Event()
        self._problem: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._is_over.wait(PAUSE_S):
                self._write()
        except BaseException as problem:
            self._problem = problem

    @abstractmethod
    def _write(self) -> None:
        """A little."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        self._is_over.set()
        self.join(60)
        assert self._problem is None, self._problem
        self._client.close()
