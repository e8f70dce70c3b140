"""A thread beside the loop for what takes long (`ports.Worker`).

One is for large values: it joins what arrived in pieces, and writes values to the blob file. Another is for what a
leader sends, and some read cold nodes of streams, from disk or from an object store. Each is one thread, so that large
values wait for each other and for nothing else. What they do lets the loop go on: joining `bytes` of more than a
megabyte, checksums, reads, writes and Arrow release the interpreter's lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class WorkThread:
    """Runs work in the order in which it comes. For the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str = "large") -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=name)

    def submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run `work` there and then `done` on the loop. If it raises, so does what is run on the loop."""

        def finish(running: Future[None]) -> None:
            running.result()
            done()

        def finished(running: Future[None]) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(finish, running)

        self._threads.submit(work).add_done_callback(finished)

    def close(self, *, waits: bool = True) -> None:
        """Wait for the work that is under way, or let it come to nothing."""
        self._threads.shutdown(wait=waits, cancel_futures=not waits)
