"""Counts of what a command has done so far: on a terminal as they grow, and as its last line however it ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Final, Self

from tidelog.cli.output.stdout import Output

_SHOWN_EVERY_S: Final = 0.2


class RunningCounts:
    """A `with` block; `12 written, 0 duplicate, 3 late` is printed when it ends. JSON: kind "summary"."""

    def __init__(self, output: Output, names: Sequence[str], *, is_shown: bool = True) -> None:
        """`is_shown`: also while they grow, if stderr is a terminal."""
        self._output = output
        self.counts = dict.fromkeys(names, 0)
        self._is_shown = is_shown and sys.stderr.isatty()
        self._shown_s = 0.0

    def add(self, *more: int) -> None:
        """To each of them, in their order."""
        for name, number in zip(self.counts, more, strict=True):
            self.counts[name] += number
        if self._is_shown and time.monotonic() - self._shown_s > _SHOWN_EVERY_S:
            self._shown_s = time.monotonic()
            sys.stderr.write(f"\r\x1b[K{self._text(',')}")
            sys.stderr.flush()

    def _text(self, separator: str) -> str:
        return ", ".join(f"{number:{separator}} {name}" for name, number in self.counts.items())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown and self._shown_s:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        if self._output.as_json:
            self._output.object("summary", dict(self.counts))
        else:
            self._output.line(self._text("," if self._output.is_terminal else ""))
