"""The events of a feed as lines: JSON for programs, columns and colours on a terminal."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Final

from tidelog.cli.output.pipe import StdoutPipe
from tidelog.cli.output.stdout import Column, Output, json_line
from tidelog.cli.output.values import bytes_to_text, time_or_number, value_to_text
from tidelog.resp.json_form import reply_to_json

if TYPE_CHECKING:
    from tidelog.client.event import Event

_STYLES: Final = {"deleterange": "red", "steady": "green", "checkpoint": "dim", "commit": "dim"}


class FeedLines:
    """Prints events."""

    def __init__(self, output: Output, *, has_checkpoints: bool) -> None:
        self._output = output
        self._has_checkpoints = has_checkpoints
        self._is_steady = False
        self.pipe: StdoutPipe[int] = StdoutPipe()
        """Marked with the ts of checkpoints."""

    def line_of(self, event: Event) -> str | None:
        """The line of JSON for an event; None if there is to be none."""
        if event.kind == "checkpoint" and not self._has_checkpoints:
            return None
        names = [field.name for field in dataclasses.fields(event)]
        return json_line(event.kind, {name: reply_to_json(getattr(event, name)) for name in names})

    def print(self, event: Event) -> None:
        if not self._output.as_json:
            if event.kind != "checkpoint" or self._has_checkpoints:
                self._print_row(event)
        elif (line := self.line_of(event)) is not None:
            sys.stdout.write(line)
            self.pipe.printed_bytes += len(line)  # which is ASCII
        if event.kind == "steady":
            self._is_steady = True
        # What is behind comes in bulk; a change that happens now is to be seen now.
        if self._is_steady or event.kind == "checkpoint":
            sys.stdout.flush()

    def on_lost(self) -> None:
        self._is_steady = False
        sys.stdout.flush()

    def _print_row(self, event: Event) -> None:
        from tidelog.client.event import Checkpoint, DeleteRange, Expiry, Value

        style, what, key, rest = _STYLES.get(event.kind, ""), event.kind, "", ""
        if isinstance(event, Value):
            parts = [] if event.field is None else [bytes_to_text(event.field)]
            if event.value is None:
                style, what = "red", "deleted"
            else:
                what = event.type
                parts.append(value_to_text(event.value))
            key, rest = bytes_to_text(event.key), " = ".join(parts)
        elif isinstance(event, DeleteRange | Checkpoint):
            key = f"{bytes_to_text(event.start)} .. {bytes_to_text(event.end) if event.end else 'the last'}"
        elif isinstance(event, Expiry):
            key = bytes_to_text(event.key)
            rest = "never" if event.expire_ms is None else time_or_number(1000 * event.expire_ms)
        columns = (
            Column("time", 27, style="dim"),
            Column("what", 11, style=style or "cyan"),
            Column("key", 24, style=style or "bold"),
            Column("value", style=style),
        )
        self._output.row(columns, [time_or_number(event.ts), what, key, rest])
