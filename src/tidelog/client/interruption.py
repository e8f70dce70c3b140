"""Signals while an event loop runs in the caller's thread.

A handler that raises, as that of Ctrl-C does, raises wherever the thread is: also in the middle of a library, which
leaves a connection half used and a task without a word. So while a loop runs here, a signal cancels the work, which
ends in order; then the handler is called. There are two exceptions. While a function of the caller runs, such as one
that writes into a full pipe, the handler is called at once, as it would be without a loop. And so it is for a second
signal: somebody is in a hurry.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, TypeVar

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

_Handler = Callable[[int, FrameType | None], Any]
_Result = TypeVar("_Result")


class InterruptibleLoop:
    """Runs work in a loop, in this thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_calling = False

    @contextmanager
    def calling(self) -> Iterator[None]:
        """While a function of the caller runs."""
        self._is_calling = True
        try:
            yield
        finally:
            self._is_calling = False

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """The result of the work; what the handler of a signal raises, if one came."""
        task = self._loop.create_task(work)
        came: list[int] = []
        handlers: dict[int, _Handler] = {}
        if threading.current_thread() is threading.main_thread():
            found = {number: signal.getsignal(number) for number in _SIGNALS}
            handlers = {number: handler for number, handler in found.items() if callable(handler)}

        def on_signal(number: int, frame: FrameType | None) -> None:
            if self._is_calling or came:
                handlers[number](number, frame)
            else:
                came.append(number)
                self._loop.call_soon_threadsafe(task.cancel)

        for number in handlers:
            signal.signal(number, on_signal)
        try:
            with suppress(asyncio.CancelledError):  # which is told at the end, if it is not that of a signal
                self._loop.run_until_complete(task)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            if not task.done():  # a second signal
                task.cancel()
                self._loop.run_until_complete(asyncio.wait([task]))
            if not task.cancelled():
                task.exception()  # if it is one of a signal, asyncio does not know that it is told
        if came:
            handlers[came[0]](came[0], None)
        return task.result()
