"""What becomes of what is printed into a pipe: whether anybody still reads it, and how much was taken out of it.

A program that reads our output says nothing. But the system knows when it is gone, and how many bytes nobody has taken
yet: what is left in the pipe when the reader dies was never handled. Where stdout is no pipe, what is flushed counts
as taken.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys
import termios
import time
from collections import deque
from contextlib import suppress
from select import POLLERR, POLLHUP, poll
from typing import Final, Generic, TypeVar

from tidelog import limits
from tidelog.cli.exits import stdout_to_nowhere

_LOOK_S: Final = 0.02

Mark = TypeVar("Mark")


class StdoutPipe(Generic[Mark]):
    """Stdout, with marks for what was printed up to some point."""

    def __init__(self) -> None:
        self._poll = None if sys.stdout.isatty() else _poll_of_stdout()
        self._fifo = _fifo_of_stdout()
        self.printed_bytes = 0
        """Whoever prints counts."""
        self._flushed_bytes = 0
        """Of these are no longer in Python's buffers, at least."""
        self._marks: deque[tuple[int, Mark]] = deque()
        """Those that are not reached yet, and how many bytes were printed by then."""
        self.taken: Mark | None = None
        """The last mark up to which all was taken."""

    @property
    def is_pipe(self) -> bool:
        return self._fifo is not None

    def check_reader(self) -> None:
        """`BrokenPipeError` if nobody reads any more: a command that has nothing to print would not notice."""
        if self._poll is not None and self._poll.poll(0):
            raise BrokenPipeError

    def mark(self, mark: Mark) -> None:
        """What was printed until now has this mark."""
        self._marks.append((self.printed_bytes, mark))

    def look(self) -> None:
        """Print what is buffered, and find out which marks were reached."""
        sys.stdout.flush()
        self._flushed_bytes = self.printed_bytes
        self._find_taken()

    def finish(self, *, waits: bool) -> None:
        """Look a last time. `waits`: give a reader that is slower than we are a moment.

        If a signal ends the wait, or ended whoever printed, nothing is waited for. Python may have lost what it was
        just writing, so only what was flushed before counts; and what does not fit into the pipe is dropped.
        """
        with suppress(BrokenPipeError):  # which has been told, or is told when we are done
            try:
                if waits:
                    self._wait_for_reader()
            finally:
                self._find_taken()
                self._flush_at_once()

    def _wait_for_reader(self) -> None:
        deadline = time.monotonic() + limits.FEED_TAKEN_S_MAX
        self.look()
        while self._marks and time.monotonic() < deadline:
            self.check_reader()
            time.sleep(_LOOK_S)
            self.look()

    def _flush_at_once(self) -> None:
        if self._fifo is None:
            sys.stdout.flush()
            return
        os.set_blocking(self._fifo, False)
        try:
            sys.stdout.flush()
        except BlockingIOError:
            stdout_to_nowhere()  # or Python would wait for the reader when it exits
        else:
            os.set_blocking(self._fifo, True)

    def _find_taken(self) -> None:
        taken_bytes = self._flushed_bytes - (0 if self._fifo is None else _unread_bytes(self._fifo))
        while self._marks and self._marks[0][0] <= taken_bytes:
            self.taken = self._marks[0][1]  # first: a signal may come in between
            self._marks.popleft()


def _poll_of_stdout() -> poll | None:
    """Tells that whoever reads our output is gone."""
    try:
        made = poll()
        made.register(sys.stdout.fileno(), POLLERR | POLLHUP)
    except (OSError, ValueError):  # it is no file of the system's
        return None
    return made


def _fifo_of_stdout() -> int | None:
    try:
        number = sys.stdout.fileno()
        return number if stat.S_ISFIFO(os.fstat(number).st_mode) else None
    except (OSError, ValueError):  # it is no file of the system's
        return None


def _unread_bytes(fifo: int) -> int:
    found: int = struct.unpack("i", fcntl.ioctl(fifo, termios.FIONREAD, bytes(4)))[0]
    return found
