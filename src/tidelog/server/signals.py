"""Signals that ask a process to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """In the block, SIGTERM and SIGINT call `stop` in the running loop; after it, they do what they do by default."""
    loop = asyncio.get_running_loop()
    for number in _STOPPING:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in _STOPPING:
            loop.remove_signal_handler(number)
