"""How the events of `tidelog feed` reach their consumer, and from when on they count as handled.

A named feed acknowledges a ts when its consumer needs nothing at or below it any more. What that means depends on how
much the consumer says:

    Printed        nothing: an event is handled when the consumer has taken it out of the pipe; without a pipe, when it
                   is printed
    Confirmed      --ack-from FD: when the consumer has written its ts to FD
    Executed       --exec CMD: when CMD was given it on its standard input, and has ended with status 0

Only what a checkpoint covers is acknowledged, so the events of a transaction, and the values of --initial, count all
together. Whatever was not acknowledged comes again the next time: an event may come twice, and is never left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

from tidelog import limits
from tidelog.cli.exits import close_stdout, complain
from tidelog.errors import ClientError

if TYPE_CHECKING:
    from tidelog.cli.feed.lines import FeedLines
    from tidelog.client.event import Event


class Printed:
    """Prints events.

    This and the other two have the same methods: `take` gets the next event, and `checkpoint` the ts up to which all
    were taken. `finish` is told whether the feed came to its end, and `on_lost` that it connects again.
    """

    def __init__(self, lines: FeedLines) -> None:
        self._lines = lines

    @property
    def handled_ts(self) -> int | None:
        """Of a checkpoint: everything up to it was handled."""
        return self._lines.pipe.taken

    def take(self, event: Event) -> None:
        self._lines.pipe.check_reader()
        self._lines.print(event)

    def checkpoint(self, ts: int) -> None:
        self._lines.pipe.look()
        self._lines.pipe.mark(ts)

    def finish(self, is_at_end: bool) -> None:
        self._lines.pipe.finish(waits=is_at_end)

    def on_lost(self) -> None:
        self._lines.on_lost()


class Confirmed:
    """Prints events, and reads from a file descriptor how far the consumer is: lines with a ts, or with a JSON object
    that has one, such as the line that was printed."""

    def __init__(self, lines: FeedLines, source: int) -> None:
        self._lines = lines
        self.source = source
        self._rest = b""
        self._printed_ts = self._checkpoint_ts = -1
        self._confirmed_ts = -1
        self.handled_ts: int | None = None

    def take(self, event: Event) -> None:
        self._lines.pipe.check_reader()
        self._lines.print(event)
        self._printed_ts = max(self._printed_ts, event.ts)

    def checkpoint(self, ts: int) -> None:
        self._checkpoint_ts = max(self._checkpoint_ts, ts)
        self._count()

    def finish(self, is_at_end: bool) -> None:
        """At the end, close our end and wait for the consumer: it closes its own, or confirms all that there is."""
        if is_at_end:
            close_stdout()
            while self._confirmed_ts < self._checkpoint_ts and self.read():
                pass

    def on_lost(self) -> None:
        self._lines.on_lost()

    def read(self) -> bool:
        """Read what has come, or wait for it; false: the consumer has closed its end."""
        data = os.read(self.source, limits.FEED_ACK_BYTES_AT_ONCE)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                self._confirm(_ts_of(line))
        if len(self._rest) > limits.FEED_ACK_LINE_BYTES_MAX:
            raise ClientError(f"--ack-from: a line has more than {limits.FEED_ACK_LINE_BYTES_MAX} bytes")
        return bool(data)

    def _confirm(self, ts: int) -> None:
        if ts > max(self._printed_ts, self._checkpoint_ts):
            raise ClientError(f"--ack-from: ts {ts} was not printed yet")
        self._confirmed_ts = max(self._confirmed_ts, ts)
        self._count()

    def _count(self) -> None:
        """A ts counts once a checkpoint covers it: before, more events may have it, or a lower one."""
        ts = min(self._confirmed_ts, self._checkpoint_ts)
        self.handled_ts = ts if ts >= 0 else None


def _ts_of(line: bytes) -> int:
    try:
        found: Any = json.loads(line)
        ts = found["ts"] if isinstance(found, dict) else found
        if isinstance(ts, int) and not isinstance(ts, bool) and ts >= 0:
            return ts
    except (ValueError, KeyError):
        pass
    raise ClientError(f"--ack-from: {line[:40]!r} is neither a ts nor an event with one")


class Executed:
    """Runs a command for each batch of events, with the events as lines on its standard input."""

    def __init__(self, lines: FeedLines, command: str) -> None:
        self._lines = lines
        self._command = command
        self._batch: list[str] = []
        self._bytes = self._changes = 0
        self.handled_ts: int | None = None

    def take(self, event: Event) -> None:
        line = self._lines.line_of(event)
        if line is not None:
            self._batch.append(line)
            self._bytes += len(line)
        self._changes += event.kind not in ("steady", "checkpoint")
        if self._bytes > limits.FEED_EXEC_BYTES or self._changes >= limits.FEED_EXEC_EVENTS:
            self._run()

    def checkpoint(self, ts: int) -> None:
        self._run()
        self.handled_ts = ts

    def finish(self, is_at_end: bool) -> None:
        """A feed ends with a checkpoint, so there is nothing left."""

    def on_lost(self) -> None:
        """What was taken comes no second time."""

    def _run(self) -> None:
        """Until it succeeds: the events after these must wait, or they would be out of order."""
        batch, count = "".join(self._batch), self._changes
        self._batch, self._bytes, self._changes = [], 0, 0
        pause_s = limits.FEED_EXEC_PAUSE_S_MIN
        while count:
            status = subprocess.run(self._command, shell=True, input=batch, text=True, check=False).returncode
            if status == 0:
                return
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            complain(f"{self._command!r} {how}: the same {count} events again in {pause_s:g} s")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, limits.FEED_EXEC_PAUSE_S_MAX)
