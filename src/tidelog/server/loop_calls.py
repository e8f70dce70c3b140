"""Calls from other threads: something runs on the loop, between its turns, and the thread waits for the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

Result = TypeVar("Result")
_WAIT_S_MAX: Final = 60.0
"""Past it the thread gives up with a `TimeoutError`."""


class LoopCalls:
    """For threads that must not touch what the loop owns."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def ask(self, work: Callable[[], Result]) -> Result:
        done: Future[Result] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except Exception as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result(_WAIT_S_MAX)

    def wait(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """The same for a coroutine."""
        asyncio.run_coroutine_threadsafe(work(), self._loop).result(_WAIT_S_MAX)
